"""The pass `transposes`: copies short rows in another order as vectors, where XLA copies one value at a time.

XLA orders the heads of attention, and the operands of gradients by a convolution's kernel, as it wants to read them. Its
vectors are along the innermost loop alone, which is too short for them if rows are. In the call
(`runtime/tfaot/kernels/row_copies.h`), a row is a vector or a few. Threads share the outermost loop.

Applies, also in loops, to kernels of XLA's that only copy 1,024 to 4,194,304 float32 values of one array, in rows of 2 to 63
values. XLA copies longer rows as fast. `transpose_folding` comes first: it needs no copy at all. Values that don't stay adjacent
stay XLA's: blocks transposed in registers were slower.

A copy of 64 × 729 rows of 4 values takes 17 instead of 47 µs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from tfaot.compile.program.thunks.accesses import overlap
from tfaot.compile.program.thunks.compiled import Compiled, Missed, unnoted
from tfaot.compile.program.thunks.kinds import CompiledFunction, Kernel, RowCopies, Slice, Thunk
from tfaot.compile.program.values import copies
from tfaot.compile.program.values.copies import Order
from tfaot.xla.module import Computation

LOOPS = 4
"""The number of loops around rows in the runtime: `kLoops` in runtime/tfaot/kernels/calls.h."""

_LEAST = 1024
"""The fewest values that are worth a call instead of a kernel."""
_MOST = 1 << 22
"""The most values: finding their loops takes some 32 bytes of the compile stage's memory for each."""
_LONG = 64
"""The shortest row that XLA copies as fast as we do."""

_NOWHERE = Slice(-1, 0)


def transposes(compiled: Compiled) -> int:
    """Replaces kernels at all CPU levels.

    Returns:
      The number of such copies at the level with the most.
    """
    known = compiled.kernels(copies.copies)
    found: dict[str, RowCopies | str] = {}
    compiled.change(lambda function: replace(function, known, found, compiled.missed))
    return compiled.most(lambda each: isinstance(each, RowCopies))


def replace(
    function: CompiledFunction,
    known: Mapping[str, Computation],
    found: dict[str, RowCopies | str],
    missed: Missed = unnoted,
) -> CompiledFunction:
    """Replaces kernels by calls of the runtime, also in loops.

    Args:
      function: the function from tfcompile's header.
      known: the result of `copies` for its kernels.
      found: for each kernel's symbol, its call without places, or why it stays. Symbols are added.
      missed: is told of copies that stay.
    """

    def changed(thunk: Thunk) -> Thunk:
        if not isinstance(thunk, Kernel):
            return thunk.with_bodies(lambda body: tuple(map(changed, body)))
        copy = known.get(thunk.symbol)
        if copy is None or len(thunk.args) != 2:
            return thunk
        if thunk.symbol not in found:
            found[thunk.symbol] = _row_copies(copy)
        (read, read_size), (out, out_size) = thunk.places
        call = found[thunk.symbol]
        if not isinstance(call, str) and (call.size != out_size or overlap((read, read_size), (out, out_size))):
            call = "its result is where its values are"
        if isinstance(call, str):
            missed(thunk, call)
            return thunk
        return dataclasses.replace(call, out=out, input=read, input_size=read_size)

    return dataclasses.replace(function, thunks=tuple(map(changed, function.thunks)))


def _row_copies(copy: Computation) -> RowCopies | str:
    """Returns the call that makes a copy, or why it isn't faster."""
    root = copy.root
    if root.dtype != "f32" or not _LEAST <= root.count <= _MOST:
        return f"it copies {root.count} values in {root.dtype}"
    found = loops_of(copies.order(copy))
    if found is None:
        return "no loops go through its values"
    first, (*loops, (row, step)) = found
    if step != 1 or row >= _LONG or len(loops) > LOOPS:
        return f"it copies {len(loops)} loops of rows of {row} values, {step} apart"
    return RowCopies(first, ((1, 0),) * (LOOPS - len(loops)) + tuple(loops), row, _NOWHERE, _NOWHERE, 0)


def loops_of(order: Order) -> tuple[int, tuple[tuple[int, int], ...]] | None:
    """Returns loops that go through indices: the first index, and for each loop, outermost first, its count and its step.

    Returns:
      None if no loops do.
    """
    first, loops = int(order[0]), list[tuple[int, int]]()
    while order.size > 1:
        step = int(order[1] - order[0])
        other = np.flatnonzero(np.diff(order) != step)
        count = int(other[0]) + 1 if other.size else order.size
        if order.size % count:
            return None
        rows = order.reshape(-1, count)
        if not np.array_equal(rows, rows[:, :1] + step * np.arange(count)):
            return None
        loops.insert(0, (count, step))
        order = rows[:, 0]
    return first, tuple(loops)
