"""Finds the open sizes that TensorFlow accepts, so that a class refuses others instead of reading what isn't there."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import function_pb2, graph_pb2
from tensorflow.python.framework import function_def_to_graph, tensor_util

from tfaot.export.traced import Dims, Function, Requirement
from tfaot.graph.attributes import Array, Shape, shape_of
from tfaot.graph.calls import inline_calls
from tfaot.graph.ops import functions_of
from tfaot.graph.program import Program, Tensor

_Place = tuple[str, int, int]
"""An op, an operand of it, and an axis of that, counted from the last one."""

_STEPS = 16
"""Up to which size each is tried, and up to which number as a divisor of a size."""


def required(function: Function, dims: Dims, sizes: Mapping[str, Sequence[int]]) -> Function:
    """Returns the function with what its model requires of sizes.

    These are the least of each size, what it must be a multiple of, and how two sizes must differ. Windows without padding, the
    largest k values, fixed places, reshapes, and ops whose operands have an axis in common have such limits. So do operands that
    TensorFlow would repeat at size 1, but not at the largest: a class has one function for both. Where sizes depend on each other
    in other ways, larger ones are required than TensorFlow does. Only shapes are computed, and constant indices.

    Args:
      function: an entry point. If it has requirements, its framework has found them.
      dims: what the target says about dimensions.
      sizes: buckets, by the size's name.
    """
    if not sizes or function.requirements:
        return function
    largest = {name: buckets[-1] for name, buckets in sizes.items()}
    shapes = _Shapes(function, dims, largest)
    if not shapes.accepts(largest):  # later, an error says why TensorFlow refuses the largest
        return function
    requirements: list[Requirement] = []
    groups = {name: frozenset([name]) for name in sizes}
    alone = (name for name, size in largest.items() if size > 1 and not shapes.accepts(largest | {name: size - 1}))
    for first, second in itertools.combinations(alone, 2):
        if _differ_by_a_constant(shapes, largest, first, second):
            difference = largest[first] - largest[second]
            shift = f" {'+' if difference > 0 else '-'} {abs(difference)}" if difference else ""
            text = f"{first} == {second}{shift}"
            requirements.append(Requirement(text, {first: 1, second: -1}, -difference, equal=True))
            joined = groups[first] | groups[second]
            groups |= dict.fromkeys(joined, joined)
    smallest = {name: max(1, *(1 + largest[name] - largest[other] for other in groups[name])) for name in sizes}

    def moved(name: str, size: int) -> dict[str, int]:
        """Returns a size, and those that it says."""
        return {other: largest[other] - largest[name] + size for other in groups[name]}

    def require(name: str, least: int) -> None:
        if least > smallest[name]:
            requirements.append(Requirement(f"{name} >= {least}", {name: 1}, -least))
            smallest.update(moved(name, least))

    def least_fit() -> bool:
        """Returns whether TensorFlow takes the least sizes, together and where others are the largest."""
        return all(shapes.accepts(base | moved(name, smallest[name])) for base in (smallest, largest) for name in sizes)

    for name in sizes if not least_fit() else ():

        def takes(size: int, name: str = name) -> bool:
            own = moved(name, size)
            return min(own.values()) > 0 and any(shapes.accepts(base | own) for base in (largest, smallest))

        least = next((size for size in range(1, min(_STEPS, largest[name]) + 1) if takes(size)), 0)
        if not least:
            below, least = _STEPS, largest[name]
            while least - below > 1:
                middle = (below + least) // 2
                below, least = (below, middle) if takes(middle) else (middle, least)
        # Smaller sizes that aren't among these, such as 2 where 3 is refused, are refused, too.
        accepted = [size for size in range(least, min(least + 2 * _STEPS, largest[name]) + 1) if takes(size)]
        steps = [later - size for size, later in itertools.pairwise(accepted)]
        while len(steps) > 1 and len({*steps}) > 1:
            del accepted[0], steps[0]
        require(name, accepted[0])
        if steps and (step := steps[0]) > 1:
            text = f"{name} % {step} == {accepted[0] % step}"
            requirements.append(Requirement(text, {name: 1}, -accepted[0], modulus=step))
    for name, size in largest.items():
        if not least_fit():
            require(name, size)
    return dataclasses.replace(function, requirements=tuple(requirements))


def _differ_by_a_constant(shapes: _Shapes, largest: dict[str, int], first: str, second: str) -> bool:
    """Returns whether TensorFlow takes smaller ones of two sizes together, but neither alone."""
    for less in range(1, min(_STEPS, largest[first] - 1, largest[second] - 1) + 1):
        both = {name: largest[name] - less for name in (first, second)}
        if shapes.accepts(largest | both):
            return not any(shapes.accepts(largest | {name: both[name]}) for name in both)
    return False


class _Shapes:
    """The shapes of a function's tensors, for some sizes."""

    def __init__(self, function: Function, dims: Dims, largest: Mapping[str, int]) -> None:
        self._axes = {edge.name: dims.axes(edge) for edge in function.inputs}
        self._feeds = {edge.name: Tensor(edge.shape, edge.dtype) for edge in function.inputs}
        graph = graph_pb2.GraphDef()
        graph.CopyFrom(function.graph)
        self._program = Program(graph, dict(self._feeds), [edge.name for edge in function.outputs])
        self._program.prune()
        inline_calls(self._program)
        for body in self._program.graph.library.function:
            for argument in body.arg_attr.values():
                # Of any size; functions would have these instead of their operands' shapes.
                argument.attr.pop("_output_shapes", None)
        self._taken = [*_taken(self._program)]
        self._accepted: dict[tuple[int, ...], bool] = {}
        self._repeats = self._repeated(largest) or frozenset()

    def accepts(self, sizes: Mapping[str, int]) -> bool:
        """Returns whether TensorFlow takes these sizes, and repeats only values that it repeats at the largest ones."""
        key = tuple(sizes.values())
        if key not in self._accepted:
            repeated = self._repeated(sizes)
            self._accepted[key] = repeated is not None and repeated <= self._repeats
        return self._accepted[key]

    def _repeated(self, sizes: Mapping[str, int]) -> frozenset[_Place] | None:
        """Returns what is repeated for some sizes, or None if TensorFlow refuses them."""
        for name, feed in self._feeds.items():
            axes = self._axes[name]
            shape = tuple(sizes.get(axes.get(axis, ""), size) for axis, size in enumerate(feed.shape or ()))
            self._program.feeds[name] = dataclasses.replace(feed, shape=None if feed.shape is None else shape)
        with tf.Graph().as_default() as built:
            fed = {
                name: tf.compat.v1.placeholder(feed.dtype, feed.shape, name=f"tfaot_feed/{index}")
                for index, (name, feed) in enumerate(self._program.feeds.items())
            }
            library = {function.signature.name: function for function in self._program.graph.library.function}
            try:
                tf.import_graph_def(self._program.graph, input_map=fed, name="")
                repeated = frozenset(_repeated(built, library, ""))
            except ValueError:
                return None
            tensors = {name: built.get_tensor_by_name(name) for name, _ in self._taken}
            return (
                repeated if all(_has(shape_of(tensors[name].shape), places) for name, places in self._taken) else None
            )


def _repeated(graph: Any, library: Mapping[str, function_pb2.FunctionDef], path: str) -> Iterator[_Place]:
    """Yields what TensorFlow repeats in a graph, and in its branches and the first turns of its loops."""
    for operation in graph.get_operations():
        name = f"{path}/{operation.name}"
        if _REPEATING.fullmatch(operation.type):
            yield from ((name, *place) for place in _repeated_axes(operation))
        if not (kind := _BODIES.fullmatch(operation.type)):
            continue
        shapes = [tensor.shape for tensor in operation.inputs][kind[2] != "While" :]
        for key, function in functions_of(operation.node_def):
            body = function_def_to_graph.function_def_to_graph(library[function.name], input_shapes=shapes)
            with body.as_default():
                yield from _repeated(body, library, f"{name}/{key}")


def _repeated_axes(operation: Any) -> Iterator[tuple[int, int]]:
    """Yields the operands of an op, and their axes, counted from the last one, that TensorFlow repeats."""
    operands = [*operation.inputs]
    if operation.type == "BroadcastTo":
        operands = [operation.inputs[0], operation.outputs[0]]
    shapes = [shape_of(tensor.shape) for tensor in operands]
    if operation.type == "Einsum":
        labels = operation.get_attr("equation").decode().partition("->")[0].split(",")
        spans = [(len(one.partition("...")[0]), len(one.partition("...")[2])) for one in labels if "..." in one]
        shapes = [shape for shape, one in zip(shapes, labels, strict=True) if "..." in one]
        shapes = [
            shape and shape[first : len(shape) - last] for shape, (first, last) in zip(shapes, spans, strict=True)
        ]
    elif _OF_MATRICES.fullmatch(operation.type):
        shapes = [shape and shape[:-2] for shape in shapes]
    for axis in range(1, max((len(shape or ()) for shape in shapes), default=0) + 1):
        sizes = {index: shape[-axis] for index, shape in enumerate(shapes) if shape and len(shape) >= axis}
        if any(size not in (1, None) for size in sizes.values()):
            yield from ((index, axis) for index, size in sizes.items() if size == 1)


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


_BODIES = re.compile("(Stateless)?(While|If|Case)")

_OF_MATRICES = re.compile("BatchMatMul(V2|V3)?|MatrixTriangularSolve")
"""Ops that repeat values along all axes but the last two."""

_REPEATING = re.compile(
    f"{_OF_MATRICES.pattern}|Add(V2)?|Atan2|Bitwise(And|Or|Xor)|BroadcastTo|Complex|Div(NoNan)?|Einsum|(Not)?Equal|Floor(Div|Mod)"
    "|(Greater|Less)(Equal)?|Igamma(c|GradA)?|(Left|Right)Shift|Logical(And|Or)|Maximum|Minimum|Mod|Mul(NoNan)?|NextAfter"
    "|Polygamma|Pow|RandomGammaGrad|RealDiv|SelectV2|SoftmaxCrossEntropyWithLogits|SquaredDifference|Sub|Truncate(Div|Mod)"
    "|Xdivy|Xlog1py|Xlogy|Zeta"
)
"""Ops that repeat values along an axis in which one operand has the size 1, and another one a different size."""

_INDEXED = frozenset(
    {
        "GatherNd",
        "GatherV2",
        "MirrorPad",
        "TensorScatterAdd",
        "TensorScatterMax",
        "TensorScatterMin",
        "TensorScatterSub",
        "TensorScatterUpdate",
    }
)
"""Ops that take places of their first operand, which the second one has."""


def _has(shape: Shape, places: Mapping[int, Array]) -> bool:
    """Returns whether a tensor has all these places."""
    sizes = {axis: shape[axis] for axis in places} if shape is not None else {}
    return all(size is None or int(np.max(places[axis])) < size for axis, size in sizes.items())
