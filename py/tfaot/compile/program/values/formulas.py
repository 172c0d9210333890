"""Formulas: arithmetic on values with the same index in arrays, and on rows.

A formula names every rounding, including those that XLA leaves out by fusing a product with a sum, so that code for it gives the
same bits as XLA's vectors. (For the values of a row after its last whole vector, LLVM sometimes fuses the other of two products.)
Exponentials, logarithms, and tanh are the runtime's own, with other last bits.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from tfaot.compile.program.values.graph import Value

Item = TypeVar("Item")

DTYPES = {"f32": "float", "f64": "double"}
"""The dtypes that formulas have, with their names in C++."""
MOST_ARRAYS = 12
"""The most arrays of a formula: a core's prefetchers follow only so many streams."""

_OPCODES = {"add", "clamp", "divide", "maximum", "minimum", "multiply", "subtract", "abs", "negate", "rsqrt", "sqrt"}
"""HLO's operations whose operands and result all have the formula's dtype."""
_OTHERS = {
    ("add", "s32", ("s32", "s32")),
    ("and", "pred", ("pred", "pred")),
    ("and", "s32", ("s32", "s32")),
    ("bitcast-convert", "f32", ("s32",)),
    ("bitcast-convert", "s32", ("f32",)),
    ("convert", "f32", ("pred",)),
    ("convert", "f32", ("s32",)),
    ("exponential", "f32", ("f32",)),
    ("is-finite", "pred", ("f32",)),
    ("log", "f32", ("f32",)),
    ("multiply", "s32", ("s32", "s32")),
    ("not", "pred", ("pred",)),
    ("or", "pred", ("pred", "pred")),
    ("shift-left", "s32", ("s32", "s32")),
    ("subtract", "s32", ("s32", "s32")),
    ("tanh", "f32", ("f32",)),
}
"""Operations that only formulas of float32 have, with the dtypes of results and operands: functions, and their bits."""
SLOW = ("divide", "exponential", "log", "rsqrt", "sqrt", "tanh")
"""Opcodes of operations that take as long as moving a value."""
REDUCTIONS: Mapping[str, tuple[str, float]] = {
    "sum": ("add", 0),
    "largest": ("maximum", -math.inf),
    "peak": ("maximum", -math.inf),
    "smallest": ("minimum", math.inf),
}
"""Opcodes of a row formula's reductions: how HLO combines the values of a row, and what it begins with.

Of a row with NaN, `peak` is any value. It is twice as fast as `largest`.
"""


@dataclasses.dataclass(frozen=True)
class Operation:
    """A step of a formula: HLO's opcode, or one of these.

    - `array`, `scalar`: reads the array or the single value with the number `place`. `text` has a dtype other than the formula's.
    - `constant`: the number that `text` has. `compare` has its direction there, and `s32` if it compares integers,
      `bitcast-convert` its result's dtype, and `convert` its operand's.
    - `integer`: a constant of 32 bits.
    - `multiply_add`: a * b + c, rounded once. `multiply_subtract` is a * b - c, and `subtract_product` c - a * b.
    - `row`, `column`: reads the value of the row with the number `place`, or one of the formula's `vectors`.
    - `iota`: the number of the column, or with the numbers a and b in `text`, r // a % b for a row r.
    - `sum`, `largest`, `peak`, `smallest`: of an operand's values of a row.
    """

    opcode: str
    operands: tuple[int, ...] = ()
    """Earlier operations, by their index."""
    place: int = -1
    text: str = ""


@dataclasses.dataclass(frozen=True)
class Vector:
    """Values that many rows have. A row r has those of the row r // group * period + r % period, without a group r % period."""

    group: int = 0
    period: int = 1
    single: bool = False
    """Whether a row has one value, not one for each column."""
    width: int = 4
    """The bytes of a value."""

    def bytes(self, rows: int, columns: int) -> int:
        """Returns the bytes of all values for that many rows."""
        return self.width * (1 if self.single else columns) * self.period * (rows // self.group if self.group else 1)


@dataclasses.dataclass(frozen=True)
class Formula:
    """What happens to the values with the same index in some arrays, and to those of a row.

    What is written comes after all reads of the same index, or of the row.
    """

    operations: tuple[Operation, ...]
    arrays: tuple[tuple[int, int], ...]
    """The arrays that are written, with the operations that compute their values."""
    values: tuple[tuple[int, int], ...] = ()
    """The same for values of rows."""
    vectors: tuple[Vector, ...] = ()
    """What `column` reads."""
    dtype: str = "float"
    """The C++ name of the dtype of all values. Formulas of rows have floats."""

    @property
    def of_rows(self) -> bool:
        """Whether it needs more than the values with the same index in arrays of one dtype."""
        return bool(self.values) or any(
            operation.opcode in (*REDUCTIONS, "column", "iota", "row")
            or (operation.opcode == "array" and operation.text)
            for operation in self.operations
        )


def constant(value: Value, dtype: str) -> Operation | None:
    """Returns a constant for a formula of some dtype."""
    number = value.number
    if value.type.dtype not in (dtype, "s32") or number is None or math.isnan(number):
        return None
    return Operation("integer" if value.type.dtype == "s32" else "constant", text=str(number))


def arithmetic(
    value: Value, operands: tuple[int, ...], operations: Sequence[Operation], dtype: str
) -> Operation | None:
    """Returns a value that is computed from `operands`, which some of the `operations` are, or None if a formula can't have it."""
    opcode, result, dtypes = value.op, value.type.dtype, [operand.type.dtype for operand in value.operands]
    if opcode == "compare":
        text = {dtype: value.text, "s32": f"{value.text} s32"}.get(dtypes[0])
        return Operation(opcode, operands, text=text) if text and len({*dtypes}) == 1 else None
    if opcode in _OPCODES and {result, *dtypes} == {dtype}:
        return Operation(opcode, operands)
    if opcode == "select" and [result, *dtypes] == [dtype, "pred", dtype, dtype]:
        return Operation(opcode, operands)
    if dtype != "f32" or (opcode, result, tuple(dtypes)) not in _OTHERS:
        return None
    if opcode == "shift-left":
        by = operations[operands[1]]
        if by.opcode != "integer" or not 0 <= int(by.text) < 32:  # C++ defines no others
            return None
    return Operation(opcode, operands, text={"bitcast-convert": result, "convert": dtypes[0]}.get(opcode, ""))


def least_alone(operations: Sequence[Operation]) -> int:
    """Returns the least number of values for which a kernel alone becomes a call, which threads can share, unlike XLA's kernels.

    On one thread, only exponentials and tanh are faster in a call than in XLA's kernels.
    """
    return 8192 if any(operation.opcode in ("exponential", "tanh") for operation in operations) else 65536


def contracted(operations: Sequence[Operation], results: Sequence[int]) -> tuple[Operation, ...]:
    """Fuses products with sums, as LLVM does: a product with one use, and the left one if there are two."""
    uses = Counter(operand for operation in operations for operand in operation.operands)
    uses.update(results)

    def fused(operation: Operation) -> Operation:
        if operation.opcode not in ("add", "subtract"):
            return operation
        left, right = operation.operands
        may_fuse = [operations[factor].opcode == "multiply" and uses[factor] == 1 for factor in (left, right)]
        if may_fuse[0]:
            opcode = "multiply_add" if operation.opcode == "add" else "multiply_subtract"
            return Operation(opcode, (*operations[left].operands, right))
        if may_fuse[1]:
            opcode = "multiply_add" if operation.opcode == "add" else "subtract_product"
            return Operation(opcode, (*operations[right].operands, left))
        return operation

    return tuple(map(fused, operations))


def live(formula: Formula) -> Formula:
    """Removes the operations that no result needs."""
    order = needed(formula.operations, [operation for _, operation in formula.arrays])
    number = {index: place for place, index in enumerate(order)}
    operations = (
        dataclasses.replace(operation, operands=tuple(map(number.__getitem__, operation.operands)))
        for operation in map(formula.operations.__getitem__, order)
    )
    arrays = tuple((place, number[operation]) for place, operation in formula.arrays)
    return dataclasses.replace(formula, operations=tuple(operations), arrays=arrays)


class Interned:
    """Operations, each of them once."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._index: dict[Operation, int] = {}

    def add(self, operation: Operation) -> int:
        """Returns the index of an operation, which is new or known."""
        if operation not in self._index:
            self._index[operation] = len(self.operations)
            self.operations.append(operation)
        return self._index[operation]


def index_of(places: list[Item], place: Item) -> int:
    """Returns a place's index in a list, to which it is added if it is new."""
    if place not in places:
        places.append(place)
    return places.index(place)


def needed(operations: Sequence[Operation], results: Sequence[int]) -> list[int]:
    """Returns the operations that some results need, and these, in order."""
    order = {*results}
    for index in range(len(operations) - 1, -1, -1):
        if index in order:
            order |= {*operations[index].operands}
    return sorted(order)


def floats(operations: Sequence[Operation]) -> set[int]:
    """Returns the operations whose values are of the formula's dtype. The values of others are integers or booleans."""
    result: set[int] = set()
    for index, operation in enumerate(operations):
        if operation.opcode in ("array", "column"):
            same = not operation.text
        elif operation.opcode == "bitcast-convert":
            same = operation.text == "f32"
        elif operation.opcode == "select":
            same = operation.operands[1] in result
        elif operation.opcode in ("add", "subtract", "multiply"):
            same = operation.operands[0] in result
        else:
            same = operation.opcode not in ("and", "compare", "integer", "iota", "is-finite", "not", "or", "shift-left")
        if same:
            result.add(index)
    return result


def wholes(operations: Sequence[Operation]) -> set[int]:
    """Returns the operations that have a value for each column, not one for the whole row."""
    whole: set[int] = set()
    for index, operation in enumerate(operations):
        if operation.opcode in ("array", "column", "iota") or (
            operation.opcode not in REDUCTIONS and whole & {*operation.operands}
        ):
            whole.add(index)
    return whole
