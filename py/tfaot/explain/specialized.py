"""Names what a build is specialized to without need: values in the code that could be inputs or variables. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from tfaot.core import fingerprint
from tfaot.core.errors import TfaotError, listed
from tfaot.explain.build import Build
from tfaot.explain.difference import constant
from tfaot.graph import ops
from tfaot.graph.names import producer
from tfaot.graph.structure import Node

LARGE = 64 << 10
"""From how many bytes on a constant is worth a sentence."""


def text(build: Build, *, changes: Sequence[str] = (), before: Build | None = None) -> str:
    """Returns what the tool prints about one build. The arguments are those of `findings`."""
    lines = findings(build, changes=changes, before=before)
    if not lines:
        return f"{build.name} isn't specialized to anything that could be an input or a variable.\n"
    return "\n".join([f"{build.name} is specialized to:", *(f"  * {line}" for line in lines)]) + "\n"


def findings(build: Build, *, changes: Sequence[str] = (), before: Build | None = None) -> list[str]:
    """Returns a sentence for each value that the code needn't contain.

    Args:
      build: the build.
      changes: patterns of variables that the user says change.
      before: another build, which may write what this one freezes.

    Raises:
      TfaotError: a pattern matches no variable.
    """
    return [*_frozen(build, changes, before), *_constants(build), *_seeds(build)]


def _frozen(build: Build, changes: Sequence[str], before: Build | None) -> list[str]:
    frozen = [variable.name for variable in build.manifest.frozen]
    names = [*frozen, *(variable.name for variable in build.manifest.variables)]
    for pattern in changes:
        if not fnmatch.filter(names, pattern):
            raise TfaotError(
                f'--changes="{pattern}" matches no variable of {build.name}',
                exists=listed(names),
                do='write a whole name, or a pattern such as "head/*"',
            )
    lines = []
    written = {variable.name for variable in before.manifest.written} if before else set()
    for name in frozen:
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in changes):
            why = "which you say changes"
        elif name in written:
            why = f"which {before and before.name} writes"
        else:
            continue
        lines.append(
            f"the frozen variable '{name}', {why}: each new value compiles the code again. "
            f'To do: frozen = ["*", "!{name}"] on the target keeps it out of the code'
        )
    return lines


def _constants(build: Build) -> list[str]:
    frozen = {variable.sha256 for variable in build.manifest.frozen}
    lines = {}
    for node in build.structure.nodes:
        if node.proto.op != "Const" or node.proto.ByteSize() < LARGE // 2:
            continue
        value = constant(node.proto)
        sha = fingerprint.of_value(value)
        if value.nbytes >= LARGE and sha not in frozen:
            lines[sha] = (
                f"the constant {build.shown(node.name)}, {value.dtype}{list(value.shape)}, {value.nbytes:,} bytes: each new "
                "value compiles the code again. To do, if it can change: make it a tf.Variable, or an input"
            )
    return [*lines.values()]


def _seeds(build: Build) -> list[str]:
    nodes = {node.name: node for node in build.structure.nodes}
    lines = {}
    for node in build.structure.nodes:
        attributes = {key: node.proto.attr[key].i for key in ("seed", "seed2") if key in node.proto.attr}
        seeds = [f"{key} = {value}" for key, value in attributes.items() if value]
        if seeds or any(_constant(operand, node, nodes) for operand in _seed_operands(node, nodes)):
            shown = build.shown(node.name)
            lines[shown] = (
                f"the seed of {shown}{' (' + ', '.join(seeds) + ')' if seeds else ''}, which is a constant: every "
                "run draws the same numbers. To do, if runs should differ: make the seed an input, or draw with "
                "tf.random.uniform and its like, which follow Seed()"
            )
    return [*lines.values()]


def _seed_operands(node: Node, nodes: dict[str, Node]) -> list[str]:
    """Returns the operands of a node that are seeds: also counters of draws with a constant key, which make keys of seeds."""
    defined = ops.definition(node.proto.op)
    if defined is None or any(arg.number_attr or arg.type_list_attr for arg in defined.input_arg):
        return []
    operands = {arg.name: name for arg, name in zip(defined.input_arg, node.proto.input, strict=False)}
    names = ["seed"]
    if "key" in operands:
        key = nodes.get(node.name.removesuffix(node.proto.name) + producer(operands["key"]))
        names += ["counter"] if key is not None and key.proto.op == "Const" else []
    return [operands[name] for name in names if not operands.get(name, "^").startswith("^")]


def _constant(operand: str, node: Node, nodes: dict[str, Node]) -> bool:
    """Returns whether an operand is computed from constants only."""
    prefix = node.name.removesuffix(node.proto.name)
    pending, seen = [prefix + producer(operand)], set[str]()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        producer_node = nodes.get(name)
        if producer_node is None or ops.has_effects(producer_node.proto.op):
            return False  # an input, an argument, a variable, or a random number
        pending += [prefix + producer(operand) for operand in producer_node.proto.input]
    return True
