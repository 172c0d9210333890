"""Finds the open sizes that TensorFlow accepts, so that a class refuses others instead of reading what isn't there."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tensorflow.core.framework import graph_pb2

from tfaot.export.traced import Dims, Function, Requirement
from tfaot.graph.calls import inline_calls
from tfaot.graph.program import Program, Tensor

_STEPS = 16
"""Up to which size each is tried, and up to which number as a divisor of a size."""


def required(function: Function, dims: Dims, sizes: Mapping[str, Sequence[int]]) -> Function:
    """Returns the function with the least of each size, and what the size must be a multiple of, as requirements.

    Windows without padding, the largest k values, fixed places, and reshapes have such limits. Only shapes are computed.

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

    def accepts(values: Mapping[str, int]) -> bool:
        for name, feed in feeds.items():
            shape = tuple(values.get(axes[name].get(axis, ""), size) for axis, size in enumerate(feed.shape or ()))
            program.feeds[name] = dataclasses.replace(feed, shape=None if feed.shape is None else shape)
        try:
            program.tensors()
        except ValueError:
            return False
        return True

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
        if least > 1:
            requirements.append(Requirement(f"{name} >= {least}", {name: 1}, -least))
        more = [step for step in range(1, _STEPS + 1) if least + step <= largest[name] and takes(least + step)]
        if more and (step := more[0]) > 1 and more == [*range(step, more[-1] + 1, step)]:
            text = f"{name} % {step} == {least % step}"
            requirements.append(Requirement(text, {name: 1}, -least, modulus=step))
    return dataclasses.replace(function, requirements=tuple(requirements))
