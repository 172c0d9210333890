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

import numpy as np

from tfaot.compile.program.thunks.compiled import Compiled
from tfaot.compile.program.thunks.kinds import RowCopies
from tfaot.compile.program.values.copies import Order, order, original
from tfaot.compile.program.values.graph import Value

LOOPS = 4
"""The number of loops around rows in the runtime: `kLoops` in runtime/tfaot/kernels/calls.h."""

_LEAST = 1024
"""The fewest values that are worth a call instead of a kernel."""
_MOST = 1 << 22
"""The most values: finding their loops takes some 32 bytes of the compile stage's memory for each."""
_LONG = 64
"""The shortest row that XLA copies as fast as we do."""


def transposes(compiled: Compiled) -> int:
    """Replaces kernels at all CPU levels, and returns the number of such copies at the level with the most."""
    compiled.replace(row_copies)
    return compiled.most(lambda thunk: isinstance(thunk, RowCopies))


def row_copies(stored: Value) -> RowCopies | str | None:
    """Returns the call that makes a kernel's copy, why it isn't faster, or None if the kernel does anything else."""
    array = original(stored)
    if array is None or array.place is None or stored.place is None:
        return None
    if stored.type.dtype != "f32" or not _LEAST <= stored.count <= _MOST:
        return f"it copies {stored.count} values in {stored.type.dtype}"
    nest = loops_of(order(stored))
    if nest is None:
        return "no loops go through its values"
    first, (*loops, (row, step)) = nest
    if step != 1 or row >= _LONG or len(loops) > LOOPS:
        return f"it copies {len(loops)} loops of rows of {row} values, {step} apart"
    around = ((1, 0),) * (LOOPS - len(loops)) + tuple(loops)
    return RowCopies(first, around, row, stored.place[0], *array.place)


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
