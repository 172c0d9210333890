"""Draws a TensorFlow graph: a box for each scope of names, with the check's findings and the clusters in it. Pure."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from html import escape

from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.graph.names import producer

MOST = 40
"""The most boxes to draw, apart from inputs and outputs. Larger graphs have more nodes in a box."""

_OPS = 5
"""How many kinds of ops, and how many variables, a box names."""

_COLORS = {"blocker": "#f28b82", "needed": "#80deea", "hazard": "#fdd663", "input": "#ffe0b2", "output": "#ccff90"}
_CLUSTERS = ("#c8e6c9", "#bbdefb", "#fff9c4", "#e1bee7")


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A graph in Graphviz's language, and how much is in it."""

    dot: str
    boxes: int
    nodes: int


_Group = tuple[str, list[node_def_pb2.NodeDef]]


def draw(
    graph: graph_pb2.GraphDef, marks: Mapping[str, str], clusters: Mapping[str, int], outputs: Collection[str]
) -> Drawn:
    """Draws a graph.

    Args:
      graph: without constants' values, which aren't drawn.
      marks: `blocker`, `needed`, or `hazard` by node.
      clusters: the number of the cluster that each node is in; nodes in none aren't there.
      outputs: the nodes whose values are outputs.
    """
    variables = {node.name for node in graph.node if node.op in ("VarHandleOp", "VariableV2")}
    nodes = [node for node in graph.node if node.op not in ("Const", "NoOp") and node.name not in variables]
    edge = {node.name for node in nodes if node.op == "Placeholder" or node.name in outputs}
    groups = _groups([node for node in nodes if node.name not in edge])
    groups += [(node.name, [node]) for node in nodes if node.name in edge]
    place = {node.name: index for index, (_, members) in enumerate(groups) for node in members}
    edges = {
        (place[producer(operand)], index): None
        for index, (_, members) in enumerate(groups)
        for node in members
        for operand in node.input
        if place.get(producer(operand), index) != index and operand[0] != "^"
    }
    lines = ['digraph { node [shape=box style=filled fillcolor=white fontname="Helvetica"];']
    for index, (scope, members) in enumerate(groups):
        role = "" if members[0].name not in edge else "output" if members[0].name in outputs else "input"
        lines.append(f"n{index} {_box(scope, members, role, variables, marks, clusters)}")
    lines += [f"n{source} -> n{user};" for source, user in edges]
    return Drawn("\n".join([*lines, "}"]), len(groups), len(nodes))


def _groups(nodes: Sequence[node_def_pb2.NodeDef]) -> list[_Group]:
    """Groups nodes by scope: the outermost scopes first, and then, as long as there are few, the scopes in the largest.

    If a scope has too many scopes for a box each, neighbors share one.
    """
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


def _box(
    scope: str,
    members: Sequence[node_def_pb2.NodeDef],
    role: str,
    variables: Collection[str],
    marks: Mapping[str, str],
    clusters: Mapping[str, int],
) -> str:
    """Returns a node of the drawing: its title, its ops, the variables that they use, clusters, and findings."""
    title = members[0].name if len(members) == 1 else scope or "(no scope)"
    lines = [f"<b>{_text(title)}</b>"]
    lines.append(role or (members[0].op if len(members) == 1 else f"{len(members)} nodes"))
    color = _COLORS.get(role, "white")
    if len(members) > 1:
        ops = Counter(node.op for node in members)
        lines += [f"{_text(op)} ×{count}" if count > 1 else _text(op) for op, count in ops.most_common(_OPS)]
        lines += [f"… {len(ops) - _OPS} more ops"] if len(ops) > _OPS else []
    used = [name for node in members for name in map(producer, node.input) if name in variables]
    uses = [*dict.fromkeys(used)]
    lines += [f"<i>variable {_text(name)}</i>" for name in uses[:_OPS]]
    lines += [f"<i>… {len(uses) - _OPS} more variables</i>"] if len(uses) > _OPS else []
    inside = Counter(clusters[node.name] for node in members if node.name in clusters)
    for number, count in sorted(inside.items())[:3]:
        lines.append(f"cluster {number}: {count} of {len(members)} nodes")
        color = _CLUSTERS[number % len(_CLUSTERS)]
    for severity in ("hazard", "needed", "blocker"):
        marked = [node for node in members if marks.get(node.name) == severity]
        lines += [f"{severity}: {_text(node.op)}" for node in marked[:2]]
        lines += [f"{severity}: {len(marked) - 2} more"] if len(marked) > 2 else []
        color = _COLORS[severity] if marked else color
    names = "&#10;".join(escape(node.name) for node in members[:30]).replace("\\", "\\\\")
    return f'[label=<{"<br/>".join(lines)}> fillcolor="{color}" tooltip="{names}"];'


def _text(text: str) -> str:
    return escape(text if len(text) <= 44 else text[:22] + "…" + text[-21:])


def text(drawn: Drawn) -> str:
    """Returns a sentence on what the picture shows."""
    return (
        f"{drawn.nodes} nodes in {drawn.boxes} boxes: inputs, outputs, and at most {MOST} scopes of names. Constants aren't drawn, "
        "and variables are in the boxes that use them."
    )
