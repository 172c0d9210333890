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
    signs = np.where(
        (np.arange(flat.size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(63), -1.0, 1.0
    )
    padded = np.zeros(blocks * BLOCK)
    np.multiply(flat, signs, out=padded[: flat.size])
    # One after another, as the generated test adds: where 64-bit integers round, the order shows.
    sums: Array = padded.reshape(blocks, BLOCK).cumsum(axis=1)[:, -1]
    return sums
