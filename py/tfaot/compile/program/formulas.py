"""Reads the optimized HLO to find XLA's elementwise kernels, and what each of them computes.

The reader is strict: a kernel has no formula if it does anything but arithmetic, value by value. A formula names every
rounding, including those that XLA leaves out by fusing a product with a sum, so that code for it gives the same bits as
XLA's vectors. (For the values of a row after its last whole vector, LLVM sometimes fuses the other of two products.)
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence

from tfaot.compile.program.instructions import Computation, Instruction, fusions

DTYPES = {"f32": "float", "f64": "double"}
"""The dtypes that formulas have, with their names in C++."""

OPCODES = {
    "abs",
    "add",
    "clamp",
    "divide",
    "maximum",
    "minimum",
    "multiply",
    "negate",
    "rsqrt",
    "select",
    "sqrt",
    "subtract",
}
"""HLO's operations of values that formulas have, besides comparisons."""
_DIRECTION = re.compile(r"^, direction=(EQ|NE|GE|GT|LE|LT)\b")


@dataclasses.dataclass(frozen=True)
class Operation:
    """A step of a formula: HLO's opcode, or one of these.

    - `array`, `scalar`: reads the array or the single value with the number `place`.
    - `constant`: the number that `text` has. `compare` has its direction there.
    - `multiply_add`: a * b + c, rounded once. `multiply_subtract` is a * b - c, and `subtract_product` c - a * b.
    - `stored`: another operation's result as a later kernel reads it.
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


def elementwise(hlo: str) -> dict[str, Elementwise | None]:
    """Finds a module's kernels with one result, which is their last argument.

    Args:
      hlo: the text of a module after XLA's optimizations.

    Returns:
      What each kernel computes, by its symbol; None if no formula describes it. A kernel that isn't listed may have any
      number of results.
    """
    return {kernel: _read(fusion.computation) for kernel, fusion in fusions(hlo).items()}


def _read(computation: Computation) -> Elementwise | None:
    """Returns what a kernel's computation does, if it is elementwise."""
    root = computation.instructions.get(computation.root)
    if not computation.complete or root is None or root.dtype not in DTYPES or root.count <= 1:
        return None
    parameters = {
        int(each.operands[0]): each for each in computation.instructions.values() if each.opcode == "parameter"
    }
    arrays = [number for number, each in sorted(parameters.items()) if each.count == root.count]
    scalars = [number for number, each in sorted(parameters.items()) if not each.shape]
    operations: list[Operation] = []
    found: dict[str, int] = {}
    for instruction in computation.instructions.values():
        operands = [computation.instructions.get(name) for name in instruction.operands]
        if instruction.opcode in ("bitcast", "broadcast") and _same_value(instruction, operands[0], root.count):
            found[instruction.name] = found[instruction.operands[0]]
            continue
        operation = _operation(instruction, operands, found, root, arrays, scalars)
        if operation is None:
            return None
        found[instruction.name] = len(operations)
        operations.append(operation)
    if len(arrays) + len(scalars) != len(parameters):
        return None
    result = found[root.name]
    formula = live(Formula(DTYPES[root.dtype], contracted(operations, result), ((len(arrays), result),)))
    return Elementwise(formula, root.count, (*arrays, len(parameters)), tuple(scalars), len(parameters) + 1)


def _same_value(instruction: Instruction, operand: Instruction | None, count: int) -> bool:
    """Returns whether each of an instruction's values is its operand's in the same place, or its operand's only one."""
    if operand is None or instruction.dtype != operand.dtype:
        return False
    if instruction.opcode == "bitcast":
        return instruction.count == operand.count
    return not operand.shape and instruction.count == count


def _operation(
    instruction: Instruction,
    operands: Sequence[Instruction | None],
    found: dict[str, int],
    root: Instruction,
    arrays: Sequence[int],
    scalars: Sequence[int],
) -> Operation | None:
    """Returns an instruction as an operation, or None if a formula can't have it."""
    opcode = instruction.opcode
    if instruction.shape and instruction.count != root.count:
        return None
    if opcode == "parameter" and instruction.dtype == root.dtype:
        number = int(instruction.operands[0])
        if number in arrays:
            return Operation("array", place=arrays.index(number))
        return Operation("scalar", place=scalars.index(number))
    if opcode == "constant" and instruction.dtype == root.dtype and not instruction.shape:
        finite = re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?", instruction.operands[0])
        return Operation("constant", text=instruction.operands[0]) if finite else None
    known = [each for each in operands if each is not None]
    # The same index is the same place in all arrays only if they have the same shape and layout.
    if len(known) != len(operands) or any(
        (each.shape, each.layout) != (instruction.shape, instruction.layout) and (each.shape or opcode != "clamp")
        for each in known
    ):
        return None
    at = tuple(found[name] for name in instruction.operands)
    if opcode == "compare" and instruction.dtype == "pred" and all(each.dtype == root.dtype for each in known):
        return compared(instruction, at)
    if opcode not in OPCODES or instruction.dtype != root.dtype:
        return None
    wanted = ["pred", root.dtype, root.dtype] if opcode == "select" else [root.dtype] * len(known)
    return Operation(opcode, at) if [each.dtype for each in known] == wanted else None


def compared(instruction: Instruction, operands: tuple[int, ...]) -> Operation | None:
    """Returns a comparison of operations."""
    direction = _DIRECTION.match(instruction.rest)
    return Operation("compare", operands, text=direction[1]) if direction else None


def contracted(operations: Sequence[Operation], result: int) -> tuple[Operation, ...]:
    """Fuses products with sums, as LLVM does: a product with one use, and the left one if there are two."""
    uses = Counter(operand for operation in operations for operand in operation.operands)
    uses[result] += 1

    def fused(operation: Operation) -> Operation:
        if operation.opcode not in ("add", "subtract"):
            return operation
        left, right = operation.operands
        if operations[left].opcode == "multiply" and uses[left] == 1:
            opcode = "multiply_add" if operation.opcode == "add" else "multiply_subtract"
            return Operation(opcode, (*operations[left].operands, right))
        if operations[right].opcode == "multiply" and uses[right] == 1:
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
