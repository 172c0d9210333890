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

FREE = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "reshape", "broadcast", "iota"})
"""Instructions that compute and copy nothing."""
_KERNELS = frozenset(
    {"dot", "convolution", "reduce", "reduce-window", "sort", "gather", "scatter", "fusion", "concatenate"}
)

REDUCTIONS = ("reduce", "reduce-window", "scatter", "select-and-scatter", "sort")
"""Instructions that do something for each value of an operand."""


def of(module: Module) -> float:
    """Estimates the seconds for a run of a module. A loop's body counts once."""
    return sum(
        _cost(instruction, [one.instructions[operand].type for operand in instruction.operands])
        for one in module.computations.values()
        for instruction in one.instructions.values()
    )


def arithmetic(instruction: Instruction, operands: Sequence[Shape]) -> int:
    """Returns the operations of an instruction, or one for each value if nothing else is known."""
    out, attributes = instruction.count, instruction.attributes
    if instruction.opcode in ("dot", "ragged-dot"):
        contracted = attributes.dot_dimension_numbers.lhs_contracting_dimensions
        return 2 * out * int(math.prod(operands[0].dims[axis] for axis in contracted))
    if instruction.opcode == "convolution":
        features = operands[1].dims[attributes.convolution_dimension_numbers.kernel_output_feature_dimension]
        return 2 * out * operands[1].count // max(1, int(features))
    return max(operands[0].count, out) if instruction.opcode in REDUCTIONS else out


def _cost(instruction: Instruction, operands: Sequence[Shape]) -> float:
    if instruction.opcode in FREE | {"call", "while"}:
        return 0.0
    moved = 4.0 * (instruction.count + sum(shape.count for shape in operands))
    work = arithmetic(instruction, operands)
    if instruction.opcode in _KERNELS:
        return CALL + max(work / FLOPS, moved / BYTES)
    # Elementwise instructions are fused: they cost arithmetic, but no traffic of their own.
    return work / FLOPS
