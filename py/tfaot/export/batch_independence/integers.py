"""Evaluates small integer arrays with known values, such as loop counters. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfaot.xla.module import Computation, Instruction, Module

Integers = tuple[int, ...]
"""The elements of a small array, flattened."""

_COMPUTED: Mapping[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "and": lambda a, b: a & b,
    "convert": lambda a: a,
    "copy": lambda a: a,
    "maximum": max,
    "minimum": min,
    "multiply": lambda a, b: a * b,
    "not": lambda a: 1 - a,
    "or": lambda a, b: a | b,
    "reshape": lambda a: a,
    "select": lambda a, b, c: b if a else c,
    "subtract": lambda a, b: a - b,
}
_COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "EQ": lambda a, b: a == b,
    "GE": lambda a, b: a >= b,
    "GT": lambda a, b: a > b,
    "LE": lambda a, b: a <= b,
    "LT": lambda a, b: a < b,
    "NE": lambda a, b: a != b,
}
_INTEGERS = frozenset(("pred", "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"))
_FEW = 16


def computed(instruction: Instruction, operands: Sequence[Integers | None]) -> Integers | None:
    """Computes an operation on small integer arrays. Returns None if the result is unknown or the operation not supported."""
    op, attributes = instruction.opcode, instruction.attributes
    if instruction.dtype not in _INTEGERS or instruction.count > _FEW or len(instruction.shape) > 1:
        return None
    if op == "constant":
        array = instruction.literal
        return None if array is None else tuple(int(value) for value in array.reshape(-1))
    constants = [operand for operand in operands if operand is not None]
    if len(constants) < len(operands) or not constants:
        return None
    if op == "slice":
        cuts = attributes.slice_dimensions  # a scalar has none
        return constants[0][cuts[0].start : cuts[0].limit : cuts[0].stride] if cuts else constants[0]
    if op == "broadcast" and len(constants[0]) == 1:
        return tuple(constants[0] * instruction.count)
    if op == "concatenate":
        return tuple(value for operand in constants for value in operand)
    if (op == "not" and instruction.dtype != "pred") or len({len(operand) for operand in constants}) > 1:
        return None
    if op == "compare":
        return tuple(int(_COMPARED[attributes.comparison_direction](*pair)) for pair in zip(*constants, strict=True))
    return tuple(_COMPUTED[op](*values) for values in zip(*constants, strict=True)) if op in _COMPUTED else None


def evaluated(module: Module, computation: Computation, parameters: Sequence[Any]) -> Any:
    """Evaluates a condition for these parameters. None stands for unknown values."""
    done: dict[str, Any] = {}

    def of(name: str) -> Any:
        if name not in done:
            done[name] = compute(computation.instructions[name])
        return done[name]

    def compute(instruction: Instruction) -> Any:
        op = instruction.opcode
        if op == "parameter":
            return parameters[instruction.number]
        operands = [of(operand) for operand in instruction.operands]
        if op == "tuple":
            return tuple(operands)
        if op == "get-tuple-element":
            return None if operands[0] is None else operands[0][instruction.attributes.tuple_index]
        if op == "call":
            return evaluated(module, module.computations[instruction.called[0]], operands)
        return computed(instruction, operands)

    return of(computation.root.name)
