"""Estimates the cost of a run of a compiled module from its HLO, well enough to compare batch sizes.

The estimate is a roofline. Every instruction takes the longer of its arithmetic at `FLOPS` and its memory traffic at
`BYTES`. Every instruction that becomes a kernel call takes `CALL` in addition. The constants are those of one core of a
current x86-64 server. Only their ratios matter, because the comparison is between sizes of the same model.
"""

from __future__ import annotations

import math
from typing import Any

FLOPS = 5e10
"""Arithmetic operations per second."""
BYTES = 1e10
"""Bytes moved per second."""
CALL = 2e-7
"""Seconds per kernel call."""

_FREE = frozenset(
    {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "reshape", "broadcast", "iota", "call", "while"}
)
_KERNELS = frozenset(
    {"dot", "convolution", "reduce", "reduce-window", "sort", "gather", "scatter", "fusion", "concatenate"}
)


def of(module: Any) -> float:
    """Estimates the seconds for a run of an `xla.HloModuleProto`. A loop's body counts once."""
    total = 0.0
    for computation in module.computations:
        # The upper half of an id is its computation's id. Operands are named by the lower half.
        shapes = {instruction.id & 0xFFFFFFFF: instruction.shape for instruction in computation.instructions}
        total += sum(_cost(instruction, shapes) for instruction in computation.instructions)
    return total


def _cost(instruction: Any, shapes: dict[int, Any]) -> float:
    if instruction.opcode in _FREE:
        return 0.0
    operands = [shapes[operand & 0xFFFFFFFF] for operand in instruction.operand_ids]
    moved = 4.0 * (_count(instruction.shape) + sum(_count(shape) for shape in operands))
    work = float(_count(instruction.shape))
    if instruction.opcode == "dot":
        contracted = instruction.dot_dimension_numbers.lhs_contracting_dimensions
        work *= 2.0 * math.prod(operands[0].dimensions[axis] for axis in contracted)
    elif instruction.opcode == "convolution":
        numbers = instruction.convolution_dimension_numbers
        filters = operands[1].dimensions
        work *= 2.0 * math.prod(filters) / max(1, filters[numbers.kernel_output_feature_dimension])
    elif instruction.opcode.startswith("reduce") and operands:
        work = float(_count(operands[0]))
    if instruction.opcode in _KERNELS:
        return CALL + max(work / FLOPS, moved / BYTES)
    # Elementwise instructions are fused: they cost arithmetic, but no traffic of their own.
    return work / FLOPS


def _count(shape: Any) -> int:
    if shape.tuple_shapes:
        return sum(_count(part) for part in shape.tuple_shapes)
    return math.prod(shape.dimensions)
