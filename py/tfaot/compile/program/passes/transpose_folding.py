"""The pass `transpose_folding`: products read and write rows at any distance, instead of copies in another order.

XLA's products in batches want each matrix in one piece, so XLA copies attention's operands from [row, head, channel] to [head,
row, channel], and often results back. The pass reads from the optimized HLO which kernels only copy (`copies.py`), and computes
the index of each value's original. If that makes matrices whose rows are at one distance, the product reads the original in
place, or writes its result where the copy would put it.

Applies to products in float32, float64, and int32 outside of loops, before or after kernels of XLA's that only copy one array
in another order, and to products of one row in a batch in float32, which XLA computes itself. Doesn't apply if anything but
products reads the copy, if something overwrites the original before the product reads it, if a product's result is read before
it is copied, or to copies that also compute something, such as a bias: encoders and training keep those.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Set

import numpy as np

from tfaot.compile.program.packing.gemv_packing import product_of
from tfaot.compile.program.packing.layouts import STREAMS
from tfaot.compile.program.thunks.accesses import is_read, overlap, without
from tfaot.compile.program.thunks.compiled import Compiled, Missed
from tfaot.compile.program.thunks.kinds import SIZES, CompiledFunction, Dot, Kernel, Place, Slice, Thunk
from tfaot.compile.program.values.copies import Order, copies, order
from tfaot.compile.program.values.vectors import vector_products
from tfaot.xla.module import Computation

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
    """Removes copies at all CPU levels.

    Returns:
      The number of copies that are gone, at the level with the most.
    """
    known = _Known(compiled)
    before = {isa: len(function.thunks) for isa, function in compiled.functions.items()}
    compiled.change(lambda function: _without_copies(function, known, compiled.missed))
    return max(before[isa] - len(function.thunks) for isa, function in compiled.functions.items())


class _Known:
    """What the optimized HLO says about kernels, by symbol."""

    def __init__(self, compiled: Compiled) -> None:
        self.copies = compiled.kernels(copies)
        self.products = compiled.kernels(vector_products)

    def product(self, thunk: Thunk) -> Dot | None:
        """Returns a thunk as a product of the runtime, if it is one or can be."""
        if isinstance(thunk, Kernel) and thunk.symbol in self.products:
            return product_of(thunk, self.products[thunk.symbol])
        if isinstance(thunk, Dot) and thunk.dtype in _DTYPES and thunk.packing not in STREAMS:
            return thunk
        return None


def _without_copies(function: CompiledFunction, known: _Known, missed: Missed) -> CompiledFunction:
    """Returns a function with the same results, without the copies that its products don't need."""
    temporary = function.temporary
    # Loops stay: what a step writes, the next one may read.
    sequence = list(function.thunks)
    index = 0
    while index < len(sequence):
        thunk = sequence[index]
        copy = known.copies.get(thunk.symbol) if isinstance(thunk, Kernel) else None
        if isinstance(thunk, Kernel) and copy is not None and len(thunk.args) == 2:
            changed = _reading(sequence, index, copy, known, temporary)
            if isinstance(changed, str):
                reason, changed = changed, _writing(sequence, index, copy, known, temporary)
                if isinstance(changed, str) and (reason or changed):
                    missed(thunk, reason or changed)
            if not isinstance(changed, str):
                sequence = [*changed[:index], *changed[index + 1 :]]
                continue
        index += 1
    return dataclasses.replace(function, thunks=tuple(sequence))


def _reading(
    sequence: list[Thunk], index: int, copy: Computation, known: _Known, temporary: Set[int]
) -> list[Thunk] | str:
    """Returns thunks whose products read the original of a copy, or why they can't; nothing if no product reads the copy."""
    original, result = sequence[index].places
    if result[0].buffer not in temporary or overlap(original, result):
        return ""
    changed, rest, intact, indices = list(sequence), [result], True, None
    for later in range(index + 1, len(sequence)):
        uses = sequence[later].uses()
        if any(overlap(each, read) for each in rest for read in uses.reads):
            product = known.product(sequence[later])
            if product is None:
                return "" if indices is None else f"{sequence[later].title or 'a loop'} reads the copy, too"
            if not intact or rest != [result]:
                return "the original or a part of the copy is overwritten before a product reads it"
            indices = order(copy) if indices is None else indices
            moved = _moved(product, original, result, indices)
            if moved is None:
                return f"{product.title} can't read the original: its rows aren't at one distance, or it is overwritten"
            changed[later] = moved
        intact = intact and not any(overlap(original, each) for each in uses.changes)
        rest = [part for each in rest for part in without(each, uses.writes)]
        if not rest:
            break
    return "" if indices is None else changed


def _moved(product: Dot, original: Place, copy: Place, indices: Order) -> Dot | None:
    """Returns a product that reads an original in place of its copy, if it can."""
    size = SIZES[product.dtype]
    uses = product.uses()
    _, *operands = product.places
    if sum(overlap(copy, each) for each in uses.reads) != sum(overlap(copy, each) for each in operands[:2]):
        return None  # its epilogue reads the copy
    if any(overlap(original, each) for each in uses.writes):
        return None
    for number, place in enumerate(operands[:2], 1):
        if not overlap(copy, place):
            continue
        found = _matrices(product, number, indices) if place == copy and len(indices) * size == copy[1] else None
        if found is None:
            return None
        at = Slice(original[0].buffer, original[0].offset + found.start * size)
        product = _with(product, number, found)
        if number == 1:
            product = dataclasses.replace(product, lhs=at, transpose_lhs=product.transpose_lhs != found.transposed)
        else:
            product = dataclasses.replace(product, rhs=at, transpose_rhs=product.transpose_rhs != found.transposed)
    return product


def _writing(
    sequence: list[Thunk], index: int, copy: Computation, known: _Known, temporary: Set[int]
) -> list[Thunk] | str:
    """Returns thunks of which a product writes its result where a copy puts it, or why it can't; nothing without such a product."""
    original, result = sequence[index].places
    if original[0].buffer not in temporary or overlap(original, result):
        return ""
    earlier = _writer(sequence[:index], original, result, known)
    if earlier is None:
        return ""
    if is_read(original, sequence[index + 1 :]):
        return "something reads the product's result, too"
    product = sequence[earlier]
    assert isinstance(product, Dot)
    _, *operands = product.places
    indices, size = order(copy), SIZES[product.dtype]
    if product.epilogue or any(overlap(result, each) for each in operands):
        return "the product has an epilogue, or reads where the copy is"
    found = _matrices(product, 0, np.argsort(indices))  # of a permutation, the inverse
    if found is None or found.transposed:
        return "the copy puts the product's rows at more than one distance"
    at = Slice(result[0].buffer, result[0].offset + found.start * size)
    changed = list(sequence)
    changed[earlier] = dataclasses.replace(_with(product, 0, found), out=at)
    return changed


def _writer(before: list[Thunk], original: Place, result: Place, known: _Known) -> int | None:
    """Returns the index of the product that computes a copy's original, if it can write the copy's result by then."""
    for index in reversed(range(len(before))):
        thunk = before[index]
        if isinstance(thunk, Dot) and thunk.places[0] == original:
            return index if known.product(thunk) else None
        uses = thunk.uses()
        if any(overlap(place, each) for place in (original, result) for each in (*uses.reads, *uses.writes)):
            return None
    return None


def _matrices(product: Dot, number: int, indices: Order) -> _Matrices | None:
    """Returns where the values of a product's result (0), left side (1), or right side (2) are in another array.

    Args:
      product: whose values in that place are adjacent.
      number: the place.
      indices: for each value, where it is in the other array.
    """
    columns, values = product.stored[number]
    if product.columns_apart[number] or len(indices) != product.batch * columns * values or not len(indices):
        return None
    array = indices.reshape(product.batch, columns, values)
    start = int(array[0, 0, 0])
    steps = [int(each[1]) - start if len(each) > 1 else 0 for each in (array[:, 0, 0], array[0, :, 0], array[0, 0])]
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


def _with(product: Dot, number: int, found: _Matrices) -> Dot:
    """Returns a product with the distances of one of its matrices."""
    strides, apart = list(product.strides), list(product.columns_apart)
    strides[number], apart[number] = found.step, found.apart
    return dataclasses.replace(
        product, strides=(strides[0], strides[1], strides[2]), columns_apart=(apart[0], apart[1], apart[2])
    )
