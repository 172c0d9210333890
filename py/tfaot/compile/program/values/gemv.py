"""Kernels that multiply one row by a matrix, once or in a batch, and may add another row.

XLA doesn't call the runtime for such products.
"""

from __future__ import annotations

import math

from tfaot.compile.program.thunks.accesses import clashes
from tfaot.compile.program.thunks.kinds import Dot, Epilogue
from tfaot.compile.program.values.graph import Value


def product(stored: Value) -> Dot | None:
    """Returns the product that a kernel computes, or None if it computes anything else, or the runtime can't do it in place."""
    root = stored.operands[0].inside
    ways: list[tuple[Value, ...]] = [(root,), *([root.operands, root.operands[::-1]] if root.op == "add" else [])]
    for dot, *addends in ways:
        if dot.op != "dot" or root.type.dtype != "f32" or stored.place is None:
            continue
        epilogue = None
        if addends:
            row = addends[0].in_memory
            if row is None or row.place is None or row.count != dot.count:
                continue
            epilogue = Epilogue(None, row.place[0], None, stored.place[0], -math.inf, math.inf)
        call = _product(stored, dot, epilogue)
        if call and not clashes(call):
            return call
    return None


def _product(stored: Value, dot: Value, epilogue: Epilogue | None) -> Dot | None:
    (left_batch, right_batch), contracted = dot.ranges[:2], dot.ranges[2:]
    outer = len(left_batch)
    if [len(axes) for axes in contracted] != [1, 1]:
        return None
    if {tuple(left_batch), tuple(right_batch)} != {tuple(range(outer))}:
        return None
    left, right = dot.operands
    if {value.type.dtype for value in (dot, left, right)} != {"f32"}:
        return None
    for row, matrix, dimension in ((left, right, contracted[1][0]), (right, left, contracted[0][0])):
        # A matrix of one column has the shape of a row.
        rank, layout = len(matrix.shape), matrix.type.layout
        if rank not in ((outer + 2,) if outer else (1, 2)) or len(layout) != rank:
            continue
        if outer and (epilogue or not all(_in_order(value, outer) for value in (dot, row, matrix))):
            continue
        batch, depth = math.prod(matrix.shape[:outer]), matrix.shape[dimension]
        columns = matrix.count // max(batch * depth, 1)
        at, matrix_at = row.in_memory, matrix.in_memory
        if row.count != batch * depth or dot.count != batch * columns or row is matrix:
            continue
        if stored.place and at and at.place and matrix_at and matrix_at.place:
            return Dot(
                dtype="float",
                batch=batch,
                out=stored.place[0],
                lhs=matrix_at.place[0],
                rhs=at.place[0],
                strides=(columns, depth * columns, depth),
                m=columns,
                n=1,
                k=depth,
                transpose_lhs=layout[0] == dimension,
                transpose_rhs=False,
                epilogue=epilogue,
            )
    return None


def _in_order(value: Value, outer: int) -> bool:
    """Returns whether the first dimensions of a value are its slowest in memory, in order."""
    return value.type.layout[len(value.type.layout) - outer :] == tuple(reversed(range(outer)))
