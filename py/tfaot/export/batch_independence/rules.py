"""The rule for each operation, which decides what its result depends on. Pure.

A rule gets a step without MIXED operands, whose instructions differ between the programs only in sizes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from tfaot.export.batch_independence.hlo import SIZES
from tfaot.export.batch_independence.step import Step
from tfaot.export.batch_independence.values import BATCHED, COUNTS, FREE, PLACE, TOGETHER, Kind, Value, layout, leaves

_ELEMENTWISE = frozenset(
    (  # noqa: SIM905
        "abs acos acosh add and asin asinh atan2 atanh cbrt ceil clamp compare complex convert copy cosh cosine "
        "count-leading-zeros divide erf exponential exponential-minus-one floor imag is-finite log log-plus-one "
        "logistic map maximum minimum multiply negate not or popcnt power real reduce-precision remainder "
        "round-nearest-afz round-nearest-even rsqrt select shift-left shift-right-arithmetic shift-right-logical sign "
        "sine sinh sqrt subtract tan tanh xor"
    ).split(" ")
)
"""Elementwise operations: each element of the result depends on the same element of the operands, or on scalars."""


def _elementwise(step: Step) -> Value:
    values = [step.value(i) for i in range(len(step.operands))]
    if step.one.opcode in ("copy", "convert"):
        return dataclasses.replace(values[0], constant=None)
    if step.one.opcode == "add" and len(values) == 2:
        for a, b in (values, values[::-1]):
            if a.same is not None and a.kind is Kind.COUNTER and b.constant == ((1,), (1,)):
                return Value(Kind.PLACE, next=a.same)
    return step.together(values)


def _bits(step: Step) -> Value:
    """Lets only the last dimension appear or disappear."""
    return _along(lambda step: [_rank(step) - 1])(step) if step.operand_shape(0) != step.shape else step.value(0)


def _constant(step: Step) -> Value:
    if step.one.type == step.other.type:
        return FREE if step.one.attributes.literal == step.other.attributes.literal else Value(Kind.SIZE)
    batch, arrays = step.batch, [step.one.literal, step.other.literal]
    if batch is None or isinstance(batch, bool) or arrays[0] is None or arrays[1] is None:
        return step.mixed(COUNTS)
    axis, width = batch
    rows = [
        np.moveaxis(array, axis, 0).reshape(size, width, -1)
        for array, size in zip(arrays, SIZES, strict=True)
        if array is not None
    ]
    first = rows[0][0]
    if all((row == first).all() for array in rows for row in array):
        return Value(Kind.ROWS, axis, width)
    if width == 1 and all((array[:, 0] == np.arange(len(array))[:, None]).all() for array in rows):
        return Value(Kind.INDEX, axis)
    return step.mixed(PLACE)


def _iota(step: Step) -> Value:
    dimension = step.one.dimensions[0] if step.one.dimensions else 0
    batch = step.batch
    if batch is None:
        return FREE
    if isinstance(batch, bool):
        return step.mixed(PLACE)
    axis, width = batch
    if dimension != axis:
        return Value(Kind.ROWS, axis, width)
    return Value(Kind.INDEX, axis) if width == 1 else step.mixed(PLACE)


def _reshape(step: Step) -> Value:
    value = step.value(0)
    if value.kind not in BATCHED:
        same = step.operand_shape(0) == step.shape
        return value if same else dataclasses.replace(step.without_batch(value), same=None, next=None, filled=None)
    batch = step.batch
    if batch is None or isinstance(batch, bool):
        return step.mixed(TOGETHER)
    before, after = step.operand_shape(0), step.shape
    if before == after:
        return value
    axis, width = batch
    # Dimensions are ordered. If as many elements come before the rows as before, each row keeps its own places.
    outer, rest = divmod(math.prod(before[: value.axis]) * value.outer, math.prod(after[:axis]))
    if rest or width % max(outer, 1) or not outer:
        return step.mixed(TOGETHER)
    if value.kind is Kind.COLUMNS:
        return step.mixed(PLACE)
    return Value(value.kind, axis, width // outer, outer)


def _transpose(step: Step) -> Value:
    value = step.value(0)
    if value.kind not in BATCHED:
        return value
    order = list(step.one.dimensions)
    columns = (order.index(value.columns[0]), value.columns[1]) if value.kind is Kind.COLUMNS else (0, frozenset())
    return Value(value.kind, order.index(value.axis), value.width, value.outer, columns=columns)


def _broadcast(step: Step) -> Value:
    value = step.value(0)
    if value.kind not in BATCHED:
        return dataclasses.replace(step.without_batch(value), constant=None, same=None, next=None, filled=None)
    if value.kind is Kind.COLUMNS:
        return step.mixed(PLACE)
    return Value(value.kind, step.one.dimensions[value.axis], value.width, value.outer)


def _slice(step: Step) -> Value:
    value = step.value(0)
    cuts = [[(d.start, d.limit, d.stride) for d in i.attributes.slice_dimensions] for i in (step.one, step.other)]
    if value.kind not in BATCHED:
        if cuts[0] == cuts[1]:
            return dataclasses.replace(value, constant=None, same=None, next=None, filled=None)
        return step.mixed(PLACE)
    others = [[cut for axis, cut in enumerate(part) if axis != value.axis] for part in cuts]
    whole = [(0, size[value.axis], 1) for size in (step.operand_shape(0), step.second_shape)]
    if others[0] != others[1] or [part[value.axis] for part in cuts] != whole:
        return step.mixed(PLACE)
    if value.kind is Kind.COLUMNS:
        return step.mixed(PLACE)
    return value


def _concatenate(step: Step) -> Value:
    values = [step.value(i) for i in range(len(step.operands))]
    dimension = step.one.dimensions[0]
    rows = [value for value in values if value.kind in BATCHED]
    if not rows:
        return step.without_batch(step.together(values))
    if len({layout(value) for value in values}) > 1 or rows[0].axis == dimension:
        return step.mixed(TOGETHER)
    if any(value.kind in (Kind.INDEX, Kind.COLUMNS) for value in values):
        numbered: set[int] = set()
        place = 0
        for index, value in enumerate(values):
            size = step.operand_shape(index)[dimension]
            if value.kind is Kind.INDEX:
                numbered.update(range(place, place + size))
            elif value.kind is Kind.COLUMNS:
                if value.columns[0] != dimension:
                    return step.mixed(PLACE)
                numbered.update(place + column for column in value.columns[1])
            place += size
        return Value(Kind.COLUMNS, *layout(rows[0]), columns=(dimension, frozenset(numbered)))
    return step.together(values)


def _pad(step: Step) -> Value:
    value, padding = step.value(0), step.value(1)
    if value.kind not in BATCHED:
        return step.without_batch(step.together([value, padding]))
    edge = step.one.attributes.padding_config.dimensions[value.axis]
    if edge.edge_padding_low or edge.edge_padding_high or edge.interior_padding:
        return step.mixed(TOGETHER)
    return step.together([value, padding])


def _along(axes: Callable[[Step], Iterable[int]]) -> Callable[[Step], Value]:
    """Makes a rule for operations that combine elements only along some dimensions of the result."""

    def rule(step: Step) -> Value:
        values = [leaf for operand in step.operands for leaf in leaves(operand)]
        value = step.together(values)
        if value.kind in BATCHED and value.axis in axes(step):
            return step.mixed(TOGETHER if step.one.opcode != "reverse" else PLACE)
        return value

    return rule


def _rank(step: Step) -> int:
    shape = step.one.type
    return len((shape.parts[0] if shape.parts else shape).dims)


def _reduce(step: Step) -> Value:
    value = step.together([leaf for operand in step.operands for leaf in leaves(operand)])
    if value.kind not in BATCHED:
        return value
    gone = set(step.one.dimensions)
    if value.axis in gone:
        return step.mixed(TOGETHER)
    return Value(value.kind, value.axis - sum(axis < value.axis for axis in gone), value.width, value.outer)


def _windowed(step: Step) -> Value:
    value = step.together([leaf for operand in step.operands for leaf in leaves(operand)])
    if value.kind not in BATCHED:
        return value
    window = step.one.attributes.window.dimensions[value.axis]
    trivial = (
        window.size == 1
        and window.stride == 1
        and not (window.padding_low or window.padding_high)
        and max(window.base_dilation, 1) == 1
    )
    return value if trivial else step.mixed(TOGETHER)


def _dot(step: Step) -> Value:
    left, right = step.value(0), step.value(1)
    numbers = step.one.attributes.dot_dimension_numbers
    if not {left.kind, right.kind} & BATCHED:
        return step.together([left, right])
    sides = (
        (left, list(numbers.lhs_contracting_dimensions), list(numbers.lhs_batch_dimensions), 0),
        (right, list(numbers.rhs_contracting_dimensions), list(numbers.rhs_batch_dimensions), 1),
    )
    places: list[tuple[str, int]] = []
    before = len(sides[0][2])
    for value, contracting, batch, index in sides:
        free = [a for a in range(len(step.operand_shape(index))) if a not in contracting and a not in batch]
        if value.kind in BATCHED:
            if value.kind is not Kind.ROWS:
                return step.mixed(PLACE)
            if value.axis in contracting:
                return step.mixed(TOGETHER)
            if value.axis in batch:
                places.append(("batch", batch.index(value.axis)))
            else:
                places.append(("free", before + free.index(value.axis)))
        elif value.kind is not Kind.FREE:
            return step.mixed(COUNTS if value.kind is Kind.SIZE else PLACE)
        before += len(free) if index == 0 else 0
    if len(set(places)) > 1 or (len(places) == 2 and (places[0][0] == "free" or layout(left)[1:] != layout(right)[1:])):
        return step.mixed(TOGETHER)
    rows = left if left.kind in BATCHED else right
    return Value(Kind.ROWS, places[0][1], rows.width, rows.outer)


def _convolution(step: Step) -> Value:
    values, kernel = step.value(0), step.value(1)
    if not {values.kind, kernel.kind} & BATCHED:
        return step.together([values, kernel])
    numbers = step.one.attributes.convolution_dimension_numbers
    if (
        values.kind is not Kind.ROWS
        or kernel.kind is not Kind.FREE
        or values.axis != numbers.input_batch_dimension
        or step.one.attributes.batch_group_count > 1
    ):
        return step.mixed(TOGETHER)
    return Value(Kind.ROWS, numbers.output_batch_dimension, values.width, values.outer)


def _gather(step: Step) -> Value:
    operand, indices = step.value(0), step.value(1)
    numbers = step.one.attributes.gather_dimension_numbers
    sizes, others = list(step.one.attributes.gather_slice_sizes), list(step.other.attributes.gather_slice_sizes)
    if not {operand.kind, indices.kind} & BATCHED:
        return step.together([operand, indices]) if sizes == others else step.mixed(COUNTS)
    rank = len(step.shape)
    offsets = list(numbers.offset_dims)
    in_batch = [axis for axis in range(rank) if axis not in offsets]
    kept = [axis for axis in range(len(step.operand_shape(1))) if axis != numbers.index_vector_dim]
    sliced = [
        axis
        for axis in range(len(step.operand_shape(0)))
        if axis not in numbers.collapsed_slice_dims and axis not in numbers.operand_batching_dims
    ]
    if operand.kind not in BATCHED:
        if operand.kind is not Kind.FREE or indices.kind is not Kind.ROWS or sizes != others:
            return step.mixed(COUNTS if operand.kind is Kind.SIZE else PLACE)
        if indices.axis == numbers.index_vector_dim:
            return step.mixed(TOGETHER)
        return Value(Kind.ROWS, in_batch[kept.index(indices.axis)], indices.width, indices.outer)
    if operand.kind is not Kind.ROWS:
        return step.mixed(PLACE)
    if indices.kind not in BATCHED:
        if indices.kind is not Kind.FREE:
            return step.mixed(COUNTS if indices.kind is Kind.SIZE else PLACE)
        if operand.axis not in sliced or not step.full(operand.axis, sizes, others):
            return step.mixed(PLACE)
        return Value(Kind.ROWS, offsets[sliced.index(operand.axis)], operand.width, operand.outer)
    if indices.axis == numbers.index_vector_dim or layout(operand)[1:] != (1, 1) or layout(indices)[1:] != (1, 1):
        return step.mixed(TOGETHER)
    result = Value(Kind.ROWS, in_batch[kept.index(indices.axis)])
    paired = list(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    if indices.kind is Kind.ROWS:
        return result if (operand.axis, indices.axis) in paired else step.mixed(TOGETHER)
    # The index columns that look up a row by its own number: x[range(n), columns].
    mapped = list(numbers.start_index_map)
    if indices.kind is Kind.INDEX:
        own = set(range(len(mapped)))
    elif indices.columns[0] == numbers.index_vector_dim:
        own = set(indices.columns[1])
    else:
        return step.mixed(PLACE)
    if {mapped[column] for column in own} != {operand.axis} or sizes[operand.axis] != 1 or operand.axis in sliced:
        return step.mixed(PLACE)
    return result


def _dynamic_slice(step: Step) -> Value:
    operand, *starts = [step.value(i) for i in range(len(step.operands))]
    sizes, others = list(step.one.attributes.dynamic_slice_sizes), list(step.other.attributes.dynamic_slice_sizes)
    if operand.kind not in BATCHED:
        if sizes != others:
            return step.mixed(COUNTS)
        return step.together([dataclasses.replace(operand, constant=None), *starts])
    if operand.kind is not Kind.ROWS:
        return step.mixed(PLACE)
    elsewhere = [start for axis, start in enumerate(starts) if axis != operand.axis]
    if step.full(operand.axis, sizes, others):
        return step.together([Value(Kind.ROWS, *layout(operand)), *elsewhere])
    if sizes != others or sizes[operand.axis] != 1 or layout(operand)[1:] != (1, 1):
        return step.mixed(PLACE)
    if starts[operand.axis].kind is not Kind.COUNTER:
        return step.mixed(PLACE)
    return step.together([Value(Kind.ONE), *elsewhere])


def _dynamic_update_slice(step: Step) -> Value:
    operand, update, *starts = [step.value(i) for i in range(len(step.operands))]
    if operand.kind not in BATCHED:
        if update.kind in BATCHED:
            return step.mixed(TOGETHER)
        return step.together([operand, update, *starts])
    if operand.kind is not Kind.ROWS:
        return step.mixed(PLACE)
    elsewhere = [start for axis, start in enumerate(starts) if axis != operand.axis]
    if update.kind in BATCHED:
        return step.together([operand, update, *elsewhere])
    if (
        starts[operand.axis].kind is not Kind.COUNTER
        or step.operand_shape(1)[operand.axis] != 1
        or layout(operand)[1:] != (1, 1)
    ):
        return step.mixed(PLACE)
    row = step.together([update, *elsewhere])
    if row.kind not in (Kind.FREE, Kind.ONE):
        return step.mixed(PLACE)
    return dataclasses.replace(operand, same=None, filled=operand.same if operand.filled is None else operand.filled)


def _scatter(step: Step) -> Value:
    values = [leaf for operand in step.operands for leaf in leaves(operand)]
    if not any(value.kind in BATCHED for value in values):
        return step.together(values)
    if len(values) != 3 or values[0].kind is not Kind.ROWS or values[2].kind is not Kind.ROWS:
        return step.mixed(TOGETHER)
    operand, indices, updates = values
    numbers = step.one.attributes.scatter_dimension_numbers
    gone = [*numbers.inserted_window_dims, *numbers.input_batching_dims]
    kept = [axis for axis in range(len(step.operand_shape(0))) if axis not in gone]
    if indices.kind is not Kind.FREE or operand.axis not in kept or layout(operand)[1:] != layout(updates)[1:]:
        return step.mixed(TOGETHER)
    if operand.axis in numbers.scatter_dims_to_operand_dims:
        return step.mixed(TOGETHER)
    if numbers.update_window_dims[kept.index(operand.axis)] != updates.axis:
        return step.mixed(TOGETHER)
    return operand


def _set_size(step: Step) -> Value:
    value = step.value(0)
    if value.kind in BATCHED and value.axis == step.one.dimensions[0]:
        return step.mixed(COUNTS)
    return step.together([value, step.value(1)])


def _custom_call(step: Step) -> Value:
    if step.one.attributes.custom_call_target == "TopK":
        return _along(lambda step: [_rank(step) - 1])(step)
    return step.unknown()


_MATRICES = _along(lambda step: range(_rank(step) - 2, _rank(step)))
_LAST = _along(lambda step: [_rank(step) - 1])

RULES: Mapping[str, Callable[[Step], Value]] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    "batch-norm-inference": _along(lambda step: [step.one.attributes.feature_index]),
    "bitcast-convert": _bits,
    "broadcast": _broadcast,
    "cholesky": _MATRICES,
    "concatenate": _concatenate,
    "constant": _constant,
    "convolution": _convolution,
    "custom-call": _custom_call,
    "dot": _dot,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": _gather,
    "iota": _iota,
    "pad": _pad,
    "reduce": _reduce,
    "reduce-window": _windowed,
    "reshape": _reshape,
    "reverse": _along(lambda step: step.one.dimensions),
    "scatter": _scatter,
    "select-and-scatter": _windowed,
    "set-dimension-size": _set_size,
    "slice": _slice,
    "sort": _along(lambda step: step.one.dimensions),
    "topk": _LAST,
    "transpose": _transpose,
    "triangular-solve": _MATRICES,
}
