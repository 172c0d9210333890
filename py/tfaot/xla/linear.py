"""Linear algebra that the runtime computes: the numbers of its marks (`tfaot.xla.marks`)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal, get_args

Op = Literal[
    "Cholesky",
    "Triangle",
    "Lu",
    "Solve",
    "Reflectors",
    "Orthogonal",
    "Eigen",
    "Singular",
    "Root",
    "General",
]
_OPS: tuple[Op, ...] = get_args(Op)


@dataclasses.dataclass(frozen=True)
class Linear:
    """A call: the fields of `Linear` in `runtime/tfaot/kernels/calls.h`, without the batch."""

    op: Op
    rows: int
    columns: int
    others: int = 0
    lower: bool = True
    adjoint: bool = False
    unit: bool = False
    vectors: bool = True

    def numbers(self) -> tuple[int, ...]:
        """Returns the numbers of its mark, behind the first."""
        flags = (self.lower, self.adjoint, self.unit, self.vectors)
        return (_OPS.index(self.op), self.rows, self.columns, self.others, *map(int, flags))

    @staticmethod
    def of(numbers: Sequence[int]) -> Linear:
        """Reads the numbers of a mark."""
        op, rows, columns, others, *flags = numbers
        return Linear(_OPS[op], rows, columns, others, *map(bool, flags))

    @property
    def results(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the results of a batch item, which come one after another."""
        rows, columns = self.rows, self.columns
        least = min(rows, columns)
        match self.op:
            case "Cholesky" | "Root":
                return ((rows, columns),)
            case "Triangle" | "Solve":
                return ((rows, columns), (rows, self.others))
            case "Lu":
                return ((rows, columns), (rows,), (least,), (1,))
            case "Reflectors":
                return ((rows, columns), (least,))
            case "Orthogonal":
                return ((rows, self.others),)
            case "Eigen" | "General":
                return ((rows, columns), (rows,))
            case "Singular":
                left, right = (rows, columns) if self.others else (least, least)
                return ((rows, left), (least,), (right, columns))

    @property
    def row(self) -> int:
        """The number of values of a batch item."""
        operands = self.rows * self.columns + self.columns if self.op == "Orthogonal" else 0
        return max(operands, sum(map(math.prod, self.results)))

    @property
    def operations(self) -> int:
        """About as many as LAPACK's, of real values."""
        rows, columns, others = self.rows, self.columns, self.others
        cube = rows * columns * min(rows, columns)
        match self.op:
            case "Cholesky":
                return cube // 3
            case "Triangle":
                return rows * rows * others
            case "Lu":
                return 2 * cube // 3
            case "Solve":
                return 2 * cube // 3 + 2 * rows * rows * others
            case "Reflectors":
                return 4 * cube // 3
            case "Orthogonal":
                return 4 * rows * columns * others // 3
            case "Eigen":
                return (9 if self.vectors else 1) * cube
            case "Singular":
                return (20 if self.vectors else 3) * cube
            case "Root" | "General":
                return 25 * cube
