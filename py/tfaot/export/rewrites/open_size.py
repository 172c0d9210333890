"""Gives an entry point its open size as an input, and cuts the inputs that have it to that size.

XLA has memory for the largest size, and counts how much of it is used. Whatever is behind the end of an input affects no result, so
results are those of TensorFlow for inputs of that size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2

from tfaot.core import caller
from tfaot.core.errors import TfaotError
from tfaot.export.traced import Dims, Edge, Function, shown
from tfaot.graph.attributes import attribute, type_attribute
from tfaot.graph.names import take, tensor_name
from tfaot.graph.ops import OPEN_SIZE


def opened(function: Function, dims: Dims, name: str, largest: int, what: str) -> Function:
    """Returns the function with one more input, the size, and inputs that are cut to it.

    Args:
      function: an entry point, in whose inputs the size is open.
      dims: what the target says about dimensions.
      name: the size's name.
      largest: its largest bucket, which the inputs' shapes get.
      what: names the model, for messages.

    Raises:
      TfaotError: no input has the size, or an input has its name.
    """
    axes = {edge.name: dims.axes(edge) for edge in function.inputs}
    inputs = [f"{edge.label} {shown(edge.shape)}" for edge in function.inputs]
    if not any(axes.values()):
        raise TfaotError(
            f"{what}: no input of {function.name} has the size {name}",
            exists="; ".join(inputs) or "no inputs",
            do=f"name it in {caller.option('dims')}, or compile {function.name} in a model of its own",
        )
    if name in {edge.label for edge in function.inputs}:
        raise TfaotError(
            f"{what}: {function.name} has an input called {name}, like the size",
            exists="; ".join(inputs),
            do=f"give the size another name in {caller.option('dims')} and {caller.option('sizes')}",
        )
    graph = graph_pb2.GraphDef()
    graph.CopyFrom(function.graph)
    taken = {node.name for node in graph.node}
    size = take(name, taken)
    sources = dict(function.sources)
    added = [node_def_pb2.NodeDef(name=size, op="Placeholder")]
    added[0].attr["dtype"].type = types_pb2.DT_INT32
    added[0].attr["shape"].shape.SetInParent()
    cut: dict[str, str] = {}
    for edge in function.inputs:
        if axes[edge.name]:
            node = tensor_name(edge.name)[0]
            nodes = _cut(edge, axes[edge.name], size, taken)
            added += nodes
            cut[node] = nodes[-1].name
            sources |= {each.name: edge.source for each in nodes if edge.source}
    for node in graph.node:
        for index, operand in enumerate(node.input):
            node.input[index] = cut.get(operand.removesuffix(":0"), operand)
    graph.node.extend(added)
    return dataclasses.replace(
        function,
        graph=graph,
        inputs=(
            *(_at(edge, axes[edge.name], largest) for edge in function.inputs),
            Edge(f"{size}:0", name, types_pb2.DT_INT32, (), open_size=True),
        ),
        sources=sources,
    )


def fixed(
    graph: graph_pb2.GraphDef, placeholder: str, size: int, inputs: Mapping[str, Sequence[int]]
) -> graph_pb2.GraphDef:
    """Returns the graph for one size, which is a constant.

    Args:
      graph: the whole graph; stays unchanged.
      placeholder: the input that is the size.
      size: its value.
      inputs: by the inputs that have it, where.
    """
    result = graph_pb2.GraphDef()
    result.CopyFrom(graph)
    for node in result.node:
        if node.name == placeholder:
            del node.attr["shape"]
            node.op = "Const"
            node.attr["value"].CopyFrom(attribute(np.array(size, np.int32)))
        for axis in inputs.get(node.name, ()):
            node.attr["shape"].shape.dim[axis].size = size
    return result


def _at(edge: Edge, axes: Sequence[int], largest: int) -> Edge:
    shape = tuple(largest if axis in axes else size for axis, size in enumerate(edge.shape or ()))
    return dataclasses.replace(edge, shape=shape, axes=tuple(axes))


def _cut(edge: Edge, axes: Sequence[int], size: str, taken: set[str]) -> list[node_def_pb2.NodeDef]:
    """Returns the nodes of `value[:, :size]`. The last one is the result."""
    source, rank = tensor_name(edge.name)[0], len(edge.shape or ())

    def node(op: str, operands: Sequence[str], **attributes: object) -> node_def_pb2.NodeDef:
        made = node_def_pb2.NodeDef(name=take(f"{source}/{size}", taken), op=op, input=operands)
        for key, value in attributes.items():
            made.attr[key].CopyFrom(attribute(value))
        return made

    int32 = type_attribute(types_pb2.DT_INT32)
    zero, zeros, ones = (
        node("Const", [], dtype=int32, value=np.array(value, np.int32)) for value in (0, [0] * rank, [1] * rank)
    )
    ends = [size if axis in axes else zero.name for axis in range(rank)]
    end = node("Pack", ends, N=rank, T=int32, axis=0)
    every = (1 << rank) - 1
    return [
        *(zero, zeros, ones, end),
        node(
            "StridedSlice",
            [source, zeros.name, end.name, ones.name],
            T=type_attribute(edge.dtype),
            Index=int32,
            begin_mask=every,
            end_mask=every & ~sum(1 << axis for axis in axes),
            ellipsis_mask=0,
            new_axis_mask=0,
            shrink_axis_mask=0,
            **{OPEN_SIZE: size},
        ),
    ]
