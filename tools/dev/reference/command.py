"""The page of the command `tfaot`."""

from __future__ import annotations

from tfaot.command import options
from tools.dev.reference.markdown import Group, code, grouped, notice

PAGE = "docs/reference/command.md"


def pages() -> dict[str, str]:
    """Returns the page by its path."""
    parts = [
        notice("py/tfaot/command/options.py and rules/private/"),
        "# The command tfaot\n\n",
        "[Without Bazel](../guide/without-bazel.md) shows how to use it. Its options are the attributes of ",
        "[rules and macros](rules.md), with `-` for `_`. With `…`, an option can be repeated. ",
        "MODEL is the model's file, or a SavedModel's folder. Paths are relative to the current folder.\n\n",
        "The exit status is 0 after success, and 1 after an error. An error is one message on standard error, and leaves no ",
        "output behind.\n",
    ]
    groups, attributes = [], []
    for command in options.COMMANDS:
        own = [
            (
                code(f"{option.flag} {option.metavar}".strip()),
                "required" if option.required else code(str(option.default)) if option.default else "",
                option.help,
            )
            for option in command.own
        ]
        takes = (
            f"It takes the attributes of [tf_model](rules.md#tf_model) and [{command.rule}](rules.md#{command.rule})."
        )
        groups.append(Group(code(f"tfaot {command.name} MODEL"), f"{command.help} {takes}", own))
        if command.name in ("compile", "hlo"):
            forms = ", ".join(map(_form, options.options(command.rule)))
            attributes.append(f"\nThe attributes of `tf_model` and `{command.rule}` are {forms}.\n")
    groups += [
        Group(
            "`tfaot inspect PACKAGE`",
            "Says what a package contains: its class, inputs, outputs, variables, and what made it. PACKAGE is its folder, an "
            "archive of Bazel's target `NAME_package`, or a file `model.json`.",
            (),
        ),
        Group(
            "`tfaot check MODEL`",
            "Lists all that stands in the way of compiling a SavedModel, a GraphDef, or a Python file "
            "([diagnostics](../guide/diagnostics.md)). `tfaot check --help` has its options. The exit status is 1 if something "
            "stands in the way.",
            (),
        ),
    ]
    parts += ["\n", grouped(["command and option", "default", "meaning"], groups, {}), *attributes]
    return {PAGE: "".join(parts)}


def _form(option: options.Option) -> str:
    """Returns how an attribute is written as an option. `…` stands for more of the same."""
    if option.field.type == "bool":
        return code(f"{option.flag}, --no-{option.flag[2:]}")
    return code(f"{option.flag} {option.metavar}{' …' if option.many else ''}")
