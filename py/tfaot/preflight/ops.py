"""The op table: what the installed TensorFlow registers, and what of it compiles ahead of time, with which dtypes."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.framework import dtypes as tf_dtypes

from tfaot.core import dtypes, knowledge
from tfaot.preflight import kernels

COMMAND = "bazel run //tools:check -- --ops"
PAGE = "docs/reference/ops.md"


@dataclasses.dataclass(frozen=True)
class Row:
    """An op."""

    op: str
    compiles: bool
    """Whether it compiles with some dtypes."""
    why: str
    """Why it doesn't compile. Empty if it does."""
    rewrite: str
    """What to use instead. Empty if it compiles."""
    dtypes: tuple[Mapping[str, tuple[str, ...]], ...]
    """By attribute, the dtypes with which it compiles, for each kernel. An attribute that is missing can have any dtype."""
    constants: tuple[str, ...]
    """Arguments that must be known at build time."""
    hazard: str
    """How compiled code behaves unlike TensorFlow. Can be empty."""


def registered() -> list[op_def_pb2.OpDef]:
    """Returns all ops that TensorFlow registers, by name."""
    data = pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList())
    return sorted(op_def_pb2.OpList.FromString(data).op, key=lambda op: str(op.name))


def rows() -> list[Row]:
    """Returns the whole table."""
    return [_row(op) for op in registered()]


def _row(op: op_def_pb2.OpDef) -> Row:
    name = str(op.name)
    if name in kernels.SUBSTITUTED:
        return Row(name, True, "", "", (), (), "")
    if name not in kernels.table():
        return Row(name, False, *knowledge.why_missing(name, op), (), (), "")
    if name in knowledge.NOT_AHEAD_OF_TIME:
        return Row(name, False, knowledge.NOT_AHEAD_OF_TIME[name], knowledge.lowered_otherwise(name), (), (), "")
    tolerated = {*knowledge.TOLERATED.get(name, ()), *knowledge.ONE_STEP.get(name, ())}
    constants = tuple(argument for argument in knowledge.CONSTANTS.get(name, ()) if argument not in tolerated)
    return Row(name, True, "", "", kernels.compiled_dtypes(name), constants, knowledge.hazard(name))


def to_json(version: str) -> str:
    """Returns the table as JSON, for a TensorFlow version."""
    return json.dumps({"tensorflow": version, "ops": [dataclasses.asdict(row) for row in rows()]}, indent=1) + "\n"


def markdown(version: str) -> str:
    """Returns the table as a page, for a TensorFlow version."""
    table = rows()
    good = [row for row in table if row.compiles]
    definitions = {str(op.name): _allowed(op) for op in registered()}
    by_dtypes = _grouped(good, lambda row: _shown(row.dtypes, definitions[row.op]) or "any")
    by_constants = _grouped(good, lambda row: ", ".join(f"`{name}`" for name in row.constants))
    by_hazard = _grouped(good, lambda row: row.hazard)
    why: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in table:
        if not row.compiles:
            why[row.why, row.rewrite].append(row.op)
    lines = [
        f"<!-- Made by //tools:check. To renew it: {COMMAND} > {PAGE} -->",
        "",
        "# Ops",
        "",
        f"TensorFlow {version} registers {len(table):,} ops, and {len(good):,} of them compile ahead of time. To find out "
        "about all ops of a model at once, run the [check](../guide/diagnostics.md). "
        "[A campaign](../guide/diagnostics.md#how-far-you-can-trust-it) compares this table with the compiler.",
        "",
        "## Ops that compile",
        "",
        "Dtypes are by the attribute of the op's definition. An attribute that isn't listed can have any dtype that the op's "
        "definition allows and C++ can pass. *numbers* are all such floating-point, integer, and complex dtypes.",
        "",
        "| dtypes | ops |",
        "|---|---|",
        *(f"| {key} | {', '.join(ops)} |" for key, ops in by_dtypes.items() if len(ops) > 1),
        "",
        _singles(by_dtypes),
        "",
        "These arguments must be known at build time:",
        "",
        "| arguments | ops |",
        "|---|---|",
        *(f"| {key} | {', '.join(ops)} |" for key, ops in by_constants.items() if len(ops) > 1),
        "",
        _singles(by_constants),
        "",
        "These ops behave unlike TensorFlow's:",
        "",
        "| how | ops |",
        "|---|---|",
        *(f"| {key} | {', '.join(ops)} |" for key, ops in by_hazard.items()),
        "",
        "## Ops that don't compile",
        "",
        "| why | to do | ops |",
        "|---|---|---|",
    ]
    for (reason, rewrite), ops in sorted(why.items(), key=lambda item: (-len(item[1]), item[0])):
        lines.append(f"| {reason} | {rewrite} | {', '.join(ops)} |")
    return "\n".join(lines) + "\n"


def _singles(groups: Mapping[str, Sequence[str]]) -> str:
    return "Of single ops: " + "; ".join(f"{ops[0]}: {key}" for key, ops in groups.items() if len(ops) == 1) + "."


def _grouped(table: Iterable[Row], of: Callable[[Row], str]) -> dict[str, list[str]]:
    """Returns the ops for which `of` gives the same text, by that text, the most first, without those with an empty one."""
    groups: dict[str, list[str]] = defaultdict(list)
    for row in table:
        groups[of(row)].append(row.op)
    return {key: groups[key] for key in sorted(groups, key=lambda key: (-len(groups[key]), key)) if key}


_REALS = ("float16", "bfloat16", "float32", "float64")
_COMPLEX = ("complex64", "complex128")
_INTEGERS = tuple(dtype.name for dtype in dtypes.ALL if dtype.name.lstrip("u").startswith("int"))
_GROUPS = (
    ("numbers", (*_REALS, *_INTEGERS, *_COMPLEX)),
    ("reals", _REALS),
    ("integers", _INTEGERS),
    ("complex", _COMPLEX),
)
"""Words for sets of dtypes, larger ones first."""


_OTHERS = ("string", "resource", "variant")
"""Dtypes that only the inside of a model has."""


def _allowed(op: op_def_pb2.OpDef) -> dict[str, set[str]]:
    """Returns the dtypes that an op's definition allows, by attribute, if it limits them."""
    return {
        str(attribute.name): {tf_dtypes.as_dtype(dtype).name for dtype in attribute.allowed_values.list.type}
        for attribute in op.attr
        if attribute.HasField("allowed_values")
    }


def _shown(alternatives: Iterable[Mapping[str, tuple[str, ...]]], allowed: Mapping[str, set[str]]) -> str:
    """Lists the dtypes of each kernel, without attributes that can have all that the definition allows."""
    of_c = {*dtypes.BY_NAME, *_OTHERS}
    shown = (
        ", ".join(
            f"`{attribute}`: {_words(names)}"
            for attribute, names in sorted(constraints.items())
            if attribute not in allowed or not allowed[attribute] & of_c <= set(names)
        )
        for constraints in alternatives
    )
    return "; or ".join(dict.fromkeys(text for text in shown if text))


def _words(names: tuple[str, ...]) -> str:
    """Returns a short form of a list of dtypes, without those that C++ has no type for."""
    left = [name for name in (dtype.name for dtype in dtypes.ALL) if name in names]
    others = [name for name in names if name not in dtypes.BY_NAME and name in _OTHERS]
    words = []
    for word, group in _GROUPS:
        if set(group) <= set(left):
            words.append(word)
            left = [name for name in left if name not in group]
    return " ".join([*words, *left, *others]) or "none that C++ has"
