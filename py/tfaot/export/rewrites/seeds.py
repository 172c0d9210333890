"""Removes counters of random draws that nothing draws from.

A Keras 3 layer with dropout draws a seed on every call, and advances the counter in its `seed_generator_state`,
although only training uses the seed. Inference would then write a variable for nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection

from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.graph.names import tensor_name
from tfaot.graph.ops import has_effects

_COUNTER = re.compile(r"(^|/)seed_generator_state(_\d+)?$")
"""Keras' name for the state of a SeedGenerator. Other variables that are only written may be for the caller to read."""


def without_unused(graph: graph_pb2.GraphDef, fetches: Collection[str]) -> graph_pb2.GraphDef:
    """Removes Keras' seed counters whose value goes nowhere but into the counter itself.

    Args:
      graph: a pruned graph of all entry points. A counter that one of them draws from stays in all.
      fetches: names of nodes.

    Returns:
      A new graph, in which users of the removed nodes wait for what those waited for; the given one if there is no such counter.
    """
    users: dict[str, list[node_def_pb2.NodeDef]] = defaultdict(list)
    handles: dict[str, list[str]] = defaultdict(list)
    for node in graph.node:
        if node.op == "VarHandleOp" and _COUNTER.search(node.attr["shared_name"].s.decode()):
            handles[node.attr["shared_name"].s.decode()].append(node.name)
        for operand in node.input:
            if not operand.startswith("^"):
                users[tensor_name(operand)[0]].append(node)
    dropped: set[str] = set()
    for counter in handles.values():
        reached = dict.fromkeys(counter)
        queue = [*counter]
        while queue:
            for user in users[queue.pop()]:
                if user.name not in reached and not _assigns(user, counter):
                    queue.append(user.name)
                reached[user.name] = None
        inside = [node for node in graph.node if node.name in reached]
        if not reached.keys() & set(fetches) and all(_counts(node, counter) for node in inside):
            dropped |= reached.keys()
    if not dropped:
        return graph
    return _without(graph, dropped)


def _assigns(node: node_def_pb2.NodeDef, counter: Collection[str]) -> bool:
    return node.op == "AssignVariableOp" and tensor_name(node.input[0])[0] in counter


def _counts(node: node_def_pb2.NodeDef, counter: Collection[str]) -> bool:
    """Returns whether all that a node does with a counter is to provide, read, advance, or change it."""
    if node.op in ("VarHandleOp", "ReadVariableOp") or _assigns(node, counter):
        return True
    return not has_effects(node.op)


def _without(graph: graph_pb2.GraphDef, dropped: Collection[str]) -> graph_pb2.GraphDef:
    """Removes nodes whose results no other node takes. Nodes that waited for them wait for what they needed."""
    nodes = {node.name: node for node in graph.node}
    waits: dict[str, dict[str, None]] = {}

    def needed(name: str) -> dict[str, None]:
        if name not in waits:
            waits[name] = {}
            for operand in nodes[name].input:
                producer = tensor_name(operand)[0]
                waits[name] |= needed(producer) if producer in dropped else {f"^{producer}": None}
        return waits[name]

    result = graph_pb2.GraphDef(versions=graph.versions)
    result.library.CopyFrom(graph.library)
    for node in graph.node:
        if node.name in dropped:
            continue
        kept = result.node.add()
        kept.CopyFrom(node)
        if any(tensor_name(operand)[0] in dropped for operand in node.input):
            operands: dict[str, None] = {}
            for operand in node.input:
                name = tensor_name(operand)[0]
                operands |= needed(name) if name in dropped else {operand: None}
            del kept.input[:]
            kept.input.extend(operands)
    return result
