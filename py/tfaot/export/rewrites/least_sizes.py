"""Finds the open sizes that TensorFlow accepts, so that a class refuses others instead of reading what isn't there."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.python.framework import tensor_util

from tfaot.export.traced import Dims, Function, Requirement
from tfaot.graph.attributes import Array, Shape
from tfaot.graph.calls import inline_calls
from tfaot.graph.program import Program, Tensor

_STEPS = 16
"""Up to which size each is tried, and up to which number as a divisor of a size."""


def required(function: Function, dims: Dims, sizes: Mapping[str, Sequence[int]]) -> Function:
    """Returns the function with the least of each size, and what the size must be a multiple of, as requirements.

    Windows without padding, the largest k values, fixed places, and reshapes have such limits. Only shapes are computed, and
    constant indices.

    Args:
      function: an entry point. If it has requirements, its framework has found them.
      dims: what the target says about dimensions.
      sizes: buckets, by the size's name.
    """
    if not sizes or function.requirements:
        return function
    largest = {name: buckets[-1] for name, buckets in sizes.items()}
    smallest = dict.fromkeys(largest, 1)
    axes = {edge.name: dims.axes(edge) for edge in function.inputs}
    feeds = {edge.name: Tensor(edge.shape, edge.dtype) for edge in function.inputs}
    graph = graph_pb2.GraphDef()
    graph.CopyFrom(function.graph)
    program = Program(graph, feeds, [edge.name for edge in function.outputs])
    program.prune()
    inline_calls(program)

    taken = [*_taken(program)]

    def accepts(values: Mapping[str, int]) -> bool:
        for name, feed in feeds.items():
            shape = tuple(values.get(axes[name].get(axis, ""), size) for axis, size in enumerate(feed.shape or ()))
            program.feeds[name] = dataclasses.replace(feed, shape=None if feed.shape is None else shape)
        try:
            tensors = program.tensors()
        except ValueError:
            return False
        return all(_has(tensors[tensor].shape, places) for tensor, places in taken)

    if accepts(smallest) or not accepts(largest):  # later, an error says why TensorFlow refuses the largest
        return function
    requirements = []
    for name in sizes:

        def takes(size: int, name: str = name) -> bool:
            return accepts(largest | {name: size}) or accepts(smallest | {name: size})

        least = next((size for size in range(1, min(_STEPS, largest[name]) + 1) if takes(size)), 0)
        if not least:
            refused, least = _STEPS, largest[name]
            while least - refused > 1:
                middle = (refused + least) // 2
                refused, least = (refused, middle) if takes(middle) else (middle, least)
        # Smaller sizes that aren't among these, such as 2 where 3 is refused, are refused, too.
        accepted = [size for size in range(least, min(least + 2 * _STEPS, largest[name]) + 1) if takes(size)]
        steps = [later - size for size, later in itertools.pairwise(accepted)]
        while len(steps) > 1 and len({*steps}) > 1:
            del accepted[0], steps[0]
        least = accepted[0]
        if least > 1:
            requirements.append(Requirement(f"{name} >= {least}", {name: 1}, -least))
        if steps and (step := steps[0]) > 1:
            text = f"{name} % {step} == {least % step}"
            requirements.append(Requirement(text, {name: 1}, -least, modulus=step))
    return dataclasses.replace(function, requirements=tuple(requirements))


def _taken(program: Program) -> Iterator[tuple[str, Mapping[int, Array]]]:
    """Finds constant indices: for each tensor that they index, the places that are taken along its dimensions."""
    with tf.Graph().as_default() as built:
        fed = {
            name: tf.compat.v1.placeholder(feed.dtype, [None] * len(feed.shape or ()), name=f"tfaot_feed/{index}")
            for index, (name, feed) in enumerate(program.feeds.items())
        }
        tf.import_graph_def(program.graph, input_map=fed, name="")
        for operation in built.get_operations():
            if operation.type not in _INDEXED:
                continue
            indices = tensor_util.constant_value(operation.inputs[1])
            tensor, shape = operation.inputs[0].name, operation.inputs[0].shape
            if indices is None or not indices.size or shape.rank is None:
                continue
            if operation.type == "MirrorPad":
                edge = operation.get_attr("mode") == b"SYMMETRIC"
                yield tensor, {axis: pads - edge for axis, pads in enumerate(indices)}
            elif operation.type != "GatherV2":
                yield tensor, {axis: indices[..., axis] for axis in range(indices.shape[-1])}
            elif (axis := tensor_util.constant_value(operation.inputs[2])) is not None:
                yield tensor, {int(axis) % shape.rank: indices}


_INDEXED = frozenset(
    {
        "GatherNd",
        "GatherV2",
        "MirrorPad",
        "TensorScatterAdd",
        "TensorScatterMax",
        "TensorScatterMin",
        "TensorScatterSub",
    }
    | {"TensorScatterUpdate"}
)
"""Ops that take places of their first operand, which the second one has."""


def _has(shape: Shape, places: Mapping[int, Array]) -> bool:
    """Returns whether a tensor has all these places."""
    sizes = {axis: shape[axis] for axis in places} if shape is not None else {}
    return all(size is None or int(np.max(places[axis])) < size for axis, size in sizes.items())
