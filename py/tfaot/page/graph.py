"""Draws a TensorFlow graph: a box for each scope of names, and the findings and clusters in it.

The layout is that of the pictures of HLO (`tfaot.hlo.layout`).
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from html import escape

from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.graph.names import producer
from tfaot.hlo.boxes import Box, Row
from tfaot.hlo.layout import lay_out
from tfaot.hlo.picture import draw_computation

MOST = 40
"""The most boxes to draw. Larger graphs have more nodes in a box."""

_OPS = 5
"""How many kinds of ops a box names."""


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A picture, and what to say about it."""

    svg: str
    boxes: int
    nodes: int
    hidden: int
    """Edges that lead back to an earlier box, as between scopes that use each other. They aren't drawn."""


def draw(graph: graph_pb2.GraphDef, marks: Mapping[str, str], clusters: Mapping[str, int]) -> Drawn:
    """Draws a graph.

    Args:
      graph: without constants' values, which aren't drawn.
      marks: `blocker`, `needed`, or `hazard` by node.
      clusters: the number of the cluster that each node is in; nodes in none aren't there.
    """
    nodes = [node for node in _in_order(graph) if node.op not in ("Const", "NoOp")]
    groups = _groups(nodes)
    place = {node.name: index for index, (_, members) in enumerate(groups) for node in members}
    edges: dict[int, set[int]] = defaultdict(set)
    hidden = 0
    for index, (_, members) in enumerate(groups):
        for node in members:
            for operand in node.input:
                source = place.get(producer(operand), index)
                if source < index:
                    edges[index].add(source)
                elif source > index:
                    hidden += 1
    boxes = [
        Box(rows=_rows(scope, members, marks, clusters), sources=sorted(edges[index]))
        for index, (scope, members) in enumerate(groups)
    ]
    drawing = lay_out(boxes, 1)
    lines = draw_computation(drawing, f"{len(nodes)} nodes in {len(boxes)} boxes", 0, 1)
    width, height = max(drawing.width, 300) + 120, drawing.height + 80
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    return Drawn(
        "\n".join([head, "<title>The TensorFlow graph</title>", *lines, "</svg>"]), len(boxes), len(nodes), hidden
    )


def _in_order(graph: graph_pb2.GraphDef) -> list[node_def_pb2.NodeDef]:
    """Returns nodes after what they take, as far as there are no loops."""
    by_name = {node.name: node for node in graph.node}
    order: dict[str, None] = {}
    open_: set[str] = set()
    for start in by_name:
        stack = [start]
        while stack:
            name = stack[-1]
            if name in order:
                stack.pop()
                continue
            open_.add(name)
            waits = [each for each in map(producer, by_name[name].input) if each in by_name and each not in open_]
            if waits:
                stack.append(waits[0])
            else:
                order[name] = None
                stack.pop()
    return [by_name[name] for name in order]


_Group = tuple[str, list[node_def_pb2.NodeDef]]


def _groups(nodes: Sequence[node_def_pb2.NodeDef]) -> list[_Group]:
    """Groups nodes by scope: the outermost scopes first, and then, as long as there are few, the scopes in the largest.

    If a scope has too many scopes for a box each, neighbors share one.
    """
    # In the order of their last nodes, sources come before users, except where scopes use each other.
    position = {node.name: number for number, node in enumerate(nodes)}

    def last(group: _Group) -> int:
        return max(position[node.name] for node in group[1])

    groups: list[_Group] = [("", list(nodes))] if nodes else []
    whole: set[str] = set()
    """Groups that have no scopes, or whose scopes share boxes."""
    while len(groups) < MOST:
        largest = max(
            (group for group in groups if group[0] not in whole), key=lambda group: len(group[1]), default=None
        )
        if largest is None:
            break
        parts = sorted(_split(largest), key=last)
        room = MOST - len(groups) + 1
        if len(parts) == 1:
            whole.add(largest[0])
            continue
        if len(parts) > room:
            parts = _shared(parts, room)
            whole.update(name for name, _ in parts)
        whole.add(largest[0])  # what is left of it has no scopes
        groups.remove(largest)
        groups += parts
    return sorted(groups, key=last)


def _shared(parts: Sequence[_Group], room: int) -> list[_Group]:
    """Puts neighbors together, so that there are at most so many groups, of similar numbers of nodes."""
    total = sum(len(members) for _, members in parts)
    result: list[_Group] = []
    seen, latest = 0, -1
    for name, members in parts:
        now = seen * room // total
        if now == latest:
            first, others = result[-1]
            result[-1] = (f"{first.partition(' … ')[0]} … {name.rpartition('/')[2]}", [*others, *members])
        else:
            result.append((name, list(members)))
        seen, latest = seen + len(members), now
    return result


def _split(group: _Group) -> list[_Group]:
    """Splits a group into the scopes below its own, and the nodes that are in none. A node is in the scope of its own name."""
    scope, members = group
    inner = {node.name: node.name[len(scope) :].lstrip("/") for node in members}
    scopes = {name.partition("/")[0] for name in inner.values() if "/" in name}
    parts: dict[str, list[node_def_pb2.NodeDef]] = defaultdict(list)
    for node in members:
        first = inner[node.name].partition("/")[0]
        parts[f"{scope}/{first}".lstrip("/") if first in scopes else scope].append(node)
    if len(parts) == 1:
        (name,) = parts
        return [group] if name == scope else _split((name, members))
    return list(parts.items())


def _rows(
    scope: str, members: Sequence[node_def_pb2.NodeDef], marks: Mapping[str, str], clusters: Mapping[str, int]
) -> list[Row]:
    ops = Counter(node.op for node in members)
    title = members[0].name if len(members) == 1 else (scope or "(no scope)")
    inside = Counter(clusters[node.name] for node in members if node.name in clusters)
    rows = [
        Row(
            title,
            "" if len(members) == 1 else f"{len(members)} nodes",
            "title",
            "\n".join(n.name for n in members[:30]),
        )
    ]
    for op, count in ops.most_common(_OPS):
        rows.append(Row(op, f"×{count}" if count > 1 else "", _kind(op), op))
    if len(ops) > _OPS:
        rows.append(Row(f"… {len(ops) - _OPS} more ops", "", "movement", ", ".join(sorted(ops))))
    for number, count in sorted(inside.items())[:3]:
        rows.append(Row(f"cluster {number}", f"{count} of {len(members)} nodes", f"cluster{number % 4}", "compiled"))
    for severity in ("blocker", "needed", "hazard"):
        marked = [node for node in members if marks.get(node.name) == severity]
        for node in marked[:2]:
            rows.append(Row(f"{severity}: {node.op}", "", severity, node.name))
        if len(marked) > 2:
            rows.append(
                Row(f"{severity}: {len(marked) - 2} more", "", severity, ", ".join(n.name for n in marked[:20]))
            )
    return rows


def _kind(op: str) -> str:
    if op.startswith("Placeholder") or op in ("VarHandleOp", "ReadVariableOp"):
        return "input"
    if "MatMul" in op or op.startswith(("Conv", "DepthwiseConv", "Einsum")):
        return "product"
    if op.startswith(
        ("While", "StatelessWhile", "If", "StatelessIf", "Partitioned", "StatefulPartitioned", "Switch", "Merge")
    ):
        return "control"
    if op in ("Sum", "Mean", "Max", "Min", "Prod", "ArgMax", "ArgMin", "All", "Any") or "Grad" in op:
        return "reduction"
    if "Random" in op:
        return "random"
    if op in (
        "Identity",
        "IdentityN",
        "Reshape",
        "Transpose",
        "Pack",
        "Unpack",
        "Split",
        "ConcatV2",
        "StridedSlice",
        "Cast",
    ):
        return "movement"
    return "output" if op.startswith("Assign") or op.startswith("ResourceApply") else "elementwise"


def text(drawn: Drawn) -> str:
    """Returns a sentence on what the picture shows."""
    left_out = f" {drawn.hidden} edges that lead back to an earlier box aren't drawn." if drawn.hidden else ""
    return escape(
        f"{drawn.nodes} nodes in {drawn.boxes} boxes, one for each scope of names; at most {MOST} boxes. "
        f"Constants aren't drawn.{left_out}"
    )
