"""The pass `transpose_folding`: products read and write rows at any distance, instead of copies in another order.

XLA's products in batches want each matrix in one piece, so XLA copies attention's operands from [row, head, channel] to [head,
row, channel], and often results back. The pass finds the kernels that only copy (`copies.py`), and computes
the index of each value's original. If that makes matrices whose rows are at one distance, the product reads the original in
place, or writes its result where the copy would put it.

Applies to products in float32, float64, and int32 outside of loops, before or after kernels of XLA's that only copy one array
in another order, and to products of one row in a batch in float32, which XLA computes itself. Doesn't apply if anything but
products reads the copy, if something overwrites the original before the product reads it, if a product's result is read before
it is copied, or to copies that also compute something, such as a bias: encoders and training keep those.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tfaot.compile.program.packing.layouts import STREAMS
from tfaot.compile.program.thunks.accesses import Body, overlap
from tfaot.compile.program.thunks.compiled import Compiled
from tfaot.compile.program.thunks.kinds import SIZES, Dot, Place, Slice, Thunk
from tfaot.compile.program.values.copies import Order, order, original
from tfaot.compile.program.values.gemv import product
from tfaot.compile.program.values.graph import Value

_DTYPES = ("float", "double", "int32_t")


@dataclasses.dataclass(frozen=True)
class _Matrices:
    """Where a product's operand or result is in another array: an offset and distances, in values."""

    start: int
    step: int
    """From one product to the next."""
    apart: int
    """From one stored column to the next."""
    transposed: bool
    """Whether columns and the values in them change places."""


def transpose_folding(compiled: Compiled) -> int:
    """Removes copies at all CPU levels, and returns the number of copies that are gone, at the level with the most."""
    before = {isa: len(function.thunks) for isa, function in compiled.functions.items()}
    compiled.rewrite(lambda body: _remove_copies(compiled, body))
    return max(before[isa] - len(function.thunks) for isa, function in compiled.functions.items())


def _remove_copies(compiled: Compiled, body: Body) -> None:
    """Removes the copies that products don't need."""
    for thunk, stored in zip([*body.thunks], body.graph.results, strict=True):
        if thunk and stored is not None and (array := original(stored)):
            reason = _read(body, stored, array)
            if reason is not None:
                written = _written(body, stored, array)
                if written is not None and (reason or written):
                    compiled.missed(thunk, reason or written)


def _read(body: Body, stored: Value, array: Value) -> str | None:
    """Lets all products that read a copy read its original, and removes it. If that isn't possible, says why.

    Returns:
      Nothing if no product reads the copy, and None if the copy is gone.
    """
    assert array.place and stored.place
    if stored.place[0].buffer not in body.temporary:
        return ""
    changed, indices = dataclasses.replace(body, thunks=[*body.thunks]), None
    for later in range(stored.since + 1, len(body.thunks)):
        thunk = body.thunks[later]
        if thunk is None:
            continue
        if any(overlap(stored.place, place) for place in thunk.uses().reads):
            dot = _dot(thunk, body.graph.results[later])
            if dot is None:
                return "" if indices is None else f"{thunk.title or 'a loop'} reads the copy, too"
            indices = order(stored) if indices is None else indices
            moved = _moved(dot, array.place, stored.place, indices)
            if moved is None:
                return f"{dot.title} can't read the original: its rows aren't at one distance"
            if reason := changed.merge({later}, [(array.since, array.place)], moved, later):
                return reason
        if any(overlap(stored.place, place) for place in thunk.uses().changes):
            break
    if indices is None:
        return ""
    if changed.is_used(stored.place, stored.since):
        return "something else reads the copy, too"
    changed.thunks[stored.since] = None
    body.thunks = changed.thunks
    return None


def _written(body: Body, stored: Value, array: Value) -> str | None:
    """Lets the product before a copy write where the copy does, and removes it. If that isn't possible, says why.

    Returns:
      Nothing if no product wrote the original, and None if the copy is gone.
    """
    assert array.place and stored.place
    here = array.since
    dot = body.thunks[here] if here >= 0 else None
    if (
        array.place[0].buffer not in body.temporary
        or not isinstance(dot, Dot)
        or dot.places[0] != array.place
        or _dot(dot, None) is None
    ):
        return ""
    indices = order(stored)
    # Of a permutation, sorting is the inverse.
    matrices = _matrices(dot, 0, np.argsort(indices)) if len(indices) == array.count else None
    if dot.epilogue or matrices is None or matrices.transposed:
        return "the product has an epilogue, or the copy puts its rows at more than one distance"
    at = Slice(stored.place[0].buffer, stored.place[0].offset + matrices.start * SIZES[dot.dtype])
    moved = dataclasses.replace(_with(dot, 0, matrices), out=at)
    members = {here, stored.since}
    return body.merge(members, (), lambda results: moved if len(results) == 1 else None, here) or None


def _dot(thunk: Thunk, stored: Value | None) -> Dot | None:
    """Returns a thunk as a product of the runtime, if it is one or can be."""
    if isinstance(thunk, Dot):
        return thunk if thunk.dtype in _DTYPES and thunk.packing not in STREAMS else None
    return product(stored) if stored else None


def _moved(dot: Dot, array: Place, copy: Place, indices: Order) -> Dot | None:
    """Returns a product that reads an original in place of its copy, if it can."""
    size = SIZES[dot.dtype]
    _, *operands = dot.places
    if any(overlap(copy, place) for place in operands[3:]):
        return None  # its epilogue reads the copy
    for number, place in enumerate(operands[:2], 1):
        if not overlap(copy, place):
            continue
        matrices = _matrices(dot, number, indices) if place == copy and len(indices) * size == copy[1] else None
        if matrices is None:
            return None
        at = Slice(array[0].buffer, array[0].offset + matrices.start * size)
        dot = _with(dot, number, matrices)
        if number == 1:
            dot = dataclasses.replace(dot, lhs=at, transpose_lhs=dot.transpose_lhs != matrices.transposed)
        else:
            dot = dataclasses.replace(dot, rhs=at, transpose_rhs=dot.transpose_rhs != matrices.transposed)
    return dot


def _matrices(dot: Dot, number: int, indices: Order) -> _Matrices | None:
    """Returns where the values of a product's result (0), left side (1), or right side (2) are in another array.

    Args:
      dot: whose values in that place are adjacent.
      number: the place.
      indices: for each value, where it is in the other array.
    """
    columns, values = dot.stored[number]
    if dot.columns_apart[number] or len(indices) != dot.batch * columns * values or not len(indices):
        return None
    array = indices.reshape(dot.batch, columns, values)
    start = int(array[0, 0, 0])
    lines = array[:, 0, 0], array[0, :, 0], array[0, 0]
    steps = [int(line[1]) - start if len(line) > 1 else 0 for line in lines]
    expected = start + sum(
        step * numbers
        for step, numbers in zip(steps, np.ogrid[tuple(slice(size) for size in array.shape)], strict=True)
    )
    if not np.array_equal(array, np.broadcast_to(expected, array.shape)):
        return None
    step, apart, adjacent = steps
    if values == 1 or adjacent == 1:
        return _Matrices(start, step, max(apart, values), False)
    if columns == 1 or apart == 1:
        return _Matrices(start, step, max(adjacent, columns), True)
    return None


def _with(dot: Dot, number: int, matrices: _Matrices) -> Dot:
    """Returns a product with the distances of one of its matrices."""
    strides, apart = list(dot.strides), list(dot.columns_apart)
    strides[number], apart[number] = matrices.step, matrices.apart
    return dataclasses.replace(
        dot, strides=(strides[0], strides[1], strides[2]), columns_apart=(apart[0], apart[1], apart[2])
    )
