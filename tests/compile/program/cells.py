"""Arithmetic modulo a prime, in place of floats: sums are the same in any order, and whatever differs shows.

Sums, differences, products, and extrema are exact. A quotient is a product with the reciprocal. Other functions are hashes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.xla.hlo import parsed
from tfaot.compile.program.values.formulas import REDUCTIONS, Operation
from tfaot.compile.program.values.instructions import Fusion, fusions, windows
from tfaot.xla.module import Instruction

Cells = npt.NDArray[np.int64]
Meaning = Callable[[Sequence[Cells]], Cells]
"""What a kernel computes of its arguments but the last, which is the result."""

PRIME = 2**31 - 1
NOTHING: Mapping[int, Cells] = {}


def function(name: str, *operands: Cells) -> Cells:
    """Returns something that depends on a name and on all operands."""
    result: Any = zlib.crc32(name.encode()) % PRIME
    for operand in operands:
        result = (result * 48271 + operand) % PRIME
    return np.asarray(result)


_EXACT: Mapping[str, Callable[..., Cells]] = {
    "add": lambda a, b: a + b,
    "clamp": lambda low, a, high: np.minimum(np.maximum(a, low), high),
    "divide": lambda a, b: a * function("reciprocal", b),
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": lambda a, b: a * b,
    "multiply_add": lambda a, b, c: a * b + c,
    "multiply_subtract": lambda a, b, c: a * b - c,
    "subtract": lambda a, b: a - b,
    "subtract_product": lambda a, b, c: c - a * b,
}


def constant(value: float) -> int:
    """Returns a constant. Fractions are multiples of 1/1024, and the least of all floats is 0."""
    return 0 if value == -np.inf else int(value if value == int(value) else value * 1024) % PRIME


def times(values: Cells, scale: float) -> Cells:
    """Returns scaled values."""
    return values * constant(scale) % PRIME


def evaluate(
    operations: Sequence[Operation], leaf: Callable[[Operation], Cells], reduced: Mapping[int, Cells] = NOTHING
) -> list[Cells]:
    """Returns what the operations of a formula compute.

    Args:
      operations: the operations.
      leaf: returns what those read that read memory.
      reduced: the reductions that earlier stages have computed, by their index.
    """
    values: list[Cells] = []
    for index, each in enumerate(operations):
        operands = [values[operand] for operand in each.operands]
        if index in reduced:
            value = reduced[index]
        elif each.opcode in ("array", "column", "row", "scalar"):
            value = leaf(each) % PRIME
        elif each.opcode in REDUCTIONS:
            combined: Any = {"sum": np.sum, "largest": np.max, "peak": np.max, "smallest": np.min}[each.opcode]
            value = np.asarray(combined(operands[0], 1, keepdims=True)) % PRIME
        elif each.opcode == "constant":
            value = np.asarray(constant(float(each.text)))
        else:
            value = _applied(each.opcode, each.text, operands)
        values.append(value)
    return values


def meanings(hlo: str) -> dict[str, Meaning]:
    """Returns what the kernels of a module compute, by symbol."""

    def meaning(fusion: Fusion) -> Meaning:
        return lambda args: _computed(fusion, args)

    return {symbol: meaning(fusion) for symbol, fusion in fusions(parsed(hlo)).items()}


def _applied(opcode: str, text: str, operands: Sequence[Cells]) -> Cells:
    exact = _EXACT.get(opcode)
    return exact(*operands) % PRIME if exact else function(opcode + text, *operands)


def _computed(fusion: Fusion, args: Sequence[Cells]) -> Cells:
    values: dict[str, Cells] = {}
    for each in fusion.instructions:
        if each.name in fusion.parameters:
            values[each.name] = args[fusion.parameters[each.name]].reshape(each.shape)
        elif each.opcode == "constant":
            values[each.name] = np.asarray(constant(each.value or 0))
        else:
            values[each.name] = _value(fusion, each, [values[operand] for operand in each.operands])
    return values[fusion.root]


def _value(fusion: Fusion, each: Instruction, operands: Sequence[Cells]) -> Cells:
    operand = operands[0]
    if each.opcode == "bitcast":
        return operand.reshape(each.shape)
    if each.opcode == "broadcast":
        sizes = [1] * len(each.shape)
        for axis, size in zip(each.dimensions, operand.shape, strict=True):
            sizes[axis] = size
        return np.broadcast_to(operand.reshape(sizes), each.shape)
    if each.opcode == "slice":
        return operand[tuple(slice(cut.start, cut.limit) for cut in each.attributes.slice_dimensions)]
    if each.opcode in ("reduce", "reduce-window"):
        combined = np.add.reduce if fusion.combined_by(each) == "add" else np.maximum.reduce
        if each.opcode == "reduce":
            return np.asarray(combined(operand, each.dimensions)) % PRIME
        pieces = windows(each, operand.shape)
        assert pieces
        padded = np.pad(operand, [(piece.before, piece.after) for piece in pieces])
        split = padded.reshape([size for n, piece in zip(each.shape, pieces, strict=True) for size in (n, piece.size)])
        return np.asarray(combined(split, (*range(1, split.ndim, 2),))) % PRIME
    return _applied(each.opcode, each.attributes.comparison_direction, operands)
