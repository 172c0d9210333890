"""Kernels that only copy values of one array in another order."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tfaot.compile.program.values.graph import Value

Order = npt.NDArray[np.int64]
"""Maps each output element to its source offset."""

_MOST_VALUES = 1 << 24
"""The size of a copy up to which its order fits well in the compile stage's memory."""
_OPS = ("bitcast", "copy", "reshape", "slice", "transpose")


def original(stored: Value) -> Value | None:
    """Returns the array of which a kernel only copies values, or None if it does anything else."""
    if stored.count > _MOST_VALUES:
        return None
    value = stored.operands[0]
    while value.place is None:
        if value.op not in _OPS or len(value.type.layout) != len(value.shape):
            return None
        value = value.operands[0]
        if value.type.dtype != stored.type.dtype:
            return None
    return value if len(value.type.layout) == len(value.shape) else None


def order(stored: Value) -> Order:
    """Returns where each value of a copy comes from, if it has an `original`."""
    return _in_memory(_indices(stored.operands[0]), stored)


def _indices(value: Value) -> Order:
    """Returns a value if each value of the original is its own index in memory."""
    if value.place is not None:
        return _of_array(value, [(0, size, 1) for size in value.shape])
    operand = value.operands[0]
    if value.op == "slice" and operand.place is not None:  # which can be much larger
        return _of_array(operand, value.ranges)
    indices = _indices(operand)
    if value.op == "slice":
        return indices[tuple(slice(*ends) for ends in value.ranges)]
    if value.op == "transpose":
        return indices.transpose(value.dims)
    if value.op == "bitcast":
        slowest_first = value.type.layout[::-1]
        memory = _in_memory(indices, operand).reshape([value.shape[dimension] for dimension in slowest_first])
        return memory.transpose(np.argsort(slowest_first))
    return indices.reshape(value.shape)


def _of_array(array: Value, ranges: Sequence[tuple[int, ...]]) -> Order:
    """Returns the indices in memory of some of an array's values, from a range of each dimension."""
    distances, distance = [0] * len(ranges), 1
    for dimension in array.type.layout:
        distances[dimension] = distance
        distance *= array.shape[dimension]
    along = (np.arange(*ends) * distance for ends, distance in zip(ranges, distances, strict=True))
    return functools.reduce(np.add.outer, along, np.array(0))


def _in_memory(indices: Order, value: Value) -> Order:
    """Returns a value in memory order."""
    return indices.transpose(value.type.layout[::-1]).ravel()
