"""Spells out ops that XLA computes wrongly where a size is known only at run time, in ops that it computes correctly.

XLA has memory for the largest size, and counts how much of it is used. It miscounts, or takes values beyond the end, in:

- Cumulative sums, products, and logarithms along such an axis, which are windows with padding.
- Slices that count from the end, or that begin after it: `x[:, -1]`, `x[:, :-2]`, `x[:, 1:n]`; and splits.
- `OnesLike`, which has the largest size.
- `Range` of a first number that isn't known, and mirrors and diagonals of such an axis.
- `AvgPool` with padding `SAME` at every value, which divides by the size of windows in the largest image.

All of these are ops that TensorFlow computes in the same way at any size. What has no such form is refused by
`compile/open_sizes.py`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, types_pb2
from tensorflow.python.framework import function_def_to_graph, tensor_util

from tfaot.graph.calls import inline_calls
from tfaot.graph.functions import EditableFunction
from tfaot.graph.ops import OPEN_SIZE
from tfaot.graph.program import Program, Tensor
from tfaot.graph.splice import Build, FunctionTarget, GraphTarget, Target, splice

_BATCH = 7
"""The batch for which shapes are inferred, so that an unknown size isn't the batch."""

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})

_V1_LOOPS = frozenset({"Enter", "RefEnter"})


def spell_out(graph: graph_pb2.GraphDef, feeds: Sequence[str], fetches: Sequence[str]) -> dict[str, str]:
    """Rewrites a graph and its functions in place. Nodes keep their names.

    Calls that pass on values of such a size are inlined, because XLA forgets the true size where it compiles a call.

    It leaves graphs with TensorFlow 1's loops as they are, into which constants can't be put.

    Args:
      graph: a pruned graph, whose placeholders have the shapes that are known. An open first dimension of one is the batch.
      feeds: the tensors of the inputs.
      fetches: the tensors of the outputs.

    Returns:
      For each node that was inlined, `function/node`.
    """
    nodes = [node for body in (graph.node, *(f.node_def for f in graph.library.function)) for node in body]
    ops = {node.op for node in nodes}
    if not ops & (_BUILDERS.keys() | _CALLS) or ops & _V1_LOOPS:
        return {}
    origins: dict[str, str] = {}
    built = _imported(graph)
    if built is not None and any(
        operation.type in _CALLS and any(_is_open(tensor) for tensor in operation.inputs)
        for operation in built.get_operations()
    ):
        unknown = Tensor(None, types_pb2.DT_INVALID)
        program = Program(graph_pb2.GraphDef(), dict.fromkeys(feeds, unknown), [*fetches])
        program.graph.CopyFrom(graph)
        program.prune()
        inline_calls(program)
        graph.CopyFrom(program.graph)
        origins = program.origins
        built = _imported(graph)
    if built is None:
        return origins
    with built.as_default():
        library = {function.signature.name: function for function in graph.library.function}
        for function in graph.library.function:
            if any(node.op in _BUILDERS for node in function.node_def):
                body = EditableFunction(function, library)
                if _spell(FunctionTarget(body), function_def_to_graph.function_def_to_graph(function)):
                    body.write(function)
    program = Program(graph_pb2.GraphDef(), {}, ())
    program.graph.CopyFrom(graph)
    if _spell(GraphTarget(program), built):
        graph.CopyFrom(program.graph)
    return origins


def _imported(graph: graph_pb2.GraphDef) -> Any:
    """Infers shapes, for a batch of some size if that is possible. None if the graph isn't valid, as a later step says."""
    sized = graph_pb2.GraphDef()
    sized.CopyFrom(graph)
    for node in sized.node:
        if node.op == "Placeholder" and node.attr["shape"].shape.dim and node.attr["shape"].shape.dim[0].size < 0:
            node.attr["shape"].shape.dim[0].size = _BATCH
    for imported in (sized, graph):
        with tf.Graph().as_default() as built, contextlib.suppress(ValueError):
            tf.import_graph_def(imported, name="")
            return built
    return None


def _is_open(tensor: Any) -> bool:
    closed = tensor.dtype in (tf.resource, tf.variant) or tensor.shape.is_fully_defined()
    return not closed


def _spell(target: Target, built: Any) -> int:
    count = 0
    for node in [*target.nodes()]:
        if node.op in _BUILDERS and OPEN_SIZE not in node.attr:
            operation = built.get_operation_by_name(node.name)
            if build := _BUILDERS[node.op](operation):
                # What is built is for all sizes, also those of other batches.
                specs = [tf.TensorSpec([None] * operand.shape.rank, operand.dtype) for operand in operation.inputs]
                splice(target, node, specs, build)
                count += 1
    return count


def _cumulative(operation: Any) -> Build | None:
    """Sums over those of all values that come before, with a mask."""
    axis = tensor_util.constant_value(operation.inputs[1])
    rank = operation.inputs[0].shape.rank
    if axis is None or rank is None:
        return None
    axis = int(axis) % rank
    if operation.inputs[0].shape[axis] is not None:
        return None
    exclusive, reverse = (operation.get_attr(key) for key in ("exclusive", "reverse"))
    reduce, neutral = _REDUCTIONS[operation.type]
    last = [*(other for other in range(rank) if other != axis), axis]
    back = [*range(axis), rank - 1, *range(axis, rank - 1)]

    def build(values: Any, _: Any) -> Any:
        values = tf.transpose(values, last)
        one = tf.reduce_any(tf.zeros_like(values, tf.bool), [*range(rank - 1)])
        every = tf.cast(tf.logical_not(one[:, None] | one), tf.int32)
        before = tf.linalg.band_part(every, 0 if reverse else -1, -1 if reverse else 0)
        if exclusive:
            before -= tf.linalg.band_part(every, 0, 0)
        terms = tf.where(before > 0, values[..., None, :], tf.constant(neutral, values.dtype))
        return tf.transpose(reduce(terms, -1), back)

    return build


_REDUCTIONS: Mapping[str, tuple[Callable[..., Any], float]] = {
    "Cumprod": (tf.reduce_prod, 1),
    "Cumsum": (tf.reduce_sum, 0),
    "CumulativeLogsumexp": (tf.reduce_logsumexp, -math.inf),
}
"""What each op does with all values, and a value that doesn't change its result."""


@dataclasses.dataclass(frozen=True)
class _Cut:
    """What a slice takes from an axis."""

    first: int
    last: int | None
    """None for everything after `first`, or for a size that is known only at run time."""
    place: int
    """Where the slice's operands have it."""
    kind: str
    """`index`, `slice`, or `new` for an axis that isn't the operand's."""
    open: bool
    """Whether XLA computes it wrongly."""
    to_end: bool
    step: int = 1
    """A negative one takes the axis reversed, and `first` and `last` count there."""
    size: bool = False
    """Whether it ends at a dimension's size, which XLA knows a bound of."""


def _slice(operation: Any) -> Build | None:
    """Cuts one end after another, each at a size that isn't negative."""
    cuts = _cuts(operation)
    if cuts is None or not any(cut.open for cut in cuts):
        return None

    def build(values: Any, _: Any, ends: Any, __: Any) -> Any:
        rest: list[Any] = []
        for axis, cut in enumerate(cut for cut in cuts if cut.kind != "new"):
            size = tf.shape(values)[axis]
            if cut.open and cut.kind == "index":
                values = tf.gather(values, (size + cut.first)[None], axis=axis)
            elif cut.open:
                values = tf.reverse(values, [axis]) if cut.step < 0 else values
                if not cut.to_end:
                    end = tf.cast(ends[cut.place], tf.int32)
                    last = (~end if cut.step < 0 else end) if cut.last is None else tf.constant(cut.last)
                    last = (
                        last
                        if cut.size or (cut.last is not None and cut.last >= 0)
                        else tf.where(last < 0, last + size, last)
                    )
                    values = _start(values, axis, tf.clip_by_value(last, 0, size))
                if cut.first or abs(cut.step) > 1:
                    first = tf.maximum(size + cut.first, 0) if cut.first < 0 else cut.first
                    values = _after(values, axis, first, abs(cut.step))
        for cut in cuts:
            if cut.kind == "new":
                rest.append(None)
            elif cut.kind == "index":
                rest.append(0 if cut.open else cut.first)
            elif cut.open:
                rest.append(slice(None))
            else:
                rest.append(_plain(cut))
        return values[tuple(rest)]

    return build


def _plain(cut: _Cut) -> slice:
    """Returns a slice as the model has it."""
    first, last = (
        ~position if position is not None and cut.step < 0 else position for position in (cut.first, cut.last)
    )
    return slice(first if cut.first else None, None if cut.to_end else last, cut.step)


def _start(values: Any, axis: int, size: Any) -> Any:
    """Returns the first values along an axis."""
    index = [slice(None)] * axis + [slice(None, size)]
    return values[tuple(index)]


def _after(values: Any, axis: int, first: Any, step: int = 1) -> Any:
    """Returns every value, or some, along an axis from one on."""
    size = tf.shape(values)[axis]
    kept = tf.maximum(size - first, 0)
    if isinstance(first, int) or step > 1:
        count = tf.raw_ops.Div(x=kept + (step - 1), y=step) if step > 1 else kept
        return tf.gather(values, tf.range(size)[:count] * step + first, axis=axis)
    return tf.reverse(_start(tf.reverse(values, [axis]), axis, kept), [axis])


def _part(operation: Any) -> Build | None:
    """Keeps sizes that only run time knows within the operand, as TensorFlow's kernel does by refusing others."""
    rank = operation.inputs[0].shape.rank
    if rank is None:
        return None
    begins, sizes = (_elements(tensor, rank) for tensor in operation.inputs[1:])
    shape = operation.inputs[0].shape
    late = {axis for axis, first in enumerate(begins) if first and shape[axis] is None}
    if None in begins or (None not in sizes and not late):
        return None

    def build(values: Any, _: Any, wanted: Any) -> Any:
        for axis, (first, size) in enumerate(zip(begins, sizes, strict=True)):
            assert first is not None
            if size is not None and size >= 0 and axis in late:
                values = tf.gather(values, tf.range(first, first + size), axis=axis)
                continue
            if size is None:
                last = first + tf.cast(wanted[axis], tf.int32)
                values = _start(values, axis, tf.clip_by_value(last, 0, tf.shape(values)[axis]))
            elif size >= 0:
                values = _start(values, axis, first + size)
            values = _after(values, axis, first) if first else values
        return values

    return build


def _split(operation: Any) -> Build | None:
    """Cuts parts of an open dimension, one behind another. XLA must know their sizes."""
    axis, shape = tensor_util.constant_value(operation.inputs[2]), operation.inputs[0].shape
    sizes = _elements(operation.inputs[1], len(operation.outputs))
    if axis is None or shape.rank is None:
        return None
    axis = int(axis) % shape.rank
    if shape[axis] is not None or (None not in sizes and -1 not in sizes):
        return None

    def build(values: Any, wanted: Any, _: Any) -> Any:
        wanted, size = tf.cast(wanted, tf.int32), tf.shape(values)[axis]
        rest = size - tf.reduce_sum(tf.maximum(wanted, 0))
        wanted = tf.clip_by_value(tf.where(wanted < 0, rest, wanted), 0, size)
        firsts = tf.unstack(tf.cumsum(wanted, exclusive=True), len(sizes))
        parts = zip(firsts, tf.unstack(wanted, len(sizes)), strict=True)
        return tuple(_start(_after(values, axis, first), axis, count) for first, count in parts)

    return build


def _cuts(operation: Any) -> list[_Cut] | None:
    """Reads a slice. Returns None if an axis begins where only run time knows."""
    shape, steps = operation.inputs[0].shape, tensor_util.constant_value(operation.inputs[3])
    if shape.rank is None or steps is None:
        return None
    begins, ends = (_elements(tensor, len(steps)) for tensor in operation.inputs[1:3])
    masks = {key: operation.get_attr(f"{key}_mask") for key in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}

    def has(key: str, place: int) -> bool:
        return bool(masks[key] >> place & 1)

    own = [place for place in range(len(steps)) if not has("ellipsis", place) and not has("new_axis", place)]
    whole = _Cut(0, None, 0, "slice", False, True)
    cuts: list[_Cut] = []
    axis = 0
    for place, step in enumerate(steps):
        if has("ellipsis", place):
            count = shape.rank - len(own)
            cuts += [whole] * count
            axis += count
            continue
        if has("new_axis", place):
            cuts.append(dataclasses.replace(whole, kind="new"))
            continue
        first = 0 if has("begin", place) and not has("shrink_axis", place) else begins[place]
        if first is None:
            return None
        unknown = shape[axis] is None
        if has("shrink_axis", place):
            cuts.append(_Cut(first, None, place, "index", unknown and first < 0, False))
        else:
            last, to_end = ends[place], has("end", place)
            if step < 0:
                first = first if has("begin", place) else ~first
                last = None if last is None else ~last
            fixed = to_end or last is not None
            begins_late = step != 1 or first != 0
            wrong = not fixed or (unknown and (begins_late or (last is not None and not to_end and last < 0)))
            size = step > 0 and last is None and _is_size(operation.inputs[2], place)
            cuts.append(_Cut(first, last, place, "slice", wrong, to_end, int(step), size))
        axis += 1
    return cuts + [whole] * (shape.rank - axis)


def _is_size(vector: Any, place: int) -> bool:
    """Returns whether an element of a vector is the size of a dimension."""
    operation = vector.op
    if operation.type == "Pack":
        operation = operation.inputs[place].op
    while operation.type in ("Cast", "Identity", "StridedSlice"):
        operation = operation.inputs[0].op
    return bool(operation.type == "Shape")


def _elements(vector: Any, count: int) -> list[int | None]:
    """Returns the values of a vector, and None for those that only run time knows."""
    value = tensor_util.constant_value(vector, partial=True)
    return (
        [None] * count if value is None else [None if element is None else int(element) for element in value.tolist()]
    )


def _ones(operation: Any) -> Build | None:
    """Fills the operand's shape. Of `OnesLike`, XLA forgets the true size."""
    if operation.inputs[0].shape.is_fully_defined():
        return None
    return lambda values: tf.fill(tf.shape(values), tf.ones([], values.dtype))


def _average(operation: Any) -> Build | None:
    """Divides by the average of ones, which is the part of a window that has values."""
    keys = ("ksize", "strides", "padding", "data_format")
    attributes = {key: operation.get_attr(key) for key in keys}
    axes = zip(operation.inputs[0].shape, attributes["ksize"], attributes["strides"], strict=False)
    if attributes["padding"] != b"SAME" or not any(size is None and k > 1 and step == 1 for size, k, step in axes):
        return None

    def build(values: Any) -> Any:
        ones = tf.fill(tf.shape(values), tf.ones([], values.dtype))
        part = tf.raw_ops.AvgPool(value=ones, **attributes)
        return tf.raw_ops.AvgPool(value=values, **attributes) / part

    return build


def _roll(operation: Any) -> Build | None:
    """Gathers, as XLA would roll the bound."""
    shape = operation.inputs[0].shape
    shifts, axes = (tensor_util.constant_value(operand) for operand in operation.inputs[1:])
    if shape.rank is None or shifts is None or axes is None:
        return None
    places = [(int(axis) % shape.rank, int(shift)) for axis, shift in np.broadcast(axes, shifts)]
    if all(shape[axis] is not None for axis, _ in places):
        return None

    def build(values: Any, _: Any, __: Any) -> Any:
        for axis, shift in places:
            size = tf.shape(values)[axis]
            values = tf.gather(values, tf.math.floormod(tf.range(size) - shift, size), axis=axis)
        return values

    return build


def _reversed_sequence(operation: Any) -> Build | None:
    """Gathers each row's first values in reverse."""
    shape, axes = operation.inputs[0].shape, [operation.get_attr(key) for key in ("batch_dim", "seq_dim")]
    if shape.rank is None or None not in (shape[axis] for axis in axes):
        return None
    order = [*axes, *(axis for axis in range(shape.rank) if axis not in axes)]

    def build(values: Any, sizes: Any) -> Any:
        values, sizes = tf.transpose(values, order), tf.cast(sizes, tf.int32)[:, None]
        places = tf.range(tf.shape(values)[1])[None]
        places = tf.where(places < sizes, sizes - 1 - places, places)
        return tf.transpose(tf.gather(values, places, axis=1, batch_dims=1), [*map(order.index, range(len(order)))])

    return build


def _mirrored(operation: Any) -> Build | None:
    """Gathers what a mirror shows."""
    shape, pads = operation.inputs[0].shape, tensor_util.constant_value(operation.inputs[1])
    if shape.rank is None or pads is None:
        return None
    edge = int(operation.get_attr("mode") == b"SYMMETRIC")
    places = [(axis, low, high) for axis, (low, high) in enumerate(pads.tolist()) if low or high]
    if all(shape[axis] is not None for axis, _, _ in places):
        return None

    def build(values: Any, _: Any) -> Any:
        for axis, low, high in places:
            size = tf.shape(values)[axis]
            index = tf.range(size + (low + high)) - low
            index = tf.where(index < 0, -index - edge, index)
            index = tf.where(index < size, index, 2 * (size - 1) + edge - index)
            values = tf.gather(values, index, axis=axis)
        return values

    return build


def _diagonal(operation: Any) -> Build | None:
    """Takes or makes a matrix's main diagonal with a comparison of rows and columns."""
    shape, takes = operation.inputs[0].shape, operation.type.startswith("MatrixDiagPart")
    offset = 0 if operation.type == "MatrixDiag" else tensor_util.constant_value(operation.inputs[1])
    sizes = [-1] if takes or operation.type == "MatrixDiag" else map(tensor_util.constant_value, operation.inputs[2:4])
    if (
        offset is None
        or np.any(offset)
        or any(size != -1 for size in sizes)
        or shape.rank is None
        or None not in shape[-2 if takes else -1 :]
    ):
        return None
    dtype = operation.inputs[0].dtype

    def build(values: Any, *options: Any) -> Any:
        size = tf.shape(values)[-1]
        sizes = [tf.shape(values)[-2] if takes else size, size]
        same = tf.equal(tf.range(sizes[0])[:, None], tf.range(sizes[1]))
        if not takes:
            return tf.where(same, values[..., None], tf.zeros([], dtype) if len(options) < 4 else options[3])
        if dtype == tf.bool:
            rows = tf.reduce_any(same & values, -1)
        else:
            rows = tf.reduce_sum(tf.where(same, values, tf.zeros([], dtype)), -1)
        return rows[..., : tf.minimum(sizes[0], sizes[1])]

    return build


def _range(operation: Any) -> Build | None:
    """Counts from 0. XLA counts from the bound of the first number."""
    first, last, step = map(tensor_util.constant_value, operation.inputs)
    dtype = operation.inputs[0].dtype
    if (first is not None and last is not None) or step is None or not dtype.is_integer or (first == 0 and step == 1):
        return None

    def build(first: Any, last: Any, _: Any) -> Any:
        size = tf.maximum(last - first if step > 0 else first - last, 0)
        size = size if abs(step) == 1 else tf.raw_ops.Div(x=size + (abs(step) - 1), y=abs(step))
        return first + tf.range(size) * step

    return build


_BUILDERS: Mapping[str, Callable[[Any], Build | None]] = {
    "AvgPool": _average,
    "Cumprod": _cumulative,
    "Cumsum": _cumulative,
    "CumulativeLogsumexp": _cumulative,
    "MatrixDiag": _diagonal,
    "MatrixDiagPartV2": _diagonal,
    "MatrixDiagPartV3": _diagonal,
    "MatrixDiagV2": _diagonal,
    "MatrixDiagV3": _diagonal,
    "MirrorPad": _mirrored,
    "OnesLike": _ones,
    "Range": _range,
    "ReverseSequence": _reversed_sequence,
    "Roll": _roll,
    "Slice": _part,
    "SplitV": _split,
    "StridedSlice": _slice,
}
"""For each op, the function that makes the replacement of an operation, or None if XLA computes it correctly."""
