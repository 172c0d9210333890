"""Finds where nodes are in TensorFlow 1's control flow, whose branches and loops aren't functions. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tensorflow.core.framework import node_def_pb2

from tfaot.graph.names import producer
from tfaot.graph.ops import type_of

_V1_ENTRIES = frozenset({"Enter", "RefEnter", "RefSwitch", "Switch", "_SwitchN"})


def order(nodes: Sequence[node_def_pb2.NodeDef]) -> list[int]:
    """Returns the indices of the nodes in order, but with each after those that it needs, apart from back edges of loops."""
    index = {node.name: i for i, node in enumerate(nodes)}
    entered = [False] * len(nodes)
    left = [False] * len(nodes)
    order: list[int] = []
    for root in range(len(nodes)):
        stack = [root]
        while stack:
            i = stack[-1]
            if not entered[i]:
                entered[i] = True
                needed = [index.get(producer(operand)) for operand in reversed(nodes[i].input)]
                stack += (j for j in needed if j is not None and not entered[j] and nodes[j].op != "NextIteration")
                continue
            stack.pop()
            if not left[i]:
                left[i] = True
                order.append(i)
    return order


@dataclasses.dataclass(frozen=True)
class Place:
    """A place in v1 control flow: inside a branch or a loop, which may be nested."""

    outer: Place | None
    branch: tuple[str, int] | None
    """The predicate and the Switch's port; None for a loop."""
    depth: int
    looped: bool
    """Whether this place or one around it is a loop, which values can only enter through its `Enter`."""

    @staticmethod
    def inside(outer: Place | None, branch: tuple[str, int] | None) -> Place:
        """Returns a place one level deeper."""
        depth, looped = (outer.depth, outer.looped) if outer else (0, False)
        return Place(outer, branch, depth + 1, looped or branch is None)


@dataclasses.dataclass(frozen=True)
class Anchor:
    """The place of a node, and the input that puts it there."""

    place: Place
    operand: str
    dtype: int
    """The operand's dtype if it comes from a Switch, which is itself outside; otherwise 0."""


def _port(operand: str) -> int:
    """Returns the port of a Switch that an input refers to."""
    _, _, port = operand.partition(":")
    return int(port in ("1", "output_true:0"))


def anchors(nodes: Sequence[node_def_pb2.NodeDef], order: Sequence[int]) -> dict[str, Anchor]:
    """Finds the nodes that are inside v1 control flow."""
    anchors: dict[str, Anchor] = {}
    if not any(node.op in _V1_ENTRIES for node in nodes):
        return anchors
    by_name = {node.name: node for node in nodes}
    for i in order:
        node = nodes[i]
        place, anchor, dtype = None, "", 0
        closes_loop = False
        for operand in node.input:
            name = producer(operand)
            source = by_name.get(name)
            entered = anchors[name].place if name in anchors else None
            found_type = 0
            if source is not None and not operand.startswith("^"):
                closes_loop |= source.op == "NextIteration"
                if source.op in ("Switch", "RefSwitch"):
                    entered = Place.inside(entered, (source.input[1], _port(operand)))
                    found_type = type_of(source, "T")
                elif source.op == "_SwitchN":
                    entered = Place.inside(entered, None)  # like a loop, impossible to enter
                    found_type = type_of(source, "T")
            if entered is not None and (place is None or entered.depth > place.depth):
                place, anchor, dtype = entered, operand, found_type
        if node.op in ("Enter", "RefEnter"):
            place, anchor = Place.inside(place, None), anchor or node.input[0]
        elif node.op in ("Exit", "RefExit"):
            while place is not None and place.branch is not None:
                place = place.outer
            place = place.outer if place is not None else None
        elif node.op in ("Merge", "RefMerge") and not closes_loop:
            place = place.outer if place is not None else None
        if place is not None:
            anchors[node.name] = Anchor(place, anchor if dtype else f"^{producer(anchor)}", dtype)
    return anchors
