"""The pass `column_reduction`: adds up the rows of arrays in vectors, where XLA adds one value at a time.

A sum of rows has one result for each column, such as the gradient of a bias. XLA computes it in a kernel of its own, cut into
blocks if it is long. Where an array has its channels last, such a kernel goes through each channel of a block with a distance
between the values. The call (`runtime/tfaot/kernels/column_sums.h`) keeps XLA's blocks, and adds up rows shorter than a vector
several at once. The order of additions differs from XLA's. Threads share blocks, and columns if there are many.

Applies, also in loops, to kernels of XLA's that only add up float32 values of consecutive axes except the last, from 1,024
values on. XLA makes other sums a part of the kernels around them, and `reduce_as_matmul` keeps the longest ones apart.

The gradient of 4 filters' bias in conv + fc's training takes 5.7 instead of 87 µs (27 at x86-64-v3).
"""

from __future__ import annotations

import math

from tfaot.compile.program.thunks.compiled import Compiled
from tfaot.compile.program.thunks.kinds import ColumnSums
from tfaot.compile.program.values.graph import Value

_LEAST = 1024
"""The fewest values that are worth a call instead of a kernel."""


def column_reduction(compiled: Compiled) -> int:
    """Replaces kernels at all CPU levels, and returns the number of sums at the level with the most."""
    compiled.replace(column_sums)
    return compiled.most(lambda thunk: isinstance(thunk, ColumnSums))


def column_sums(stored: Value) -> ColumnSums | str | None:
    """Returns the call for a kernel that adds up all rows of arrays, or blocks of consecutive rows, and does nothing else."""
    root = stored.operands[0].inside
    if root.op not in ("reduce", "reduce-window") or root.text != "add" or root.operands[1].bare.number != 0:
        return None
    summed, array = root.operands[0], root.operands[0].inside
    rows = _whole(summed, root.dims) if root.op == "reduce" else _blocks(summed, root)
    if rows is None or array.place is None or stored.place is None or not summed.count:
        return None
    if root.type.dtype != "f32" or not root.in_rows or not summed.in_rows:
        return None
    begin, end, first, blocks, step = rows
    arrays, length, columns = (
        math.prod(summed.shape[part]) for part in (slice(0, begin), slice(begin, end), slice(end, None))
    )
    if summed.count < _LEAST:
        return f"it adds up fewer than {_LEAST} values"
    return ColumnSums(arrays, length, columns, blocks, first, step, stored.place[0], array.place[0])


_Rows = tuple[int, int, int, int, int]
"""The first axis of rows, the one after their last, the first block's rows, the number of blocks, and the other blocks' rows."""


def _whole(values: Value, axes: tuple[int, ...]) -> _Rows | None:
    """Returns sums over some axes."""
    if not axes or axes != tuple(range(axes[0], axes[-1] + 1)) or axes[-1] + 1 == len(values.shape):
        return None
    rows = math.prod(values.shape[axis] for axis in axes)
    return axes[0], axes[-1] + 1, rows, 1, rows


def _blocks(values: Value, root: Value) -> _Rows | None:
    """Returns sums over windows, if each has consecutive rows."""
    shape = values.shape
    axes = [axis for axis, window in enumerate(root.windows) if window.size > 1]
    if not axes or axes[-1] + 1 == len(shape):
        return None
    cut, end = axes[0], axes[-1] + 1
    if any(window.size != size for window, size in zip(root.windows[cut + 1 : end], shape[cut + 1 : end], strict=True)):
        return None
    if any(window.before or window.after for axis, window in enumerate(root.windows) if axis != cut):
        return None
    size, before, after = root.windows[cut]
    inner = math.prod(shape[cut + 1 : end])
    return cut, end, (size - before) * inner, (before + shape[cut] + after) // size, size * inner
