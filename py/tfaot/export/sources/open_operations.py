"""Operations of StableHLO on dimensions with open sizes, in TensorFlow's ops.

XLA has static windows. For open sizes, a cumulative sum is a window as large as its dimension, and padding can depend on the size.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfaot.export.sources import mlir
from tfaot.export.sources.mlir import MlirError, Statement

_AXES = re.compile(r"dim_numbers = \[([^\]]*)\]x\[(.*?)\]->\[(.*?)\]")
"""What each axis of a convolution's operands and result is."""
_OPERATION = re.compile(r"\bstablehlo\.(\w+) ")
_LOG_SUM = "subtract compare add maximum abs negate exponential log_plus_one add select"
"""The operations of `jnp.logaddexp`, in their order."""
_REDUCERS: Mapping[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (tf.reduce_sum, tf.add),
    "and": (tf.reduce_all, tf.logical_and),
    _LOG_SUM: (
        tf.reduce_logsumexp,
        lambda values, start: tf.reduce_logsumexp(tf.stack([values, start + tf.zeros_like(values)]), 0),
    ),
    "maximum": (tf.reduce_max, tf.maximum),
    "minimum": (tf.reduce_min, tf.minimum),
    "multiply": (tf.reduce_prod, tf.multiply),
    "or": (tf.reduce_any, tf.logical_or),
}
"""How to combine all values along an axis, and two values."""


@dataclasses.dataclass(frozen=True)
class Window:
    """A window along one dimension."""

    size: int
    stride: int
    before: int
    after: int
    dilation: int
    base: int
    values: int
    """The size of the operand."""
    results: int
    """The size of the result."""

    @property
    def cumulative(self) -> bool:
        """Whether each result has all values up to its own, or from its own on."""
        whole = self.size == self.values == self.results and self.stride == self.dilation == 1
        return whole and (self.before, self.after) in ((self.size - 1, 0), (0, self.size - 1))


def windows(statement: Statement) -> list[Window]:
    """Returns the windows of an operation."""
    head = statement.text.splitlines()[0]
    operand, result = statement.types[0][0].shape, statement.result_types[0].shape
    rank = len(result)

    def numbers(name: str) -> list[int]:
        match = re.search(rf"\b{name} = array<i64(?:: ([-\d, ]+))?>", head)
        return [int(number) for number in match[1].split(",")] if match and match[1] else [1] * rank

    padding = re.search(r"\bpadding = (dense<.*?> : tensor<\w+>)", head)
    pads = mlir.constant(padding[1]) if padding else np.zeros((rank, 2), np.int64)
    columns = (
        numbers("window_dimensions"),
        numbers("window_strides"),
        *pads.T.tolist(),
        numbers("window_dilations"),
        numbers("base_dilations"),
        operand,
        result,
    )
    return [Window(*(int(number or 0) for number in row)) for row in zip(*columns, strict=True)]


def reduced(
    statements: Sequence[Statement], values: Any, start: Any, made: Callable[[Sequence[int]], Any]
) -> Any | None:
    """Returns the result of a window as ops, or None if it isn't one that they compute.

    Args:
      statements: the operation, for each sample of the open sizes.
      values: the operand.
      start: the value that each result starts from.
      made: returns an integer that has these values for the samples.
    """
    reducer = _reducer(statements[0].text)
    if reducer not in _REDUCERS or len(statements[0].results) != 1:
        return None
    reduce, combine = _REDUCERS[reducer]
    neutral = _neutral(reducer, values.dtype)
    for axis, samples in enumerate(zip(*map(windows, statements), strict=True)):
        first = samples[0]
        if all(own == Window(1, 1, 0, 0, own.dilation, 1, own.values, own.values) for own in samples):
            continue
        if any(own.base != 1 for own in samples):
            return None
        if all(own.cumulative for own in samples) and any(own.size != first.size for own in samples):
            values = _cumulative(reducer, values, axis, reverse=first.after > 0)
            continue
        if any((own.size, own.stride, own.dilation) != (first.size, first.stride, first.dilation) for own in samples):
            raise MlirError("error: the size of a window depends on open sizes")
        size = tf.shape(values)[axis]
        steps = tf.range(_count(samples, size)) * first.stride - made([own.before for own in samples])
        places = steps[:, None] + tf.range(first.size) * first.dilation
        there = (places >= 0) & (places < size)
        taken = tf.gather(values, tf.clip_by_value(places, 0, size - 1), axis=axis)
        there = tf.reshape(there, [1] * axis + [-1, first.size] + [1] * (values.shape.rank - axis - 1))
        values = reduce(tf.where(there, taken, neutral), axis + 1)
    return combine(values, start)


def _reducer(text: str) -> str:
    """Returns the operations of a region."""
    lines = text.splitlines()[1:]
    return " ".join(
        match[1] for match in map(_OPERATION.search, lines) if match and match[1] not in ("constant", "return")
    )


def _count(samples: Sequence[Window], size: Any) -> Any:
    """Returns the number of results, in a form whose bound XLA knows."""
    first = samples[0]
    if all(own.results == -(-own.values // own.stride) for own in samples):
        return tf.truncatediv(size + first.stride - 1, first.stride)
    more = first.before + first.after - (first.size - 1) * first.dilation - 1
    if any(own.results != (own.values + more) // own.stride + 1 for own in samples):
        raise MlirError("error: the padding of a window depends on open sizes, and isn't SAME or VALID")
    return tf.truncatediv(size + more, first.stride) + 1


def _cumulative(reducer: str, values: Any, axis: int, *, reverse: bool) -> Any:
    if reducer in ("add", "multiply"):
        return (tf.cumsum if reducer == "add" else tf.math.cumprod)(values, axis, reverse=reverse)
    reduce, _ = _REDUCERS[reducer]
    rank = values.shape.rank
    last = [*(other for other in range(rank) if other != axis), axis]
    values = tf.transpose(values, last)
    places = tf.range(tf.shape(values)[-1])
    before = places >= places[:, None] if reverse else places <= places[:, None]
    terms = tf.where(before, values[..., None, :], _neutral(reducer, values.dtype))
    return tf.transpose(reduce(terms, -1), [*range(axis), rank - 1, *range(axis, rank - 1)])


def _neutral(reducer: str, dtype: Any) -> Any:
    """Returns the value that changes no result."""
    if dtype == tf.bool:
        return tf.constant(reducer == "and")
    if reducer in ("add", "multiply"):
        return tf.constant(int(reducer == "multiply"), dtype)
    sign = 1 if reducer == "minimum" else -1
    if dtype.is_floating:
        return tf.constant(sign * math.inf, dtype)
    return tf.constant(dtype.max if sign > 0 else dtype.min, dtype)


def scattered(statement: Statement, values: Any, indices: Any, updates: Any) -> Any | None:
    """Returns the result of a scatter as ops, or None if it isn't one that they compute. What is out of range changes nothing."""
    text = statement.text
    reducer = _reducer(text)
    added = re.search(r"^ *\^\w+\(%\S+: .*?, (%\w+): ", text, re.MULTILINE)
    sets = added is not None and not reducer and re.search(rf"stablehlo\.return {added[1]} :", text)
    if not sets and reducer not in _REDUCERS:
        return None
    inserted, windows_of, axes, batches, batches_of_indices = (
        _listed(text, name)
        for name in (
            "inserted_window_dims",
            "update_window_dims",
            "scatter_dims_to_operand_dims",
            "input_batching_dims",
            "scatter_indices_batching_dims",
        )
    )
    last = re.search(r"index_vector_dim = (\d+)", text)
    vector = int(last[1]) if last else 0
    if indices.shape.rank == 1 and vector == 0:
        return _placed(values, tf.unstack(indices), updates, inserted, axes, None if sets else reducer)
    if inserted != sorted(axes):
        return None
    places = tf.unstack(indices, axis=vector) if vector < indices.shape.rank else [indices]
    for batch in batches_of_indices:
        axis, like = batch - (batch > vector), places[0]
        own = tf.range(tf.shape(like)[axis], dtype=like.dtype)
        shape = [-1 if other == axis else 1 for other in range(like.shape.rank)]
        places.insert(batches_of_indices.index(batch), tf.zeros_like(like) + tf.reshape(own, shape))
    axes = [*batches, *axes]
    order = [*axes, *(other for other in range(values.shape.rank) if other not in axes)]
    updates = tf.transpose(updates, [*(d for d in range(updates.shape.rank) if d not in windows_of), *windows_of])
    rows = tf.transpose(values, order)
    sizes = [tf.cast(tf.shape(rows)[axis], places[0].dtype) for axis in range(len(axes))]
    inside = [(place >= 0) & (place < size) for place, size in zip(places, sizes, strict=True)]
    there = functools.reduce(tf.logical_and, inside)
    # One more row takes what is out of range.
    size = tf.shape(rows)[0]
    rows = tf.concat([rows, tf.zeros_like(rows[:1])], 0)
    places = [tf.where(there, place, sizes[0] if index == 0 else 0) for index, place in enumerate(places)]
    operation = {
        "": tf.tensor_scatter_nd_update,
        "add": tf.tensor_scatter_nd_add,
        "maximum": tf.tensor_scatter_nd_max,
        "minimum": tf.tensor_scatter_nd_min,
    }.get(reducer)
    if operation is None:
        return None
    rows = operation(rows, tf.stack(places, -1), updates)[:size]
    return tf.transpose(rows, [*map(order.index, range(len(order)))])


def _placed(
    values: Any, starts: Sequence[Any], updates: Any, inserted: Sequence[int], axes: Sequence[int], reducer: str | None
) -> Any:
    """Returns values with a single update at a place."""
    for axis in inserted:
        updates = tf.expand_dims(updates, axis)
    changed = tf.constant(value=True)
    for axis, start in zip(axes, starts, strict=True):
        size, count = tf.shape(values)[axis], tf.shape(updates)[axis]
        start = tf.cast(start, tf.int32)
        places = tf.range(size) - start
        there = (places >= 0) & (places < count) & (start >= 0) & (start + count <= size)
        updates = tf.gather(updates, tf.clip_by_value(places, 0, tf.maximum(count - 1, 0)), axis=axis)
        changed &= tf.reshape(there, [-1 if other == axis else 1 for other in range(values.shape.rank)])
    return tf.where(changed, updates if reducer is None else _REDUCERS[reducer][1](values, updates), values)


def _listed(text: str, name: str) -> list[int]:
    match = re.search(rf"\b{name} = \[([\d, ]*)\]", text)
    return [int(number) for number in match[1].split(",")] if match and match[1] else []


def sorted_(statement: Statement, operands: Sequence[Any]) -> list[Any] | None:
    """Returns the results of a stable sort by the first operand as ops, or None if it is another one."""
    text = statement.text
    arguments = re.search(r"^ *\^\w+\((.*)\):", text, re.MULTILINE)
    directions = re.findall(r"stablehlo\.compare +(LT|GT),", text)
    dimension = re.search(r"\bdimension = (\d+)", text)
    if arguments is None or dimension is None or len(directions) != 1:
        return None
    others = re.findall(rf"({mlir.VALUE}): tensor<", arguments[1])[2:]
    if any(re.search(rf"{re.escape(other)}\b", text[arguments.end() :]) for other in others):
        return None
    axis, key = int(dimension[1]), operands[0]
    direction = "ASCENDING" if directions[0] == "LT" else "DESCENDING"
    rank = key.shape.rank
    last = [*(other for other in range(rank) if other != axis), axis]
    back = [*range(axis), rank - 1, *range(axis, rank - 1)]
    key, *rest = (tf.transpose(operand, last) for operand in operands)
    ranks = _ranks(key, equal_zeros="stablehlo.select" in text) if key.dtype.is_floating else key
    order = tf.argsort(ranks, direction=direction, stable=True)
    return [tf.transpose(tf.gather(value, order, batch_dims=rank - 1), back) for value in (key, *rest)]


def _ranks(key: Any, *, equal_zeros: bool) -> Any:
    """Returns integers in the total order of floats, from the lowest NaN to the highest: TensorFlow's own sorts don't know NaN.

    Args:
      key: the floats.
      equal_zeros: whether 0 and -0 are equal, and all NaN the highest, as in `jax.lax.sort`, and not in `jax.lax.top_k`.
    """
    if key.dtype.size < 4:
        key = tf.cast(key, tf.float32)
    if equal_zeros:
        key = tf.where(tf.equal(key, 0), tf.zeros_like(key), key)
        key = tf.where(tf.math.is_nan(key), tf.constant(math.nan, key.dtype), key)
    bits = tf.bitcast(key, tf.int32 if key.dtype == tf.float32 else tf.int64)
    return tf.where(bits < 0, tf.bitwise.bitwise_xor(bits, bits.dtype.max), bits)


def convolution(statement: Statement, image: Any, kernel: Any) -> Any | None:
    """Returns a convolution in TensorFlow's own ops, or None if it sums groups of the batch, or a window has an open size."""
    text = statement.text
    match = _AXES.search(text)
    if match is None or re.search(r"batch_group_count = (?!1\b)", text) or None in kernel.shape:
        return None
    left, right, out = ([axis.strip() for axis in part.split(",")] for part in match.groups())
    count = len(left) - 2
    places = "012"[:count]

    def window(key: str, default: int) -> list[Any]:
        match = re.search(rf"\b{key} = (\[[-\d, \[\]a-z]*?\])(?:, [a-z]|}})", text)
        return json.loads(match[1]) if match else [default] * count

    image = tf.transpose(image, [left.index(axis) for axis in f"b{places}f"])
    kernel = tf.transpose(kernel, [right.index(axis) for axis in f"{places}io"])
    kernel = tf.reverse(kernel, [axis for axis, turned in enumerate(window("reverse", 0)) if turned])
    groups = re.search(r"feature_group_count = (\d+)", text)
    pads = []
    for axis, (step, (before, after)) in enumerate(
        zip(window("lhs_dilate", 1), [pair or (0, 0) for pair in window("pad", 0)], strict=True), 1
    ):
        image, after = _spread(image, axis, step), after - (step - 1)
        low, high = max(-before, 0), max(-after, 0)
        if low or high:
            size = image.shape[axis] if image.shape[axis] is not None else tf.shape(image)[axis]
            image = image[tuple([slice(None)] * axis + [slice(low, size - high)])]
        pads.append((max(before, 0), max(after, 0)))
    image = tf.pad(image, [(0, 0), *pads, (0, 0)])
    for axis, step in enumerate(window("rhs_dilate", 1)):
        size = kernel.shape[axis]
        kernel = _spread(kernel, axis, step)[tuple([slice(None)] * axis + [slice((size - 1) * step + 1)])]
    parts = int(groups[1]) if groups else 1
    pairs = zip(tf.split(image, parts, -1), tf.split(kernel, parts, -1), strict=True)
    result = tf.concat([tf.nn.convolution(part, taps, window("stride", 1), "VALID") for part, taps in pairs], -1)
    return tf.transpose(result, [f"b{places}f".index(axis) for axis in out])


def _spread(x: Any, axis: int, step: int) -> Any:
    """Inserts zeros behind each value along an axis."""
    if step == 1:
        return x
    size = x.shape[axis] if x.shape[axis] is not None else tf.shape(x)[axis]
    room = [(0, 0)] * (axis + 1) + [(0, step - 1)] + [(0, 0)] * (x.shape.rank - axis - 1)
    shape = [x.shape[other] if x.shape[other] is not None else tf.shape(x)[other] for other in range(x.shape.rank)]
    apart = tf.reshape(x, [*shape[: axis + 1], 1, *shape[axis + 1 :]])
    return tf.reshape(tf.pad(apart, room), [*shape[:axis], size * step, *shape[axis + 1 :]])


def by_value(operation: str, *operands: Any) -> Any | None:
    """Returns the result of an operation on each value that TensorFlow's converter doesn't have, or None if it isn't one."""
    if operation == "remainder":
        return tf.raw_ops.TruncateMod(x=operands[0], y=operands[1])
    if operation == "round_nearest_afz":
        (x,) = operands
        whole = tf.where(x < 0, tf.math.ceil(x), tf.math.floor(x))
        return tf.where(tf.abs(x - whole) >= 0.5, whole + tf.sign(x), whole)
    shift = {"shift_left": tf.bitwise.left_shift, "shift_right_arithmetic": tf.bitwise.right_shift}.get(operation)
    if shift is None:
        return None
    x, count = operands
    most = 8 * x.dtype.size - 1
    inside = (count >= 0) & (count <= most)
    if operation == "shift_left":
        return tf.where(inside, shift(x, tf.where(inside, count, 0)), tf.zeros_like(x))
    return shift(x, tf.where(inside, count, tf.constant(most, x.dtype)))
