"""Gives an entry point its open sizes as inputs, and cuts the inputs that have them to these sizes.

XLA has memory for the largest size, and counts how much of it is used. Whatever is behind the end of an input affects no result, so
results are those of TensorFlow for inputs of that size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2

from tfaot.core import caller
from tfaot.core.errors import TfaotError, listed
from tfaot.core.manifest import Axis, Requirement
from tfaot.export.traced import Dims, Edge, Function, shown
from tfaot.graph.attributes import attribute, type_attribute
from tfaot.graph.names import take, tensor_name
from tfaot.graph.ops import LEAST_SIZES, OPEN_SIZE


def opened(function: Function, dims: Dims, sizes: Mapping[str, Sequence[int]], what: str) -> Function:
    """Returns the function with the sizes as further inputs, and inputs that are cut to them.

    Args:
      function: an entry point, in whose inputs the sizes are open.
      dims: what the target says about dimensions.
      sizes: buckets, by the size's name. The inputs' shapes get the largest.
      what: names the model, for messages.

    Raises:
      TfaotError: no input has a size, or an input has its name.
    """
    if not sizes:
        return function
    named = {edge.name: dims.axes(edge) for edge in function.inputs}
    inputs = "; ".join(f"{edge.label} {shown(edge.shape)}" for edge in function.inputs)
    used = {name for axes in named.values() for name in axes.values()}
    if missing := [name for name in sizes if name not in used]:
        raise TfaotError(
            f"{what}: no input of {function.name} has the size {missing[0]}",
            exists=inputs or "no inputs",
            do=f"name it in {caller.option('dims')}, or compile {function.name} in a model of its own",
        )
    if taken_names := [edge.label for edge in function.inputs if edge.label in sizes]:
        raise TfaotError(
            f"{what}: {function.name} has an input called {taken_names[0]}, like the size",
            exists=inputs,
            do=f"give the size another name in {caller.option('dims')} and {caller.option('sizes')}",
        )
    largest = [buckets[-1] for buckets in sizes.values()]
    if broken := [own.text for own in requirements(function, [*sizes]) if not own.holds(largest)]:
        raise TfaotError(
            f"{what}: {function.name} requires {listed(broken)}",
            exists=f"largest sizes of {', '.join(f'{number} of {name}' for name, number in zip(sizes, largest, strict=True))}",
            do=f"list buckets in {caller.option('sizes')} whose largest ones fulfill it",
        )
    graph = graph_pb2.GraphDef()
    graph.CopyFrom(function.graph)
    taken = {node.name for node in graph.node}
    sources = dict(function.sources)
    least = {
        name: -own.constant
        for own in function.requirements
        for name, factor in own.factors.items()
        if factor == 1 and sum(map(abs, own.factors.values())) == 1 and not own.equal and not own.modulus
    }
    placeholders = {name: take(name, taken) for name in sizes}
    added = [node_def_pb2.NodeDef(name=name, op="Placeholder") for name in placeholders.values()]
    for placeholder in added:
        placeholder.attr["dtype"].type = types_pb2.DT_INT32
        placeholder.attr["shape"].shape.SetInParent()
    cut: dict[str, str] = {}
    for edge in function.inputs:
        if axes := named[edge.name]:
            node = tensor_name(edge.name)[0]
            nodes = _cut(edge, {dim: placeholders[name] for dim, name in axes.items()}, taken)
            lowest = [least.get(axes.get(dim, ""), 1) for dim in range(len(edge.shape or ()))]
            nodes[-1].attr[LEAST_SIZES].CopyFrom(attribute(lowest))
            added += nodes
            cut[node] = nodes[-1].name
            sources |= {made.name: edge.source for made in nodes if edge.source}
    for node in graph.node:
        for index, operand in enumerate(node.input):
            node.input[index] = cut.get(operand.removesuffix(":0"), operand)
    graph.node.extend(added)
    return dataclasses.replace(
        function,
        graph=graph,
        inputs=(
            *(_at(edge, named[edge.name], sizes) for edge in function.inputs),
            *(
                Edge(f"{placeholder}:0", name, types_pb2.DT_INT32, (), open_size=True)
                for name, placeholder in placeholders.items()
            ),
        ),
        sources=sources,
    )


def requirements(function: Function, names: Sequence[str]) -> tuple[Requirement, ...]:
    """Returns what a function requires of sizes, in the order of their names."""
    return tuple(
        Requirement(own.text, tuple(own.factors.get(name, 0) for name in names), own.constant, own.equal, own.modulus)
        for own in function.requirements
    )


def fixed(
    graph: graph_pb2.GraphDef, sizes: Mapping[str, int], shapes: Mapping[str, Mapping[int, int]]
) -> graph_pb2.GraphDef:
    """Returns the graph for sizes that are constants.

    Args:
      graph: the whole graph; stays unchanged.
      sizes: their values, by the inputs that are sizes.
      shapes: sizes of dimensions, by the inputs that have them.
    """
    result = graph_pb2.GraphDef()
    result.CopyFrom(graph)
    for node in result.node:
        if node.name in sizes:
            del node.attr["shape"]
            node.op = "Const"
            node.attr["value"].CopyFrom(attribute(np.array(sizes[node.name], np.int32)))
        for dim, size in shapes.get(node.name, {}).items():
            node.attr["shape"].shape.dim[dim].size = size
    return result


def _at(edge: Edge, axes: Mapping[int, str], sizes: Mapping[str, Sequence[int]]) -> Edge:
    names = [*sizes]
    shape = tuple(sizes[axes[dim]][-1] if dim in axes else size for dim, size in enumerate(edge.shape or ()))
    places = tuple(Axis(dim, names.index(name)) for dim, name in sorted(axes.items()))
    return dataclasses.replace(edge, shape=shape, axes=places)


def _cut(edge: Edge, axes: Mapping[int, str], taken: set[str]) -> list[node_def_pb2.NodeDef]:
    """Returns the nodes of `value[:, :size]`, given the sizes by dimension. The last one is the result."""
    source, rank = tensor_name(edge.name)[0], len(edge.shape or ())
    name = "_".join(dict.fromkeys(axes.values()))

    def node(op: str, operands: Sequence[str], **attributes: object) -> node_def_pb2.NodeDef:
        made = node_def_pb2.NodeDef(name=take(f"{source}/{name}", taken), op=op, input=operands)
        for key, value in attributes.items():
            made.attr[key].CopyFrom(attribute(value))
        return made

    int32 = type_attribute(types_pb2.DT_INT32)
    zero, zeros, ones = (
        node("Const", [], dtype=int32, value=np.array(value, np.int32)) for value in (0, [0] * rank, [1] * rank)
    )
    ends = [axes.get(axis, zero.name) for axis in range(rank)]
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
            **{OPEN_SIZE: name},
        ),
    ]
