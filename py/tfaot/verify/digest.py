"""The parts of a result that goldens keep: all of it, or samples and sums if it is large.

A result with more than `FULL` values isn't kept whole, because weights would make the goldens hundreds of megabytes. Goldens keep
`SAMPLES` evenly spaced values, and for every `BLOCK` consecutive values, their sum with fixed, seemingly random signs. Rounding
errors in a block mostly cancel. So its sum reveals any single value that is off by about eight times the value's own tolerance, in
a thirty-second of the space.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

FULL = 16384
"""Results with up to this many values are kept whole. runtime/tfaot/verify.h has the same numbers."""
SAMPLES = 1024
BLOCK = 64
CHUNK = 2048
"""How many blocks are summed at a time, so that they stay in the CPU's cache."""
BLOCKS = "/blocks"
"""Suffix of the sums' name."""


def digest(value: Array) -> dict[str, Array]:
    """Returns the parts of a result, by suffix of its name: the value itself, or samples and block sums."""
    value = reals(value)
    if value.size <= FULL:
        return {"": value}
    flat = value.reshape(-1)
    return {"": flat[(np.arange(SAMPLES) * flat.size) // SAMPLES].copy(), BLOCKS: block_sums(flat)}


def reals(value: Array) -> Array:
    """Returns the value itself, or for complex numbers, pairs of reals along a new last dimension."""
    if value.dtype.kind != "c":
        return value
    return np.ascontiguousarray(value).reshape(-1).view(value.real.dtype).reshape((*value.shape, 2))


def block_sums(flat: Array) -> Array:
    """Returns sums of `BLOCK` consecutive values, float64. Value i is negated if the top bit of i times 2^64/phi is set."""
    blocks = -(-flat.size // BLOCK)
    sums = np.zeros(blocks)
    for first in range(0, blocks, CHUNK):
        part = flat[first * BLOCK : (first + CHUNK) * BLOCK]
        signs = _signs(first * BLOCK, part.size)
        padded = np.zeros(-(-part.size // BLOCK) * BLOCK)
        np.multiply(part, signs, out=padded[: part.size])
        # Along the first axis, NumPy adds one value after another, like the generated test. The order matters where 64-bit
        # integers round.
        columns = np.ascontiguousarray(padded.reshape(-1, BLOCK).T)
        np.add.reduce(columns, axis=0, out=sums[first : first + CHUNK])
    return sums


@functools.lru_cache(maxsize=16)
def _signs(first: int, size: int) -> Array:
    """Returns the signs of `size` values, starting at a flat index."""
    index = np.arange(first, first + size, dtype=np.uint64)
    top: Array = (index * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
    return np.where(top < 0, -1.0, 1.0)
