"""Reads the optimized HLO to find the XLA kernels that only copy values of one array in another order.

The reader is strict: any other kernel isn't listed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tfaot.compile.program.values.instructions import complete, fusions
from tfaot.xla.module import Computation, Instruction, Module

Order = npt.NDArray[np.int64]
"""Maps each output element to its source offset."""

_MOST_VALUES = 1 << 24
"""The size of a copy up to which its order fits well in the compile stage's memory."""
_OPCODES = {"parameter", "slice", "bitcast", "reshape", "transpose", "copy"}


def copies(module: Module) -> dict[str, Computation]:
    """Finds a module's kernels with one argument besides the result, of which they copy values.

    Args:
      module: the module after XLA's optimizations.

    Returns:
      What each kernel computes, by its symbol. Pass it to `order`.
    """
    return {kernel: fusion.computation for kernel, fusion in fusions(module).items() if _is_copy(fusion.computation)}


def order(copy: Computation) -> Order:
    """Returns where each value of a copy comes from, for one of the `copies`."""
    return _in_memory(_value(copy.root, copy.instructions), copy.root)


def _is_copy(computation: Computation) -> bool:
    found = [*computation.instructions.values()]
    return (
        complete(computation)
        and {each.opcode for each in found} <= _OPCODES
        and computation.root.count <= _MOST_VALUES
        and len({each.dtype for each in found}) == 1
        and sum(each.opcode == "parameter" for each in found) == 1
        and all(len(each.layout) == len(each.shape) for each in found)
    )


def _value(instruction: Instruction, known: Mapping[str, Instruction]) -> Order:
    """Returns what an instruction computes if each value of the parameter is its own index in memory."""
    if instruction.opcode == "parameter":
        return _indices(instruction, [(0, size, 1) for size in instruction.shape])
    operand = known[instruction.operands[0]]
    if instruction.opcode == "slice":
        ranges = [(cut.start, cut.limit, cut.stride or 1) for cut in instruction.attributes.slice_dimensions]
        if operand.opcode == "parameter":  # which can be much larger
            return _indices(operand, ranges)
        return _value(operand, known)[tuple(slice(*each) for each in ranges)]
    value = _value(operand, known)
    if instruction.opcode == "transpose":
        return value.transpose(instruction.dimensions)
    if instruction.opcode == "bitcast":
        return _of_memory(_in_memory(value, operand), instruction)
    return value.reshape(instruction.shape)


def _indices(parameter: Instruction, ranges: Sequence[tuple[int, int, int]]) -> Order:
    """Returns the indices in memory of some of a parameter's values, from a range of each dimension."""
    distances, distance = [0] * len(ranges), 1
    for dimension in parameter.layout:
        distances[dimension] = distance
        distance *= parameter.shape[dimension]
    along = (np.arange(*each) * distance for each, distance in zip(ranges, distances, strict=True))
    return functools.reduce(np.add.outer, along, np.array(0))


def _in_memory(value: Order, instruction: Instruction) -> Order:
    """Returns an instruction's value in memory order."""
    return value.transpose(instruction.layout[::-1]).ravel()


def _of_memory(memory: Order, instruction: Instruction) -> Order:
    """Returns an instruction's value, given in memory order."""
    slowest_first = instruction.layout[::-1]
    value = memory.reshape([instruction.shape[dimension] for dimension in slowest_first])
    return value.transpose(np.argsort(slowest_first))
