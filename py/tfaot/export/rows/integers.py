"""Evaluates small integer arrays with known values, such as loop counters. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfaot.export.rows.hlo import Module, literal

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
_INTEGERS = frozenset(range(1, 10))
"""`PRED` to `U64` in xla_data.proto."""
_FEW = 16


def computed(instruction: Any, operands: Sequence[Integers | None]) -> Integers | None:
    """Computes an operation on small integer arrays. Returns None if the result is unknown or the operation not supported."""
    shape, op = instruction.shape, instruction.opcode
    if shape.element_type not in _INTEGERS or math.prod(shape.dimensions) > _FEW or len(shape.dimensions) > 1:
        return None
    if op == "constant":
        array = literal(instruction)
        return None if array is None else tuple(int(value) for value in array.reshape(-1))
    known = [operand for operand in operands if operand is not None]
    if len(known) < len(operands) or not known:
        return None
    if op == "slice":
        (cut,) = instruction.slice_dimensions
        return known[0][cut.start : cut.limit : cut.stride]
    if op == "broadcast" and len(known[0]) == 1:
        return tuple(known[0] * math.prod(shape.dimensions))
    if op == "concatenate":
        return tuple(value for operand in known for value in operand)
    if (op == "not" and shape.element_type != 1) or len({len(operand) for operand in known}) > 1:
        return None
    if op == "compare":
        return tuple(int(_COMPARED[instruction.comparison_direction](*pair)) for pair in zip(*known, strict=True))
    return tuple(_COMPUTED[op](*values) for values in zip(*known, strict=True)) if op in _COMPUTED else None


def evaluated(module: Module, computation: int, parameters: Sequence[Any]) -> Any:
    """Evaluates a condition for these parameters. None stands for unknown values."""
    instructions = module.instructions[computation]
    done: dict[int, Any] = {}

    def of(number: int) -> Any:
        if number not in done:
            done[number] = compute(instructions[number])
        return done[number]

    def compute(instruction: Any) -> Any:
        op = instruction.opcode
        if op == "parameter":
            return parameters[instruction.parameter_number]
        operands = [of(operand) for operand in instruction.operand_ids]
        if op == "tuple":
            return tuple(operands)
        if op == "get-tuple-element":
            return None if operands[0] is None else operands[0][instruction.tuple_index]
        if op == "call":
            return evaluated(module, instruction.called_computation_ids[0], operands)
        return computed(instruction, operands)

    return of(module.computations[computation].root_id)
