"""Converts dtypes at a model's edge that the compiler refuses there. Pure.

tfcompile accepts float16, bfloat16, and complex numbers inside a graph, but reports that feeds, fetches, and variables
with these dtypes have `no equivalent in C++`. So float16 and bfloat16 cross the edge as their bits, uint16, and complex
numbers as pairs of reals, in the layout of `std::complex`. `dtypes.DType.stored` lists which dtype crosses as which. A
bit cast costs nothing: XLA merges it into whatever reads or writes the value. XLA has no bit cast for complex numbers,
so these are split and reassembled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2

from tfaot.core import dtypes
from tfaot.core.errors import TfaotError
from tfaot.export.traced import Edge
from tfaot.graph.edits import Scope, become
from tfaot.graph.handles import Rewrite
from tfaot.graph.names import take, tensor_name


def stored(
    graph: graph_pb2.GraphDef, inputs: Sequence[Edge], outputs: Sequence[Edge]
) -> tuple[graph_pb2.GraphDef, tuple[Edge, ...], tuple[Edge, ...]]:
    """Makes inputs and outputs cross the edge as `dtypes.DType.stored`.

    Args:
      graph: the whole graph.
      inputs: Placeholders. Nodes that read one now read the node that converts it, which takes over its name.
      outputs: any tensors. They stay in the graph.

    Returns:
      A new graph, or the given one if all dtypes may cross as they are; and the edges in the given order. The edges
      still have the dtype and shape that the user sees, but the names of the feeds and fetches that the compiler and a
      session use. These have dtype `stored`, and a last dimension of 2 if they are complex.
    """
    if not any(_is_stored(edge.dtype) for edge in (*inputs, *outputs)):
        return graph, tuple(inputs), tuple(outputs)
    result = graph_pb2.GraphDef()
    result.CopyFrom(graph)
    scope = Scope(result.node)
    feeds = {tensor_name(edge.name)[0]: edge for edge in inputs if _is_stored(edge.dtype)}
    renamed: dict[str, str] = {}
    for node in list(result.node):
        edge = feeds.get(node.name)
        if edge is None:
            continue
        feed = scope.move(node, f"{node.name}/stored")
        feed.attr["dtype"].type = _stored_enum(edge.dtype)
        shape = feed.attr["shape"].shape
        if edge.shape is not None:
            shape.Clear()
            for size in edge.shape:
                shape.dim.add(size=-1 if size is None else size)
        _add_parts(shape, edge.dtype)
        _load(scope.output(feed, "output"), edge.dtype, node.name, scope).write(node)
        renamed[edge.name] = f"{feed.name}:0"
    for edge in outputs:
        if _is_stored(edge.dtype):
            fetch = _store(edge.name, edge.dtype, f"{tensor_name(edge.name)[0]}/stored", scope)
            renamed[edge.name] = f"{fetch.name}:0"

    def moved(edges: Sequence[Edge]) -> tuple[Edge, ...]:
        return tuple(dataclasses.replace(edge, name=renamed.get(edge.name, edge.name)) for edge in edges)

    return result, moved(inputs), moved(outputs)


def stored_variables(graph: graph_pb2.GraphDef, sources: Mapping[str, str], what: str) -> graph_pb2.GraphDef:
    """Makes variables cross the edge as `dtypes.DType.stored`: declared with that dtype, and converted where they are used.

    Args:
      graph: the whole graph. It is frozen already, so its variables are those that are fed.
      sources: `file:line` by node name, or `function/node` inside functions.
      what: names the model or its file, for messages.

    Returns:
      A new graph, or the given one if all dtypes may cross as they are. Variables keep their shared names.

    Raises:
      TfaotError: such a variable is used in an unsupported way.
    """
    bodies = [graph.node, *(function.node_def for function in graph.library.function)]
    if not any(node.op == "VarHandleOp" and _is_stored(node.attr["dtype"].type) for nodes in bodies for node in nodes):
        return graph
    result, refused = _Storing().apply(graph)
    if refused:
        raise TfaotError(
            f"{what}: {len(refused)} op(s) use float16, bfloat16, or complex variables in ways that a C++ library doesn't "
            "support",
            details="\n".join(use.shown(sources) for use in refused),
            exists="it stores the bits of such variables, which it can read, assign, add to, subtract from, and gather from",
            do="keep these variables in float32 or float64 and cast them where you read them, or freeze those that nothing "
            "writes",
        )
    return result


_CONVERTS = {"Bitcast": "type", "Pack": "T"}
"""The ops whose output `_store` returns, each with the attribute that contains its dtype."""


def with_size(graph: graph_pb2.GraphDef, edge: Edge, used: set[str]) -> tuple[graph_pb2.GraphDef, str]:
    """Adds a fetch for the true size of an output when the compiler knows only a bound.

    Args:
      graph: the whole graph.
      edge: an output that `stored` returned.
      used: names of all nodes. The new node's name is added.

    Returns:
      A new graph, and the fetch as `node:port`: int32[rank], the shape as the user sees it.
    """
    result = graph_pb2.GraphDef()
    result.CopyFrom(graph)
    node, _ = tensor_name(edge.name)
    value, dtype = edge.name, edge.dtype
    producer = next(producer for producer in graph.node if producer.name == node)
    if _is_stored(dtype) and producer.attr[_CONVERTS.get(producer.op, "T")].type == _stored_enum(dtype):
        dtype = _stored_enum(dtype)
        if producer.op == "Pack":
            value = producer.input[0]  # a pair has one dimension more than its parts
    name = take(f"{node}/size", used)
    shape = result.node.add(name=name, input=[value])
    become(shape, "Shape", {"T": dtype, "out_type": types_pb2.DT_INT32})
    return result, f"{name}:0"


def _is_stored(enum: int) -> bool:
    """Returns whether a dtype crosses the edge as another one."""
    dtype = dtypes.BY_ENUM.get(enum)
    return dtype is not None and dtype.stored != dtype.name


def _stored_enum(enum: int) -> int:
    return dtypes.BY_NAME[dtypes.BY_ENUM[enum].stored].enum


def _add_parts(shape: Any, enum: int) -> None:
    """Adds a dimension for a value's parts, if it has more than one."""
    parts = dtypes.BY_ENUM[enum].parts
    if parts > 1 and not shape.unknown_rank:
        shape.dim.add(size=parts)


@dataclasses.dataclass(frozen=True)
class _Conversion:
    """An op that doesn't have a node yet."""

    op: str
    inputs: tuple[str, ...]
    types: Mapping[str, int]
    output: str
    """The name of its only output."""

    def write(self, node: node_def_pb2.NodeDef) -> None:
        """Turns a node into this op."""
        node.ClearField("input")
        node.input.extend(self.inputs)
        become(node, self.op, self.types)

    def add(self, name: str, scope: Scope) -> str:
        """Adds a node for this op, and returns how others refer to its output."""
        return scope.output(scope.add(name, self.op, self.inputs, self.types), self.output)


def _load(bits: str, enum: int, name: str, scope: Scope) -> _Conversion:
    """Converts stored data to values. `name` is a prefix for additional nodes."""
    parts = _stored_enum(enum)
    if dtypes.BY_ENUM[enum].parts == 1:
        return _Conversion("Bitcast", (bits,), {"T": parts, "type": enum}, "output")
    pair = scope.add(f"{name}/parts", "Unpack", [bits], {"T": parts}, num=2, axis=-1)
    return _Conversion(
        "Complex", (scope.output(pair, "output", 0), scope.output(pair, "output", 1)), {"T": parts, "Tout": enum}, "out"
    )


def _store(value: str, enum: int, name: str, scope: Scope) -> node_def_pb2.NodeDef:
    """Adds nodes that convert values to stored data. Returns the last one; its output is called `output`."""
    parts = _stored_enum(enum)
    if dtypes.BY_ENUM[enum].parts == 1:
        return scope.add(name, "Bitcast", [value], {"T": enum, "type": parts})
    types = {"T": enum, "Tout": parts}
    pair = [scope.output(scope.add(f"{name}/{op.lower()}", op, [value], types), "output") for op in ("Real", "Imag")]
    return scope.add(name, "Pack", pair, {"T": parts}, N=2, axis=-1)


_OUTPUTS = {"ReadVariableOp": "value", "ResourceGather": "output"}
"""Ops that return a variable's value, each with the name of that output."""


class _Storing(Rewrite):
    """Replaces variables with ones of dtype `stored`, and adds conversions around the ops that use them."""

    def changes(self, handle: node_def_pb2.NodeDef) -> bool:
        return _is_stored(handle.attr["dtype"].type)

    def carried(self, dtype: int) -> int:
        return int(types_pb2.DT_RESOURCE)

    def declare(self, handle: node_def_pb2.NodeDef, scope: Scope) -> None:
        dtype = handle.attr["dtype"].type
        handle.attr["dtype"].type = _stored_enum(dtype)
        _add_parts(handle.attr["shape"].shape, dtype)

    def use(self, node: node_def_pb2.NodeDef, dtype: int, scope: Scope) -> bool:
        name = node.name
        if node.op in _OUTPUTS:
            before = _OUTPUTS[node.op]
            moved = scope.move(node, f"{name}/stored")
            moved.attr["dtype"].type = _stored_enum(dtype)
            conversion = _load(scope.output(moved, before), dtype, name, scope)
            conversion.write(node)
            scope.rename_output(node, before, conversion.output)
        elif node.op == "AssignVariableOp":
            node.input[1] = scope.output(_store(node.input[1], dtype, f"{name}/stored", scope), "output")
            node.attr["dtype"].type = _stored_enum(dtype)
        elif node.op in ("AssignAddVariableOp", "AssignSubVariableOp"):
            self._accumulate(node, dtype, scope)
        elif node.op == "ResourceGatherNd":
            # Gathers from the value, because XLA doesn't know ResourceGatherNd.
            handle, *others = node.input
            waits = [operand for operand in others if operand.startswith("^")]
            read = scope.add(f"{name}/read", "ReadVariableOp", [handle, *waits], {"dtype": _stored_enum(dtype)})
            node.input[0] = _load(scope.output(read, "value"), dtype, f"{name}/value", scope).add(
                f"{name}/value", scope
            )
            become(node, "GatherNd", {"Tparams": dtype, "Tindices": node.attr["Tindices"].type})
        elif node.op == "VariableShape":
            if dtypes.BY_ENUM[dtype].parts > 1:
                self._measure(node, dtype, scope)
        else:
            return node.op in ("VarIsInitializedOp", "DisableCopyOnRead")
        return True

    def _accumulate(self, node: node_def_pb2.NodeDef, dtype: int, scope: Scope) -> None:
        """Reads, adds or subtracts, and assigns, which TensorFlow and XLA do in one op."""
        name, bits = node.name, _stored_enum(dtype)
        handle, value, *waits = node.input
        # The value may come from an op that assigns the variable. The read must then come after that op.
        after_value = dict.fromkeys([*waits, *scope.wait_for(value)])
        read = scope.add(f"{name}/read", "ReadVariableOp", [handle, *after_value], {"dtype": bits})
        before = _load(scope.output(read, "value"), dtype, f"{name}/before", scope).add(f"{name}/before", scope)
        op = "AddV2" if node.op == "AssignAddVariableOp" else "Sub"
        after = scope.output(scope.add(f"{name}/after", op, [before, value], {"T": dtype}), "z")
        node.input[1] = scope.output(_store(after, dtype, f"{name}/stored", scope), "output")
        become(node, "AssignVariableOp", {"dtype": bits})

    def _measure(self, node: node_def_pb2.NodeDef, dtype: int, scope: Scope) -> None:
        """Takes the shape of one part, because the variable's own shape has one dimension more."""
        bits = _stored_enum(dtype)
        read = scope.add(f"{node.name}/read", "ReadVariableOp", node.input, {"dtype": bits})
        pair = scope.add(f"{node.name}/parts", "Unpack", [scope.output(read, "value")], {"T": bits}, num=2, axis=-1)
        out_type = node.attr["out_type"].type or types_pb2.DT_INT32
        node.ClearField("input")
        node.input.append(scope.output(pair, "output", 0))
        become(node, "Shape", {"T": bits, "out_type": out_type})
