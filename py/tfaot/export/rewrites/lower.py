"""Expresses ops that XLA lacks in terms of ops that it has. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import numpy as np
from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2

from tfaot.export.rewrites import decompositions
from tfaot.graph.attributes import numpy_dtype, type_attribute
from tfaot.graph.edits import Scope, replace, set_attributes
from tfaot.graph.names import producer
from tfaot.graph.ops import has_effects
from tfaot.graph.prune import reached

_NOTHING = frozenset({"DisableCopyOnRead"})
"""Ops that only specify how a variable is read."""
_PLACES = {"Slice": (1,), "StridedSlice": (1, 2)}
"""The operands that say where a slice is."""
_SIZES = frozenset({"Rank", "Shape", "ShapeN", "Size"})
"""Ops that don't use the values of their operands."""


def lowered(graph: graph_pb2.GraphDef, feeds: Collection[str]) -> graph_pb2.GraphDef:
    """Rewrites a graph in place, and returns it.

    - Nothing waits for a feed: it is there before the graph runs, and tfcompile refuses a control dependency on one.
    - `DisableCopyOnRead` becomes a NoOp.
    - `ResourceGatherNd` becomes a read and a `GatherNd`.
    - Places of slices that programs in StableHLO compute are clipped, so that XLA doesn't look for their values.
    - Functions lose the ops that nothing needs.
    - Fake quantization, and some gradients of complex functions, are spelled out, because XLA computes other numbers
    (`decompositions.py`).

    Args:
      graph: a pruned graph.
      feeds: the nodes of the inputs.
    """
    waits = {f"^{feed}" for feed in feeds}
    for node in graph.node:
        if not waits.isdisjoint(node.input):
            node.input[:] = [operand for operand in node.input if operand not in waits]
    _lower(Scope.graph(graph))
    for function in graph.library.function:
        _lower(Scope.function(function))
        _prune(function)
    decompositions.spell_out(graph)
    return graph


def _prune(function: function_pb2.FunctionDef) -> None:
    """Drops ops that no result and no side effect needs. TensorFlow never runs them, but XLA compiles them all.

    An example is the `tf.range` of a loop when AutoGraph uses only its limits.
    """
    nodes = {node.name: node for node in function.node_def}
    starts = [producer(operand) for operand in (*function.ret.values(), *function.control_ret.values())]
    needed = reached(nodes, [*starts, *(node.name for node in function.node_def if has_effects(node.op))])
    kept = [node for node in function.node_def if node.name in needed]
    if len(kept) < len(nodes):
        del function.node_def[:]
        function.node_def.extend(kept)


def _lower(scope: Scope) -> None:
    for node in list(scope.nodes):
        if node.op in _NOTHING:
            controls = [operand for operand in node.input if operand.startswith("^")]
            name = node.name
            node.Clear()
            node.name, node.op = name, "NoOp"
            node.input.extend(controls)
        elif node.op == "ResourceGatherNd":
            _gather(node, scope)
    _hide_places(scope)


def _hide_places(scope: Scope) -> None:
    """Clips the places of slices that a program in StableHLO computes, to all values of their type.

    XLA looks for constants among places. In such a program (`XlaCallModule`), it takes all results for one, and dies. It
    takes clipped values for unknown without a look at what computes them.
    """
    pending = [node.name for node in scope.nodes if node.op == "XlaCallModule"]
    users = defaultdict(list)
    for node in scope.nodes if pending else ():
        for operand in node.input:
            users[producer(operand)].append(node)
    computed = {*pending}
    while pending:
        new = [user.name for user in users[pending.pop()] if user.name not in computed and user.op not in _SIZES]
        computed.update(new)
        pending += new
    for node in list(scope.nodes):
        for position in _PLACES.get(node.op, ()):
            if producer(node.input[position]) in computed:
                _clip(node, position, scope)


def _clip(node: node_def_pb2.NodeDef, position: int, scope: Scope) -> None:
    index = node.attr["Index"].type
    dtype = numpy_dtype(index)
    limits = np.iinfo(dtype)
    bounds = []
    for name, value in (("least", limits.min), ("most", limits.max)):
        bound = scope.add(f"{node.name}/{name}", "Const", [], {"dtype": index})
        set_attributes(bound, {"value": np.array(value, dtype)})
        bounds.append(scope.output(bound, "output"))
    clip = scope.add(f"{node.name}/place", "ClipByValue", [node.input[position], *bounds], {"T": index})
    node.input[position] = scope.output(clip, "output")


def _gather(node: node_def_pb2.NodeDef, scope: Scope) -> None:
    handle, indices, *waits = node.input
    dtype, index = node.attr["dtype"].type, node.attr["Tindices"].type
    read = scope.add(f"{node.name}/read", "ReadVariableOp", [handle, *waits], {"dtype": dtype})
    attributes = {"Tparams": type_attribute(dtype), "Tindices": type_attribute(index)}
    replace(node, "GatherNd", [scope.output(read, "value"), indices], attributes)
