"""The command's options: attributes of `tf_model` and `tf_aot_library`, as `rules/private/` declares and documents them."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfaot import starlark
from tfaot.command.files import RULES
from tfaot.core import buckets, requests
from tfaot.core.errors import TfaotError

_BAZEL = {
    "config_golden",
    "data",
    "features",
    "gen_benchmark",
    "gen_test",
    "measured",
    "model",
    "name",
    "source",
    "stub_golden",
    "taps",
    "test_size",
}
"""Attributes that only targets of Bazel need, or that the command's argument says. A model finds its files without `data`."""

_FILE_OR = "Label or dict"
"""The start of the type of an attribute that is a file, or a dictionary in which `file` is that file."""

_KINDS = starlark.execute(RULES, "rules/private/kinds.bzl")


def attributes(rule: str = "tf_aot_library") -> tuple[starlark.Field, ...]:
    """Returns the attributes of a rule and of its model that are options, in alphabetical order."""
    macros = [symbol for symbol in starlark.Tree(RULES).symbols("rules/defs.bzl") if symbol.name in (rule, "tf_model")]
    fields = (field for macro in macros for field in macro.fields)
    return tuple(
        sorted(
            (field for field in fields if field.name not in _BAZEL and not field.name.startswith("*")),
            key=lambda field: field.name,
        )
    )


@dataclasses.dataclass(frozen=True)
class Option:
    """An attribute as an option."""

    field: starlark.Field

    @property
    def flag(self) -> str:
        """The option's name: `--saved-model`."""
        return "--" + self.field.name.replace("_", "-")

    @property
    def many(self) -> bool:
        """Whether it can be repeated."""
        return self.pairs or self.field.type.startswith("list") or " or list" in self.field.type

    @property
    def pairs(self) -> bool:
        """Whether each value is `NAME=VALUE`."""
        return self.field.type.startswith("dict") or " or dict" in self.field.type

    @property
    def default(self) -> Any:
        """The value of an attribute that isn't given."""
        return None if not self.field.default else _value(self.field.default)

    @property
    def metavar(self) -> str:
        """What stands for a value in the help."""
        if self.field.type.startswith(_FILE_OR):
            return "FILE|NAME=VALUE"
        if self.pairs:
            lists = {"list]": "NAME=32,?,3", "list[int]": "NAME=16,64"}
            return next((shown for kind, shown in lists.items() if kind in self.field.type), "NAME=VALUE")
        return "FILE" if "Label" in self.field.type else "NUMBER" if "int" in self.field.type else "TEXT"

    @property
    def help(self) -> str:
        """What it means: the attribute's documentation, as sentences of plain text."""
        doc = self.field.doc
        text = (doc[0].upper() + doc[1:]).rstrip(".").replace("`", "") + "."
        return text + (" Can be repeated." if self.many else "")

    def read(self, parsed: Any) -> Any:
        """Returns an attribute's value from what click parsed."""
        if not self.many:
            return parsed
        if not parsed:
            return self.default
        if not self.pairs:
            return [self._number(text) for text in parsed] if "int" in self.field.type else list(parsed)
        if self.field.type.startswith(_FILE_OR):
            parsed = [text if "=" in text else f"file={text}" for text in parsed]  # a label alone is a file
        pairs = [_pair(self.flag, text, optional=" or dict" in self.field.type) for text in parsed]
        if "list]" not in self.field.type:
            return dict(pairs)
        sizes = {name: value.replace("None", "?") for name, value in pairs}
        for name, value in sizes.items():
            requests.sizes(self.field.name, name, value)  # the export stage would say so much later
        return sizes

    def _number(self, text: str) -> int:
        if text.isascii() and text.removeprefix("-").isdigit():
            return int(text)
        numbers = re.findall(r"\d+", text) or ["1", "8"]
        raise TfaotError(
            f"{self.flag} {text}: not a number",
            do="give one number, and repeat the option for more: "
            + " ".join(f"{self.flag} {number}" for number in numbers),
        )


@dataclasses.dataclass(frozen=True)
class Own:
    """An option that isn't an attribute."""

    flag: str
    metavar: str
    help: str
    default: str | float | None = None
    required: bool = False

    switch: bool = False
    """Whether it takes no value."""


@dataclasses.dataclass(frozen=True)
class Command:
    """A command that takes a model."""

    name: str
    help: str
    rule: str
    """The rule whose attributes it takes."""
    own: tuple[Own, ...]


_PLATFORM = Own(
    "--platform",
    "PLATFORM",
    "The platform to compile for: linux_x86_64 or linux_aarch64, 64-bit ARM. By default, this machine's.",
)
_UNTESTED = Own(
    "--untested-platforms",
    "",
    "Also compile for android_aarch64, macos_aarch64, macos_x86_64, and windows_x86_64, where nobody has run a model yet.",
    switch=True,
)
_RUN_UNDER = Own(
    "--run-under",
    "COMMAND",
    "A command that runs programs for the platform, such as an emulator with its flags. By default, programs run directly.",
)
_OUT = Own(
    "--out",
    "DIR",
    "The folder to write. It is replaced if it contains only what the command wrote, unchanged; otherwise, it is an error.",
    required=True,
)
_NAME = Own("--name", "NAME", "The library's name. By default, the class's in lower case.")
_MODULE = Own("--name", "NAME", "The module's name. By default, that of the model's file.")

COMMANDS = (
    Command(
        "compile",
        "Compiles MODEL, a Python file, SavedModel, GraphDef, or StableHLO, into a package: a C++ class, a static library, and "
        "descriptions for CMake and pkg-config. It is written if it computes TensorFlow's numbers in a test.",
        "tf_aot_library",
        (
            _OUT,
            _NAME,
            Own(
                "--header-folder",
                "PATH",
                'The folder in the header\'s path: #include "PATH/NAME.h". By default, there is none.',
                default="",
            ),
            Own(
                "--no-verify",
                "",
                "Don't run the model's test, as the command verify does, before it is written.",
                switch=True,
            ),
            _PLATFORM,
            _UNTESTED,
            _RUN_UNDER,
        ),
    ),
    Command(
        "verify",
        "Compiles MODEL, runs it for several steps, and compares every output and every written variable with "
        "TensorFlow's.",
        "tf_aot_library",
        (_PLATFORM, _UNTESTED, _RUN_UNDER),
    ),
    Command(
        "profile",
        "Compiles MODEL, and shows where it spends its time, by kernel. Needs perf.",
        "tf_aot_library",
        (
            Own("--seconds", "SECONDS", "How long to sample, approximately.", default=3.0),
            Own("--core", "NUMBER", "The core to run on. By default, the last one."),
        ),
    ),
    Command("hlo", "Turns MODEL into HLO for another compiler.", "tf_aot_hlo", (_OUT, _MODULE, _PLATFORM)),
    Command("stablehlo", "Turns MODEL into portable StableHLO.", "tf_aot_hlo", (_OUT, _MODULE)),
    Command(
        "bundle",
        "Packs HLO, StableHLO, TensorFlow's numbers, and a script that replays them, for authors of compilers.",
        "tf_aot_hlo",
        (_OUT, _MODULE, _PLATFORM),
    ),
)
"""All commands that take a model. `inspect` takes a package."""


def options(rule: str = "tf_aot_library") -> tuple[Option, ...]:
    """Returns an option for each attribute of a rule."""
    return tuple(Option(field) for field in attributes(rule))


def _pair(flag: str, text: str, *, optional: bool) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals and optional:
        return name.replace(".", "_"), name
    if not equals:
        raise TfaotError(
            f"{flag} {text}: the value isn't NAME=VALUE", exists=repr(text), do=f"write {flag} {text}=VALUE"
        )
    return name, value


def _value(default: str) -> Any:
    constants = {"None": None, "True": True, "False": False}
    return constants[default] if default in constants else json.loads(default)


def kind_of(model: str, framework: str) -> str:
    """Returns what a model is: one of `graph`, `jax`, `model` for a Python file of TensorFlow, `saved_model`, and `stablehlo`.

    Raises:
      TfaotError: nothing is there, its name doesn't say, or it isn't what a framework has.
    """
    path = Path(model)
    if framework not in _KINDS["FRAMEWORKS"]:
        raise TfaotError(
            f"--framework {framework}: there is no such framework",
            exists=", ".join(_KINDS["FRAMEWORKS"]),
            do="give one of these",
        )
    if framework == "jax" and path.exists():
        if path.suffix != ".py":
            raise TfaotError(
                f"--framework jax: {model} isn't a Python file", do="remove --framework, or name such a file"
            )
        return "jax"
    if path.is_dir():
        return "saved_model"
    if not path.exists():
        raise TfaotError(f"there is no model {model!r}", exists="nothing at this path", do="check the path")
    if path.suffix[1:] not in _KINDS["BY_EXTENSION"]:
        raise TfaotError(
            f"{model}: the name doesn't say what kind of model this is",
            exists=f"a model is {_KINDS['MODELS']}",
            do="name one of these, or rename the file",
        )
    return str(_KINDS["BY_EXTENSION"][path.suffix[1:]])


def check(values: Mapping[str, Any], kind: str) -> None:
    """Checks that attributes which belong to one kind of model aren't given with another, and that files exist.

    Raises:
      TfaotError: they are, or one doesn't.
    """
    named = _KINDS["KINDS"]
    for name, only in _KINDS["ONLY"].items():
        if values[name] and only != kind:
            flag = "--" + name.replace("_", "-")
            raise TfaotError(
                f"{flag} applies only to {named[only]}", exists=f"the model is {named[kind]}", do=f"remove {flag}"
            )
    if values["state"] and values["framework"] != "jax":
        raise TfaotError(
            "--state applies only to Python files with --framework jax",
            do="remove it; variables of TensorFlow are state by themselves, and tfaot.jax.export takes the state of its programs",
        )
    dims, sizes = (
        {key: requests.sizes(name, key, text) for key, text in (values[name] or {}).items()}
        for name in ("dims", "sizes")
    )
    buckets.check(dims, sizes, values["batch_sizes"] or ())
    numbers = [(name, values[name]) for name in ("golden_steps", "max_batch", "replicas")]
    for name, number in [*numbers, *(("batch_sizes", size) for size in values["batch_sizes"] or ())]:
        if number is not None and int(number) < 1:
            raise TfaotError(f"--{name.replace('_', '-')} {number}: the number is less than 1", do="give 1 or more")
    files = [(name, values[name]) for name in ("config", "debug_info", "golden_inputs", "saver")]
    files += [("weights", (values["weights"] or {}).get("file")), *(("deps", path) for path in values["deps"] or ())]
    for name, path in files:
        if path and not Path(path).exists():
            flag = "--" + name.replace("_", "-")
            raise TfaotError(
                f"{flag} {path}: there is no such file", exists="nothing at this path", do="check the path"
            )
