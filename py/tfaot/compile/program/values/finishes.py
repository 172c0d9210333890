"""Reads the optimized HLO to find which XLA kernels only finish the result of a product or convolution before them.

A kernel's symbol comes from the name of its instruction. The reader is strict: any kernel that a `Finish` can't
describe exactly stays a kernel.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

from tfaot.compile.program.values.instructions import complete, fusions
from tfaot.xla.module import Computation, Instruction, Module


@dataclasses.dataclass(frozen=True)
class Finish:
    """What a kernel does to each value, as in `thunks.Epilogue`. Arguments are given by their indices."""

    value: int
    bias: int | None
    """Has one value for each column, the last dimension, like `addend_bias`."""
    addend: int | None
    """Has as many values as the result."""
    addend_bias: int | None
    low: float
    high: float
    columns: int
    arguments: int
    """The number of arguments. The last one is the result."""
    scale: float = 1.0


# The kinds of value that a kernel's instruction can have in an epilogue.
@dataclasses.dataclass(frozen=True)
class _Scalar:
    value: float


@dataclasses.dataclass(frozen=True)
class _Row:
    """A parameter with one value for each column."""

    parameter: int


@dataclasses.dataclass(frozen=True)
class _Scaled:
    """A parameter of the result's size, times a constant."""

    parameter: int
    factor: float


class _Way(NamedTuple):
    """A way to read a value: (value + bias) + (addend + addend_bias), or without biases, scale * value + addend."""

    value: int
    bias: int | None = None
    addend: int | None = None
    addend_bias: int | None = None
    scale: float = 1.0


@dataclasses.dataclass(frozen=True)
class _Full:
    """A parameter of the result's size, or a sum of two such parameters and their biases, or of one and another one scaled."""

    ways: tuple[_Way, ...]
    low: float = -math.inf
    high: float = math.inf

    @property
    def bounded(self) -> bool:
        return self.low != -math.inf or self.high != math.inf


@dataclasses.dataclass(frozen=True)
class _Below:
    """Whether a value, given by its instruction's name, is below a bound."""

    operand: str
    bound: float


_Value = _Scalar | _Row | _Full | _Scaled | _Below


def finishes(module: Module) -> dict[str, tuple[Finish, ...]]:
    """Finds a module's kernels with one result, which is their last argument, and how each of them finishes a value.

    Args:
      module: the module after XLA's optimizations.

    Returns:
      For each kernel's symbol, the ways to read it as a `Finish`; empty if there are none. A kernel that isn't listed
      may have any number of results.
    """
    return {
        kernel: _finishes(fusion.computation)
        for kernel, fusion in fusions(module).items()
        if _in_rows(fusion.instruction)
    }


def _in_rows(instruction: Instruction) -> bool:
    """Returns whether values are floats or logical, in the default layout, whose last index is adjacent in memory."""
    default = tuple(reversed(range(len(instruction.shape))))
    return instruction.dtype in ("f32", "f64", "pred") and instruction.layout == default


def _finishes(computation: Computation) -> tuple[Finish, ...]:
    """Returns the ways to read a kernel's computation as a `Finish`; empty if it does anything else."""
    root = computation.root
    # A reshape of a value that is already in rows, such as a flattening. The columns are those before it.
    while root.opcode == "bitcast":
        root = computation.instructions[root.operands[0]]
    readable = complete(computation) and all(map(_in_rows, computation.instructions.values()))
    if not readable or not root.shape:
        return ()
    columns, count = root.shape[-1], root.count
    values: dict[str, _Value | None] = {}
    for instruction in computation.instructions.values():
        operands = [values.get(operand) for operand in instruction.operands]
        values[instruction.name] = _value(instruction, operands, columns, count)
    result = values[root.name]
    if not isinstance(result, _Full) or not result.low <= result.high:
        return ()
    arguments = sum(each.opcode == "parameter" for each in computation.instructions.values()) + 1
    return tuple(Finish(*way[:-1], result.low, result.high, columns, arguments, way.scale) for way in result.ways)


def _value(instruction: Instruction, operands: list[_Value | None], columns: int, count: int) -> _Value | None:
    """Classifies an instruction for a result with this many columns and values. Returns None if it is unknown."""
    shape = instruction.shape
    whole = bool(shape) and shape[-1] == columns and instruction.count == count
    first = operands[0] if operands else None
    if instruction.dtype == "pred":
        below = instruction.opcode == "compare" and instruction.attributes.comparison_direction == "LT"
        return (
            _Below(instruction.operands[0], operands[1].value) if below and isinstance(operands[1], _Scalar) else None
        )
    if instruction.opcode == "parameter":
        if whole:
            return _Full((_Way(instruction.number),))
        return _Row(instruction.number) if instruction.count == columns else None
    if instruction.opcode == "constant" and not shape:
        return None if instruction.value is None or math.isnan(instruction.value) else _Scalar(instruction.value)
    if instruction.opcode == "bitcast":
        fits = (isinstance(first, _Full) and whole) or (isinstance(first, _Row) and instruction.count == columns)
        return first if fits else None
    if instruction.opcode == "broadcast":
        if isinstance(first, _Scalar):
            return first
        along_columns = instruction.dimensions == (len(shape) - 1,)
        return first if isinstance(first, _Row) and whole and along_columns else None
    if not whole:
        return None
    if instruction.opcode == "add":
        return _sum(first, operands[1])
    if instruction.opcode == "subtract":
        return _sum(first, _negative(operands[1]))
    if instruction.opcode == "multiply":
        return _scaled(first, operands[1]) or _scaled(operands[1], first)
    if instruction.opcode == "select" and isinstance(first, _Below):  # as the pass `prevent_duplication` writes a ReLU
        bound = operands[1]
        same = first.operand == instruction.operands[2] and isinstance(bound, _Scalar) and first.bound == bound.value
        return _bounded(operands[2], bound, _Scalar(math.inf)) if same else None
    if instruction.opcode == "clamp":
        return _bounded(operands[1], first, operands[2])
    if instruction.opcode in ("maximum", "minimum"):
        value, bound = (operands[1], first) if isinstance(first, _Scalar) else (first, operands[1])
        if instruction.opcode == "maximum":
            return _bounded(value, bound, _Scalar(math.inf))
        return _bounded(value, _Scalar(-math.inf), bound)
    return None


def _scaled(value: _Value | None, factor: _Value | None) -> _Value | None:
    if not isinstance(value, _Full) or not isinstance(factor, _Scalar) or value.bounded:
        return None
    (way, *others) = value.ways
    return _Scaled(way.value, factor.value) if not others and way == _Way(way.value) else None


def _negative(value: _Value | None) -> _Value | None:
    return _Scaled(value.parameter, -value.factor) if isinstance(value, _Scaled) else None


def _sum(a: _Value | None, b: _Value | None) -> _Value | None:
    if isinstance(a, _Row | _Scaled):
        a, b = b, a
    if not isinstance(a, _Full) or a.bounded:
        return None
    ways: list[_Way]
    # Two terms are interchangeable. With more terms, keep the order, because rounding depends on it.
    if isinstance(b, _Row):
        ways = [_Way(way.value, b.parameter) for way in a.ways if way == _Way(way.value)]
    elif isinstance(b, _Scaled):
        ways = [
            _Way(b.parameter, addend=way.value, scale=b.factor)
            for way in a.ways
            if way == _Way(way.value) and way.value != b.parameter
        ]
    elif isinstance(b, _Full) and not b.bounded:
        ways = [
            _Way(way.value, way.bias, other.value, other.bias)
            for one, two in ((a, b), (b, a))
            for way in one.ways
            for other in two.ways
            if way.addend is other.addend is None and way.value != other.value
        ]
    else:
        return None
    return _Full(tuple(ways)) if ways else None


def _bounded(value: _Value | None, low: _Value | None, high: _Value | None) -> _Value | None:
    if not isinstance(value, _Full) or not isinstance(low, _Scalar) or not isinstance(high, _Scalar):
        return None
    return _Full(value.ways, low.value, high.value) if not value.bounded else None
