"""The pass `narrow`: stores the weights that the export stage has rounded in the bits that they need.

The weights of a product of few rows come from memory once for every run, so half the bytes take half the time. The kernels
widen values in registers, and compute in float32. Because values don't change here, a product only rounds its sums otherwise.

Applies to targets with `weights = {"dtype": …}` (docs/guide/weights.md). Without the pass, the rounded weights are stored in
float32, as are matrices in int8 of which a column has only values under 2.5e-29, because its factor would be denormal.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tfaot.compile.program.packing import layouts as packing
from tfaot.compile.program.packing.gemv_packing import pack, padded
from tfaot.compile.program.thunks.compiled import Compiled
from tfaot.compile.program.thunks.kinds import Dot, Product

SMALLEST = 4096
"""The fewest values of a matrix that is stored in fewer bits. Smaller ones are in a cache."""
_LARGEST = 127
"""The largest integer of int8 that has a negative."""
_UNIT = 2.0**-24
"""What the kernels' integers are multiples of, inverted: they have the value in the upper byte."""


def narrow(compiled: Compiled) -> int:
    """Stores the constants that have the values of a narrower dtype in that dtype, and returns how many."""
    if not compiled.weights:
        return 0
    packed = {"bfloat16": _bfloat16, "int8": _int8}[compiled.weights]
    return pack(compiled, compiled.weights, lambda product, _: _applies(product), packed)


def bfloat16_of(matrix: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16] | None:
    """Returns the upper 16 bits of values if the others are zero, otherwise None."""
    bits = np.ascontiguousarray(matrix).view(np.uint32)
    return None if (bits & 0xFFFF).any() else (bits >> 16).astype(np.uint16)


def int8_of(matrix: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]] | None:
    """Returns integers and a factor for each column whose products are exactly a matrix's values, or None.

    Args:
      matrix: float32[depth, columns].
    """
    if not np.isfinite(matrix).all():
        return None
    largest = np.abs(matrix).max(axis=0, initial=0)
    factors = np.ones(matrix.shape[1], np.float32)
    left = np.flatnonzero(largest)
    # The largest integer of a column is 127, unless the column is a part of the one that was rounded.
    for integer in range(_LARGEST, 0, -1):
        if not left.size:
            break
        factor = (largest[left] / np.float32(integer)).astype(np.float32)
        part = matrix[:, left]
        with np.errstate(all="ignore"):
            exact = (np.rint(part / factor) * factor == part).all(axis=0)
        factors[left[exact]] = factor[exact]
        left = left[~exact]
    if left.size:
        return None
    return np.rint(matrix / factors).astype(np.int8), factors


def _applies(product: Product) -> bool:
    return (
        isinstance(product, Dot)
        and product.dtype == "float"
        and product.batch == 1
        and product.k * product.m >= SMALLEST
    )


def _bfloat16(values: memoryview, product: Product) -> bytes | None:
    """Packs blocks of one row: word j of 16 has column j in its lower half, and column j + 16 in its upper half."""
    matrix = packing.values(values, product, np.float32)
    halves = bfloat16_of(matrix)
    if halves is None:
        return None
    filled = padded(halves, 1)
    depth, columns = filled.shape
    blocks = filled.reshape(depth, columns // packing.STREAM, 2, 16).transpose(1, 0, 3, 2)
    return _smaller(blocks.tobytes(), values)


def _int8(values: memoryview, product: Product) -> bytes | None:
    """Packs factors, and blocks of two rows: word j of 16 has columns j and j + 16 of the first row, and of the second."""
    matrix = packing.values(values, product, np.float32)
    quantized = int8_of(matrix)
    if quantized is None:
        return None
    integers, factors = quantized
    filled = padded(integers, 2)
    depth, columns = filled.shape
    blocks = filled.reshape(depth // 2, 2, columns // packing.STREAM, 2, 16).transpose(2, 0, 4, 1, 3)
    scale = np.zeros(columns, np.float32)
    scale[: len(factors)] = factors * np.float32(_UNIT)
    if (scale[: len(factors)] < np.finfo(np.float32).tiny).any():
        return None  # the kernels would take denormal factors for zero
    return _smaller(scale.tobytes() + blocks.tobytes(), values)


def _smaller(contents: bytes, values: memoryview) -> bytes | None:
    """Returns None if the last panel is so empty that nothing is saved."""
    return contents if len(contents) < len(values) else None
