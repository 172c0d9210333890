"""Reads the optimized HLO to find XLA's elementwise kernels, and what each of them computes.

The reader is strict: a kernel has no formula if it does anything but arithmetic, value by value. A formula names every
rounding, including those that XLA leaves out by fusing a product with a sum, so that code for it gives the same bits as
XLA's vectors. (For the values of a row after its last whole vector, LLVM sometimes fuses the other of two products.)
Exponentials and tanh are the runtime's own, with other last bits.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence

from tfaot.compile.program.values.instructions import complete, fusions
from tfaot.xla.module import Computation, Instruction, Module

DTYPES = {"f32": "float", "f64": "double"}
"""The dtypes that formulas have, with their names in C++."""

_OPCODES = {
    "abs",
    "add",
    "clamp",
    "divide",
    "maximum",
    "minimum",
    "multiply",
    "negate",
    "rsqrt",
    "sqrt",
    "subtract",
}
"""HLO's operations whose operands and result all have the formula's dtype."""
_OTHERS = {
    ("add", "s32", ("s32", "s32")),
    ("and", "s32", ("s32", "s32")),
    ("bitcast-convert", "f32", ("s32",)),
    ("bitcast-convert", "s32", ("f32",)),
    ("convert", "f32", ("s32",)),
    ("exponential", "f32", ("f32",)),
    ("shift-left", "s32", ("s32", "s32")),
    ("tanh", "f32", ("f32",)),
}
"""Operations that only formulas of float32 have, with the dtypes of results and operands: functions, and their bits."""
SLOW = ("divide", "exponential", "rsqrt", "sqrt", "tanh")
"""Opcodes of operations that take as long as moving a value."""
INTEGERS = ("and", "bitcast-convert", "convert", "shift-left")
"""Opcodes of operations that have integers. Integers are also added."""


@dataclasses.dataclass(frozen=True)
class Operation:
    """A step of a formula: HLO's opcode, or one of these.

    - `array`, `scalar`: reads the array or the single value with the number `place`.
    - `constant`: the number that `text` has. `compare` has its direction there, and `bitcast-convert` its result's dtype.
    - `integer`: a constant of 32 bits.
    - `multiply_add`: a * b + c, rounded once. `multiply_subtract` is a * b - c, and `subtract_product` c - a * b.
    """

    opcode: str
    operands: tuple[int, ...] = ()
    """Earlier operations, by their index."""
    place: int = -1
    text: str = ""


@dataclasses.dataclass(frozen=True)
class Formula:
    """What happens to the values with the same index in some arrays."""

    dtype: str
    """The C++ name of the dtype of all values."""
    operations: tuple[Operation, ...]
    results: tuple[tuple[int, int], ...]
    """The arrays that are written, with the operations that compute their values. All reads come before all writes."""


@dataclasses.dataclass(frozen=True)
class Elementwise:
    """A kernel that applies a formula. Its arguments are arrays of `count` values and single values; the result is the last."""

    formula: Formula
    count: int
    arrays: tuple[int, ...]
    """The arguments that are arrays: what the formula's places refer to."""
    scalars: tuple[int, ...]
    """The arguments that are single values."""
    arguments: int
    """The number of arguments."""


def elementwise(module: Module) -> dict[str, Elementwise | None]:
    """Finds a module's kernels with one result, which is their last argument.

    Args:
      module: the module after XLA's optimizations.

    Returns:
      What each kernel computes, by its symbol; None if no formula describes it. A kernel that isn't listed may have any
      number of results.
    """
    return {kernel: _read(fusion.computation) for kernel, fusion in fusions(module).items()}


def _read(computation: Computation) -> Elementwise | None:
    """Returns what a kernel's computation does, if it is elementwise."""
    root = computation.root
    if not complete(computation) or root.dtype not in DTYPES or root.count <= 1:
        return None
    parameters = {each.number: each for each in computation.instructions.values() if each.opcode == "parameter"}
    arrays = [number for number, each in sorted(parameters.items()) if each.count == root.count]
    scalars = [number for number, each in sorted(parameters.items()) if not each.shape]
    operations: list[Operation] = []
    found: dict[str, int] = {}
    for instruction in computation.instructions.values():
        operands = [computation.instructions[name] for name in instruction.operands]
        if instruction.opcode in ("bitcast", "broadcast") and _same_value(instruction, operands[0], root.count):
            found[instruction.name] = found[instruction.operands[0]]
            continue
        operation = _operation(instruction, operands, found, operations, root, arrays, scalars)
        if operation is None:
            return None
        found[instruction.name] = len(operations)
        operations.append(operation)
    if len(arrays) + len(scalars) != len(parameters):
        return None
    result = found[root.name]
    formula = live(Formula(DTYPES[root.dtype], _contracted(operations, (result,)), ((len(arrays), result),)))
    return Elementwise(formula, root.count, (*arrays, len(parameters)), tuple(scalars), len(parameters) + 1)


def _same_value(instruction: Instruction, operand: Instruction, count: int) -> bool:
    """Returns whether each of an instruction's values is its operand's in the same place, or its operand's only one."""
    if instruction.dtype != operand.dtype:
        return False
    if instruction.opcode == "bitcast":
        return instruction.count == operand.count
    return not operand.shape and instruction.count == count


def _operation(
    instruction: Instruction,
    operands: Sequence[Instruction],
    found: dict[str, int],
    operations: Sequence[Operation],
    root: Instruction,
    arrays: Sequence[int],
    scalars: Sequence[int],
) -> Operation | None:
    """Returns an instruction as an operation, or None if a formula can't have it."""
    opcode = instruction.opcode
    if instruction.shape and instruction.count != root.count:
        return None
    if opcode == "parameter" and instruction.dtype == root.dtype:
        if instruction.number in arrays:
            return Operation("array", place=arrays.index(instruction.number))
        return Operation("scalar", place=scalars.index(instruction.number))
    if opcode == "constant":
        return None if instruction.shape else constant(instruction, root.dtype)
    # The same index is the same place in all arrays only if they have the same shape and layout.
    if not operands or any(
        (each.shape, each.layout) != (instruction.shape, instruction.layout) and (each.shape or opcode != "clamp")
        for each in operands
    ):
        return None
    at = tuple(found[name] for name in instruction.operands)
    return arithmetic(instruction, [each.dtype for each in operands], at, operations, root.dtype)


def constant(instruction: Instruction, dtype: str) -> Operation | None:
    """Returns a finite constant for a formula of some dtype."""
    value = instruction.value
    if instruction.dtype not in (dtype, "s32") or value is None or not math.isfinite(value):
        return None
    return Operation("integer" if instruction.dtype == "s32" else "constant", text=str(value))


def arithmetic(
    instruction: Instruction,
    dtypes: Sequence[str],
    operands: tuple[int, ...],
    operations: Sequence[Operation],
    dtype: str,
) -> Operation | None:
    """Returns an instruction on values with the same index, or None if a formula can't have it.

    Args:
      instruction: the instruction.
      dtypes: the dtypes of its operands.
      operands: indices of the operations that compute them.
      operations: those operations.
      dtype: the formula's dtype.
    """
    opcode, result = instruction.opcode, instruction.dtype
    if opcode == "compare":
        direction = instruction.attributes.comparison_direction
        return Operation(opcode, operands, text=direction) if {*dtypes} == {dtype} else None
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
    return Operation(opcode, operands, text=result if opcode == "bitcast-convert" else "")


def least_alone(operations: Sequence[Operation]) -> int:
    """Returns the least number of values for which a kernel alone becomes a call, which threads can share, unlike XLA's kernels.

    On one thread, only exponentials and tanh are faster in a call than in XLA's kernels.
    """
    return 8192 if any(each.opcode in ("exponential", "tanh") for each in operations) else 65536


def _contracted(operations: Sequence[Operation], results: Sequence[int]) -> tuple[Operation, ...]:
    """Fuses products with sums, as LLVM does: a product with one use, and the left one if there are two.

    Args:
      operations: all operations.
      results: those that something else uses, too.
    """
    uses = Counter(operand for operation in operations for operand in operation.operands)
    uses.update(results)

    def fused(operation: Operation) -> Operation:
        if operation.opcode not in ("add", "subtract"):
            return operation
        left, right = operation.operands
        may_fuse = [operations[each].opcode == "multiply" and uses[each] == 1 for each in (left, right)]
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
    needed = {operation for _, operation in formula.results}
    for index, operation in reversed([*enumerate(formula.operations)]):
        if index in needed:
            needed |= {*operation.operands}
    number = {index: place for place, index in enumerate(sorted(needed))}
    return Formula(
        formula.dtype,
        tuple(
            dataclasses.replace(formula.operations[index], operands=tuple(map(number.__getitem__, each)))
            for index in sorted(needed)
            for each in [formula.operations[index].operands]
        ),
        tuple((place, number[operation]) for place, operation in formula.results),
    )
