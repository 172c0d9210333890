"""Ops that XLA lacks, in terms of ops that it has. Pure."""

from __future__ import annotations

from collections.abc import Collection

from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2
from tensorflow.python.framework import op_def_registry

from tfaot.export.rewrites import spelled

_NOTHING = frozenset({"DisableCopyOnRead"})
"""Ops that only say how a variable is read."""


def lowered(graph: graph_pb2.GraphDef, feeds: Collection[str]) -> graph_pb2.GraphDef:
    """Rewrites a graph in place, and returns it.

    - Nothing waits for a feed: it is there before the graph runs, and tfcompile refuses a control dependency on one.
    - `DisableCopyOnRead` becomes a NoOp.
    - `ResourceGatherNd` becomes a read and a `GatherNd`.
    - In functions, what nothing needs is dropped.
    - Fake quantization, and some gradients of complex functions, are spelled out: XLA computes other numbers (`spelled.py`).

    Args:
      graph: pruned.
      feeds: nodes of the inputs.
    """
    waits = {f"^{feed}" for feed in feeds}
    for node in graph.node:
        if not waits.isdisjoint(node.input):
            node.input[:] = [operand for operand in node.input if operand not in waits]
    _lower(graph, "")
    for function in graph.library.function:
        _lower(function, ":value:0")
        _prune(function)
    spelled.spell_out(graph)
    return graph


def _prune(function: function_pb2.FunctionDef) -> None:
    """Drops ops that no result and no side effect needs: TensorFlow never runs them, but XLA compiles them all.

    Such is the `tf.range` of a loop, of which AutoGraph only takes the limits.
    """
    nodes = {node.name: node for node in function.node_def}
    called = [*function.ret.values(), *function.control_ret.values()]
    pending = [operand.partition(":")[0] for operand in called]
    pending += [node.name for node in function.node_def if _has_effects(node)]
    needed: set[str] = set()
    while pending:
        name = pending.pop()
        if name in needed or name not in nodes:  # an argument is no node
            continue
        needed.add(name)
        pending += [operand.removeprefix("^").partition(":")[0] for operand in nodes[name].input]
    if len(needed) < len(nodes):
        kept = [node for node in function.node_def if node.name in needed]
        del function.node_def[:]
        function.node_def.extend(kept)


def _has_effects(node: node_def_pb2.NodeDef) -> bool:
    """Whether an op may do more than give a result; so may a call, of which nothing is known here."""
    definition = op_def_registry.get(node.op)
    return definition is None or bool(definition.is_stateful)


def _lower(body: graph_pb2.GraphDef | function_pb2.FunctionDef, output: str) -> None:
    """`output` is how a body's edges name the output of a read."""
    nodes = body.node if isinstance(body, graph_pb2.GraphDef) else body.node_def
    used: set[str] | None = None
    for node in list(nodes):
        if node.op in _NOTHING:
            controls = [operand for operand in node.input if operand.startswith("^")]
            name = node.name
            node.Clear()
            node.name, node.op = name, "NoOp"
            node.input.extend(controls)
        elif node.op == "ResourceGatherNd":
            used = used if used is not None else {other.name for other in nodes}
            _gather(node, nodes.add(), output, used)


def _gather(node: node_def_pb2.NodeDef, read: node_def_pb2.NodeDef, output: str, used: set[str]) -> None:
    read.name, read.op = node.name + "/read", "ReadVariableOp"
    while read.name in used:
        read.name += "_"
    used.add(read.name)
    controls = [operand for operand in node.input if operand.startswith("^")]
    read.input.extend([node.input[0], *controls])
    read.attr["dtype"].CopyFrom(node.attr["dtype"])
    node.op = "GatherNd"
    node.input[0] = read.name + output
    node.attr["Tparams"].CopyFrom(node.attr["dtype"])
    for name in set(node.attr) - {"Tparams", "Tindices"}:
        del node.attr[name]
