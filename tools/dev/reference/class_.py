"""Pages about the generated class: its members, from headers that the render stage makes, and the names of members."""

from __future__ import annotations

import dataclasses
import os
import re

from tfaot.core import names, templates
from tfaot.core.manifest import FORMAT, Call, EntryPoint, Fingerprints, Input, Manifest, Output, Use, Variable
from tfaot.render import render
from tools.dev.reference.markdown import code, notice, sentence, table

PAGE = "docs/reference/class.md"
NAMES = "docs/reference/names.md"

_PLAIN = Manifest(
    format=FORMAT,
    tensorflow="",
    cpp_class="models::Model",
    entry_points=(
        EntryPoint(
            "Run",
            "Run",
            (Input("x:0", "x", "float32", (8, 3), "float32", batched=False),),
            (Output("y:0", "y", "float32", (8,), "float32", batched=False, size=""),),
            (),
            (),
        ),
    ),
    variables=(),
    frozen=(),
    random_state="",
    max_batch=0,
    calls=(Call("Run", 0),),
    fingerprints=Fingerprints("", "", "", "", ""),
)
_RUN = _PLAIN.entry_points[0]
_VARIABLES = dataclasses.replace(
    _PLAIN,
    entry_points=(dataclasses.replace(_RUN, variables=(Use(0, written=True), Use(1, written=False))),),
    variables=(
        Variable("kernel", "kernel", "float32", (3,), "float32", written=True, offset=0),
        Variable("scale", "scale", "float32", (), "float32", written=False, offset=12),
    ),
)
_RANDOM = dataclasses.replace(
    _VARIABLES,
    variables=(*_VARIABLES.variables, Variable("state", "state", "uint64", (3,), "uint64", written=True, offset=16)),
    random_state="state",
)
_BATCHES = dataclasses.replace(
    _PLAIN,
    entry_points=(
        dataclasses.replace(
            _RUN,
            inputs=(dataclasses.replace(_RUN.inputs[0], batched=True),),
            outputs=(dataclasses.replace(_RUN.outputs[0], batched=True),),
            batch_sizes=(1, 8),
        ),
    ),
    max_batch=8,
    calls=(Call("Run", 8),),
)
_SIZED = dataclasses.replace(
    _PLAIN, entry_points=(dataclasses.replace(_RUN, outputs=(dataclasses.replace(_RUN.outputs[0], size="size:0"),)),)
)
_CASES: tuple[tuple[str, Manifest, dict[str, bool]], ...] = (
    ("in every class", _PLAIN, {}),
    ("with variables that aren't frozen", _VARIABLES, {}),
    ("with `embed_variables = False`", _VARIABLES, {"embed": False}),
    ("with random ops", _RANDOM, {}),
    ("with `batch_sizes`", _BATCHES, {}),
    ("with a result of unknown size", _SIZED, {}),
    ("with `flush_denormals = False`", _PLAIN, {"flush_denormals": False}),
)
"""What a class can have, each on its own, or the first time beside what it needs."""

_NAMES = (
    ("fc/hidden0/kernel", "a scope, as most variables have one"),
    ("user-id", "characters that C++ doesn't allow become one underscore"),
    ("a__b", "so does each run of underscores, which C++ reserves"),
    ("0/weights", "a leading digit gets a prefix"),
    ("class", "a keyword gets a suffix"),
    ("errno", "so does a macro of the C library"),
    ("größe", "only ASCII letters and digits stay"),
    ("///", "nothing is left"),
)


@dataclasses.dataclass(frozen=True)
class _Member:
    comment: str
    declarations: str

    @property
    def name(self) -> str:
        """The name that it declares."""
        match = re.search(r"(operator bool|\w+)(?:\(| = )", self.declarations)
        assert match
        return f"Move and copy a {match[1]}" if "&&" in self.declarations else match[1]


def pages() -> dict[str, str]:
    """Returns the pages by path."""
    return {PAGE: _class(), NAMES: _mapping()}


def header(manifest: Manifest, *, embed: bool = True, flush_denormals: bool = True) -> str:
    """Returns the header of a model's class."""
    compiled = [
        render.Compiled(entry.name, batch, "") for entry in manifest.entry_points for batch in entry.batch_sizes or (0,)
    ]
    context = render.context_of(manifest, header="", compiled=compiled, embed=embed, flush_denormals=flush_denormals)
    folder = os.path.join(os.path.dirname(render.__file__), "templates")
    return templates.environment(folder).get_template("class.h.jinja").render(context)


def members(text: str) -> tuple[str, list[_Member]]:
    """Returns the comment of a header's class, and its public members. Comments keep their paragraphs."""
    before, _, after = text.partition("class Model {\n public:\n")
    about = before.rpartition("\n\n")[2]
    public: list[_Member] = []
    before_next: list[str] = []
    for block in after.partition("\n private:")[0].split("\n\n"):
        lines = [line.strip() for line in block.strip().splitlines()]
        title = lines.pop(0) if re.match(r"// (Inputs|Outputs|Variables)", lines[0]) else ""
        comment: list[str] = [*before_next, title] if title else [*before_next]
        declarations: list[str] = []
        for line in lines:
            if line.startswith("//") and declarations:
                public.append(_Member(_prose(comment), "\n".join(declarations)))
                comment, declarations = [title] if title else [], []
            (comment if line.startswith("//") else declarations).append(line)
        if declarations:
            public.append(_Member(_prose(comment), "\n".join(declarations)))
        # A block of its own is about the members after it.
        before_next = [] if declarations else [*comment, "//"]
    return _prose(about.splitlines()), public


def _prose(comment: list[str]) -> str:
    paragraphs = "\n".join(line.removeprefix("//").strip() for line in comment).split("\n\n")
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs if paragraph.strip())
    return text.replace("<", "\\<")  # or Markdown would take it for HTML


def _sentences(comment: str) -> list[str]:
    return re.split(r"(?<=[.])\s+(?=[A-Z])", comment)


def _class() -> str:
    made = [(when, *members(header(manifest, **flags))) for when, manifest, flags in _CASES]
    first_of: dict[str, _Member] = {}
    parts = [
        notice("py/tfaot/render/templates/class.h.jinja"),
        "# The generated class\n\n",
        "The header `PACKAGE/NAME.h` declares one class for each `tf_aot_library`. The names below are those of a model "
        "with the class `Model`, the entry point `Run`, the input `x`, the output `y`, and the variables `kernel`, which "
        "`Run` writes, and `scale`, which it only reads. [Names](names.md) says how members get their names, and "
        "[embedding.md](../guide/embedding.md) how to use them.\n\n",
        made[1][1] + "\n\n## Members\n\n",
    ]
    members_of: list[tuple[str, str]] = []
    for when, _, public in made:
        for member in public:
            if member.name not in first_of:
                first_of[member.name] = member
                declared = "<br>".join(code(line) for line in member.declarations.splitlines())
                members_of.append((declared, ("" if when == _CASES[0][0] else f"*{sentence(when)}* ") + member.comment))
    parts.append(table(["member", "what it does"], members_of))
    parts.append(
        "\n## What else changes\n\nFor some classes, the header says more, or something else, about these members.\n\n"
    )
    rows: list[tuple[str, str, str, str]] = []
    for when, _, public in made:
        for member in public:
            first = first_of[member.name]
            new = " ".join(said for said in _sentences(member.comment) if said not in _sentences(first.comment))
            if new and (member.name, new) not in [(name, text) for name, _, _, text in rows]:
                changed = member.declarations if member.declarations != first.declarations else ""
                rows.append((member.name, when, changed.partition("\n")[0], new))
    shown = [(code(name), when, f"{code(line)} {text}") for name, when, line, text in rows]
    parts.append(table(["member", "when", "what changes"], shown))
    return "".join(parts)


def _mapping() -> str:
    rows = [(code(name), code(names.to_identifier(name)), why) for name, why in _NAMES]
    twice = ["a/b", "a_b", "a.b", "Run"]
    mapped = names.unique_identifiers(twice, class_name="Model")
    taken = ", ".join(f"`{name}`" for name in sorted(names.MEMBERS))
    return (
        notice("py/tfaot/core/names.py")
        + "# Names\n\n"
        + "Each input, output, and variable has a member of the class with its own name. `model.json` has both names "
        + "([model_json.md](model_json.md)), and the generated header quotes TensorFlow's above each member.\n\n"
        + "A name that C++ allows stays as it is. These are mapped:\n\n"
        + table(["TensorFlow", "C++", "why"], rows)
        + "\nIf two names of a class would be the same, names that C++ allows keep their spelling. Of the others, the "
        + "first keeps its mapping, and the next ones get a number. The order is: entry points, the inputs and outputs of "
        + "each, and variables. For example, in one class:\n\n"
        + table(["TensorFlow", "C++"], [(code(a), code(b)) for a, b in zip(twice, mapped, strict=True)])
        + f"\nThe class itself declares or uses these names, so a tensor of that name gets a number: {taken}.\n\n"
        + "The target's `entry_points` names entry points: a dict gives the C++ names, and for a list, dots become "
        + "underscores. Then `Run` is an ordinary name. A class of several entry points puts their names before those of "
        + "their inputs and outputs: the input `x` of `Score` is `Score_x`.\n"
    )
