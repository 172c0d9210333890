"""Reads the optimized HLO to find kernels that work on the rows of arrays: arithmetic value by value, and sums of rows.

The values of an array with the same index meet each other, one value for each column, and one for each row. The reader is
strict: it finds nothing in a kernel that does anything else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from tfaot.compile.program.values.formulas import INTEGERS, Operation, arithmetic, constant
from tfaot.compile.program.values.instructions import Fusion, fusions
from tfaot.xla.module import Instruction, Module

_Pieces = tuple[int, tuple[tuple[int, int], ...]]
"""An operation, and ranges of its columns that are added up."""


@dataclasses.dataclass(frozen=True)
class RowKernel:
    """What a kernel computes. Its last argument is the result.

    The opcodes of operations are those of a `Formula`, and more: `array` reads the value with the same index, `column` the one
    of the column, and `row` the one of the row, all from the argument `place`. `sum` adds up an operand's values of a row.
    """

    operations: tuple[Operation, ...]
    """The last one is the result."""
    count: int
    """The number of values in an array."""
    columns: int
    """The length of a row; 0 if any will do."""
    by_row: bool
    """Whether the result has one value for each row."""
    arguments: int


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

    def copy(self, operations: Sequence[Operation], last: int, leaf: Callable[[Operation], int | None]) -> int:
        """Adds an operation with all that it needs, and returns its index.

        Args:
          operations: what its operands refer to.
          last: the operation's index there.
          leaf: returns what takes the place of an operation, or None for a copy of it.
        """
        done: dict[int, int] = {}
        for index in needed(operations, (last,)):
            each = operations[index]
            other = leaf(each)
            if other is None:
                other = self.add(dataclasses.replace(each, operands=tuple(done[operand] for operand in each.operands)))
            done[index] = other
        return done[last]


def needed(operations: Sequence[Operation], results: Sequence[int]) -> list[int]:
    """Returns the operations that some results need, and these, in order."""
    found = {*results}
    for index in range(len(operations) - 1, -1, -1):
        if index in found:
            found |= {*operations[index].operands}
    return sorted(found)


def wholes(operations: Sequence[Operation]) -> set[int]:
    """Returns the operations that have a value for each column, not one for the whole row."""
    found: set[int] = set()
    for index, each in enumerate(operations):
        if each.opcode in ("array", "column") or (each.opcode != "sum" and found & {*each.operands}):
            found.add(index)
    return found


def row_kernels(module: Module) -> dict[str, RowKernel]:
    """Finds a module's kernels that work on rows of float32 arrays along the last axis.

    Args:
      module: the module after XLA's optimizations.

    Returns:
      What each kernel computes, by its symbol.
    """
    found = {kernel: _Reader(fusion).read() for kernel, fusion in fusions(module).items()}
    return {kernel: each for kernel, each in found.items() if each is not None}


class _Reader:
    """Reads one kernel's computation."""

    def __init__(self, fusion: Fusion) -> None:
        self._fusion = fusion
        self._all = fusion.computation.instructions
        self._formula = Interned()
        self._values: dict[str, int] = {}
        """The operations of instructions."""
        self._pieces: dict[str, _Pieces] = {}
        """Instructions whose values are only a part of a row's."""
        self._count = max((each.count for each in self._all.values()), default=0)
        self._columns = 0

    def read(self) -> RowKernel | None:
        """Returns what the kernel computes."""
        root = self._fusion.computation.root
        if root.dtype != "f32" or not self._fusion.row_major or not self._count:
            return None
        if not self._find_columns():
            return None
        for instruction in self._all.values():
            if not self._take(instruction):
                return None
        if root.name not in self._values:
            return None
        by_row = root.count != self._count
        last = self._values[root.name]
        operations = self._formula.operations
        if by_row:
            if not self._columns or root.count * self._columns != self._count:
                return None
            if not any(operations[index].opcode == "sum" for index in needed(operations, (last,))):
                return None
            last = self._along(last, "row")
        order = needed(operations, (last,))
        whole = wholes(operations)
        if any(
            operations[index].opcode == "vector"
            or (operations[index].opcode in ("compare", *INTEGERS) and index not in whole)
            for index in order
        ):
            return None
        number = {index: place for place, index in enumerate(order)}
        return RowKernel(
            tuple(
                dataclasses.replace(
                    operations[index], operands=tuple(number[each] for each in operations[index].operands)
                )
                for index in order
            ),
            self._count,
            self._columns,
            by_row,
            self._fusion.arguments,
        )

    def _find_columns(self) -> bool:
        """Sets the length of a row. Returns False if instructions disagree about it."""
        found = set()
        for each in self._all.values():
            whole = each
            if each.opcode in ("reduce", "slice"):
                whole = self._fusion.operand(each, 0)
            elif each.opcode != "broadcast" or self._fusion.operand(each, 0).count in (1, each.count):
                continue
            if whole.count == self._count:
                found.add(whole.shape[-1] if whole.shape else 0)
        self._columns = found.pop() if len(found) == 1 else 0
        return not found and self._columns != 1

    def _take(self, instruction: Instruction) -> bool:
        """Reads an instruction. Returns whether that was possible."""
        opcode, name = instruction.opcode, instruction.name
        if opcode == "parameter":
            return self._parameter(instruction)
        if opcode == "constant":
            value = None if instruction.shape else constant(instruction, "f32")
            if value is not None:
                self._values[name] = self._formula.add(value)
            return value is not None
        if not instruction.operands:  # such as iota
            return False
        operands = [self._fusion.operand(instruction, index) for index in range(len(instruction.operands))]
        if opcode == "bitcast" and instruction.dtype == operands[0].dtype:
            return self._same(instruction, operands[0])
        if opcode == "broadcast":
            return self._broadcast(instruction, operands[0])
        if opcode == "slice":
            return self._slice(instruction, operands[0])
        if opcode == "reduce":
            return self._reduce(instruction, operands)
        if any(each.name in self._pieces for each in operands):
            return self._add_pieces(instruction, operands)
        operation = self._operation(instruction, operands)
        if operation is None:
            return False
        self._values[name] = self._formula.add(operation)
        return True

    def _parameter(self, instruction: Instruction) -> bool:
        if instruction.dtype != "f32":
            return False
        opcode = "array" if instruction.count == self._count else "vector" if instruction.shape else "scalar"
        self._values[instruction.name] = self._formula.add(Operation(opcode, place=instruction.number))
        return True

    def _same(self, instruction: Instruction, operand: Instruction) -> bool:
        if operand.name not in self._values or instruction.count != operand.count:
            return False
        self._values[instruction.name] = self._values[operand.name]
        return True

    def _broadcast(self, instruction: Instruction, operand: Instruction) -> bool:
        if not operand.shape or instruction.count == operand.count:
            if operand.name not in self._values:
                return False
            self._values[instruction.name] = self._values[operand.name]
            return True
        if instruction.count != self._count or operand.name not in self._values or operand.dtype != "f32":
            return False
        dimensions, last = instruction.dimensions, len(instruction.shape) - 1
        if not self._columns:
            return False
        if dimensions == (last,):
            along = "column"
        elif last not in dimensions and [*dimensions] == sorted(dimensions):
            along = "row"
        else:
            return False
        if operand.count != (self._columns if along == "column" else self._count // self._columns):
            return False
        used = needed(self._formula.operations, (self._values[operand.name],))
        if along == "column" and any(self._formula.operations[each].opcode == "sum" for each in used):
            return False
        self._values[instruction.name] = self._along(self._values[operand.name], along)
        return True

    def _along(self, last: int, opcode: str) -> int:
        """Returns an operation on vectors with its place in an array known: a value for each column, or for each row."""

        def leaf(operation: Operation) -> int | None:
            if operation.opcode == "vector":
                return self._formula.add(Operation(opcode, place=operation.place))
            return None

        return self._formula.copy([*self._formula.operations], last, leaf)

    def _slice(self, instruction: Instruction, operand: Instruction) -> bool:
        cuts = instruction.attributes.slice_dimensions
        ranges = [(cut.start, cut.limit) for cut in cuts]
        *others, last = operand.shape or (0,)
        if operand.count != self._count or operand.name not in self._values or any(cut.stride > 1 for cut in cuts):
            return False
        if last != self._columns or ranges[:-1] != [(0, size) for size in others]:
            return False
        self._pieces[instruction.name] = self._values[operand.name], (ranges[-1],)
        return True

    def _add_pieces(self, instruction: Instruction, operands: Sequence[Instruction]) -> bool:
        if instruction.opcode != "add" or any(each.name not in self._pieces for each in operands):
            return False
        (value, one), (other, two) = (self._pieces[each.name] for each in operands)
        self._pieces[instruction.name] = value, (*one, *two)
        return value == other

    def _reduce(self, instruction: Instruction, operands: Sequence[Instruction]) -> bool:
        values = operands[0]
        if instruction.dimensions != (len(values.shape) - 1,) or self._fusion.combined_by(instruction) != "add":
            return False
        if self._fusion.constant(operands[1]) != 0 or instruction.count * self._columns != self._count:
            return False
        if values.name in self._pieces:
            value, ranges = self._pieces[values.name]
            ends = [0, *(end for _, end in sorted(ranges))]
            if [begin for begin, _ in sorted(ranges)] != ends[:-1] or ends[-1] != self._columns:
                return False
        elif values.count == self._count and values.name in self._values:
            value = self._values[values.name]
        else:
            return False
        self._values[instruction.name] = self._formula.add(Operation("sum", (value,)))
        return True

    def _operation(self, instruction: Instruction, operands: Sequence[Instruction]) -> Operation | None:
        """Returns arithmetic on values with the same index."""
        if any(each.shape != instruction.shape or each.name not in self._values for each in operands):
            return None
        at = tuple(self._values[each.name] for each in operands)
        return arithmetic(instruction, [each.dtype for each in operands], at, self._formula.operations, "f32")
