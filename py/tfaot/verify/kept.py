"""What goldens keep of a result: all of it, or of a large one samples and sums.

A result of more than `FULL` values is not kept whole: weights would make goldens of hundreds of megabytes. Goldens keep
`SAMPLES` values, evenly spread, and for every `BLOCK` values in a row their sum with fixed, seemingly random signs.
Rounding errors in a block mostly cancel, so that its sum shows any single value that is off by about eight times what would be
tolerated of the value alone, at a thirty-second of the space.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

FULL = 16384
"""Results of up to this many values are kept whole. runtime/tfaot/verify.h has the same numbers."""
SAMPLES = 1024
BLOCK = 64
CHUNK = 2048
"""How many blocks are added up at a time, so that they stay in the CPU's cache."""
BLOCKS = "/blocks"
"""Suffix of the sums' name."""


def kept(value: Array) -> dict[str, Array]:
    """The parts of a result, by suffix of its name: the value itself, or samples and block sums."""
    value = reals(value)
    if value.size <= FULL:
        return {"": value}
    flat = value.reshape(-1)
    return {"": flat[(np.arange(SAMPLES) * flat.size) // SAMPLES].copy(), BLOCKS: block_sums(flat)}


def reals(value: Array) -> Array:
    """The value itself; of complex numbers, pairs of reals along a new last dimension."""
    if value.dtype.kind != "c":
        return value
    return np.ascontiguousarray(value).reshape(-1).view(value.real.dtype).reshape((*value.shape, 2))


def block_sums(flat: Array) -> Array:
    """Sums of `BLOCK` values in a row, float64; value i counts negatively if the top bit of i times 2^64/phi is set."""
    blocks = -(-flat.size // BLOCK)
    sums = np.zeros(blocks)
    for first in range(0, blocks, CHUNK):
        part = flat[first * BLOCK : (first + CHUNK) * BLOCK]
        signs = _signs(first * BLOCK, part.size)
        padded = np.zeros(-(-part.size // BLOCK) * BLOCK)
        np.multiply(part, signs, out=padded[: part.size])
        # Along the first axis NumPy adds one after another, as the generated test does: where 64-bit integers round, the order
        # shows.
        columns = np.ascontiguousarray(padded.reshape(-1, BLOCK).T)
        np.add.reduce(columns, axis=0, out=sums[first : first + CHUNK])
    return sums


def _signs(first: int, size: int) -> Array:
    """The signs of `size` values from a flat index on."""
    index = np.arange(first, first + size, dtype=np.uint64)
    top: Array = (index * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
    return np.where(top < 0, -1.0, 1.0)
