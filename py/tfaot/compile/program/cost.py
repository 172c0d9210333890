"""Estimates the cost of a run of a compiled module from its HLO, well enough to compare batch sizes.

The estimate is a roofline. Every instruction takes the longer of its arithmetic at `FLOPS` and its memory traffic at
`BYTES`. Every instruction that becomes a kernel call takes `CALL` in addition. The constants are those of one core of a
current x86-64 server. Only their ratios matter, because the comparison is between sizes of the same model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tfaot.xla.module import Instruction, Module, Shape

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


def of(module: Module) -> float:
    """Estimates the seconds for a run of a module. A loop's body counts once."""
    return sum(
        _cost(instruction, [one.instructions[operand].type for operand in instruction.operands])
        for one in module.computations.values()
        for instruction in one.instructions.values()
    )


def _cost(instruction: Instruction, operands: Sequence[Shape]) -> float:
    if instruction.opcode in _FREE:
        return 0.0
    moved = 4.0 * (instruction.count + sum(shape.count for shape in operands))
    work = float(instruction.count)
    if instruction.opcode == "dot":
        contracted = instruction.attributes.dot_dimension_numbers.lhs_contracting_dimensions
        work *= 2.0 * math.prod(operands[0].dims[axis] for axis in contracted)
    elif instruction.opcode == "convolution":
        filters = operands[1].dims
        features = filters[instruction.attributes.convolution_dimension_numbers.kernel_output_feature_dimension]
        work *= 2.0 * math.prod(filters) / max(1, features)
    elif instruction.opcode.startswith("reduce") and operands:
        work = float(operands[0].count)
    if instruction.opcode in _KERNELS:
        return CALL + max(work / FLOPS, moved / BYTES)
    # Elementwise instructions are fused: they cost arithmetic, but no traffic of their own.
    return work / FLOPS
