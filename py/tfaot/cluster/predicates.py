"""When a node of TensorFlow 1's control flow runs: under which branches, in which loop. Pure.

A node runs if all of its inputs arrive, and a Merge if one of them does. The nodes of a cluster must run under the same
conditions, because a cluster runs as a whole or not at all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from tensorflow.core.framework import node_def_pb2

from tfaot.graph.names import tensor_name

Literal = tuple[str, bool]
"""A fact: a tensor and the value that it has; or a Merge, a loop's step, or a loop's end, and True."""


@dataclasses.dataclass(frozen=True)
class Predicate:
    """When a node runs: always, within its loop, if all facts hold."""

    frame: tuple[str, ...] = ()
    """The loops around the node, by the Enter nodes' `frame_name`, the outermost first."""
    facts: frozenset[Literal] = frozenset()

    def both(self, other: Predicate) -> Predicate:
        """Returns when both run. The deeper loop counts."""
        frame = max(self.frame, other.frame, key=len)
        return Predicate(frame, self.facts | other.facts)


ALWAYS = Predicate()


def predicates(order: Sequence[node_def_pb2.NodeDef]) -> Mapping[str, Predicate]:
    """Returns when each node runs.

    Args:
      order: the nodes, each after those that it depends on, except for the way back of a loop.
    """
    apart: set[tuple[str, ...]] = set()
    while True:
        predicates = _assuming(order, apart)
        # A loop's variables arrive together in a step if they did in the one before.
        ways: dict[tuple[str, ...], set[Predicate]] = {}
        for node in order:
            if node.op in ("NextIteration", "RefNextIteration"):
                ways.setdefault(predicates[node.name].frame, set()).add(predicates[node.name])
        wrong = {frame for frame, facts in ways.items() if len(facts) > 1} - apart
        if not wrong:
            return predicates
        apart |= wrong


def _assuming(order: Sequence[node_def_pb2.NodeDef], apart: Collection[tuple[str, ...]]) -> dict[str, Predicate]:
    """Returns when each node runs, if the variables of all loops but some arrive together in each step."""
    nodes = {node.name: node for node in order}
    predicates: dict[str, Predicate] = {}
    for node in order:
        inputs = [_of_edge(nodes, predicates, operand) for operand in node.input]
        predicates[node.name] = _of(
            node, [predicate for predicate in inputs if predicate is not None], None in inputs, apart
        )
    return predicates


def _of_edge(
    nodes: Mapping[str, node_def_pb2.NodeDef], predicates: Mapping[str, Predicate], operand: str
) -> Predicate | None:
    """Returns when a tensor arrives; None if it comes from a loop's previous step."""
    name, port = tensor_name(operand)
    node = nodes.get(name)
    if node is None:
        return ALWAYS
    if name not in predicates:
        return None
    result = predicates[name]
    if node.op in ("Switch", "RefSwitch") and port >= 0:
        return Predicate(result.frame, result.facts | {(_source(nodes, node.input[1]), port == 1)})
    return result


def _source(nodes: Mapping[str, node_def_pb2.NodeDef], tensor: str) -> str:
    """Returns the tensor that a condition is, behind identities, so that equal conditions have one name."""
    name, port = tensor_name(tensor)
    while (node := nodes.get(name)) is not None and node.op in ("Identity", "Enter", "LoopCond") and node.input:
        name, port = tensor_name(node.input[0])
    return f"{name}:{port}"


def _of(
    node: node_def_pb2.NodeDef, inputs: Sequence[Predicate], looping: bool, apart: Collection[tuple[str, ...]]
) -> Predicate:
    together = ALWAYS
    for predicate in inputs:
        together = together.both(predicate)
    if node.op in ("Enter", "RefEnter"):
        return Predicate((*together.frame, node.attr["frame_name"].s.decode()), together.facts)
    if node.op in ("Exit", "RefExit"):
        # It runs when the loop ends, and not under what held in a step. Those with the same facts run together.
        return Predicate(together.frame[:-1], frozenset({(f"{together.frame}, {sorted(together.facts)}", True)}))
    if node.op in ("Merge", "RefMerge"):
        if looping:
            step = node.name if together.frame in apart else str(together.frame)
            return Predicate(together.frame, together.facts | {(step, True)})
        return Predicate(together.frame, _either(node.name, [predicate.facts for predicate in inputs]))
    return together


def _either(name: str, inputs: Sequence[frozenset[Literal]]) -> frozenset[Literal]:
    """Returns the facts that hold if one of several sets does: what they share, if the two differ in one fact's value."""
    if len(inputs) == 2:
        only, other = inputs[0] - inputs[1], inputs[1] - inputs[0]
        if len(only) == 1 and {(tensor, not value) for tensor, value in only} == other:
            return inputs[0] & inputs[1]
    if len(set(inputs)) == 1:
        return inputs[0]
    return frozenset({(name, True)})
