"""The pass `gemv_packing`: stores matrices in the order in which products of one row read them, as one stream.

XLA computes a product of one row in a kernel of its own, which reads pieces of rows that are far apart in memory. That is as
fast as a stream if the matrix is in the second-level cache. From memory, a stream takes a quarter less, and threads can share
the product. docs/internals/kernels.md has the measurements.

Applies to float32 matrices that are constants of at least 1 MB, or in loops of programs with code for x86-64-v4 of at least 128
KB, that have at most an eighth of empty columns in their last panel, and that nothing else reads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tfaot.compile.program.packing import layouts as packing
from tfaot.compile.program.thunks.compiled import Compiled
from tfaot.compile.program.thunks.kinds import Dot, For, Kernel, Product, Thunk, While, walk
from tfaot.compile.program.values.gemv import product

SMALLEST = 1 << 18
"""The fewest values of a matrix that is read faster as one stream: 1 MB of float32, which is as much as the second-level
cache of most CPUs, or more."""
SMALLEST_IN_LOOP = 1 << 15
"""The same for a matrix that a loop reads in each step, in programs with code for x86-64-v4. It doesn't fit in the first-level
cache, and XLA's vectors of 64 bytes read the second level more slowly than a stream does."""


def gemv_packing(compiled: Compiled) -> int:
    """Packs constant matrices that only products of one row read, and returns how many."""
    smallest_in_loop = SMALLEST_IN_LOOP if "x86-64-v4" in compiled.functions else SMALLEST

    def applies(product: Product, in_loop: bool) -> bool:
        return _applies(product, smallest_in_loop if in_loop else SMALLEST)

    return pack(compiled, "float32", applies, _float32)


def pack(
    compiled: Compiled,
    to: str,
    applies: Callable[[Product, bool], bool],
    packed: Callable[[memoryview, Product], bytes | None],
) -> int:
    """Packs matrices for the runtime's products of few rows, and returns how many.

    XLA's own kernels for a product of one row become calls of the runtime if their matrix is packed.

    Args:
      compiled: changed in place.
      to: one of `packing.STREAMS`.
      applies: whether the packing is faster for a product, and whether a loop runs that product.
      packed: as `packing.pack` has it.
    """
    before = compiled.functions
    compiled.replace(product)
    looped = {
        thunk
        for function in compiled.functions.values()
        for loop in walk(function.thunks)
        if isinstance(loop, For | While)
        for thunk in walk((loop,))
        if isinstance(thunk, Dot)
    }
    count = packing.pack(compiled, to, lambda dot: applies(dot, dot in looped), packed)
    # The others stay as XLA made them.
    compiled.functions = {
        isa: dataclasses.replace(function, thunks=_kept(function.thunks, before[isa].thunks))
        for isa, function in compiled.functions.items()
    }
    return count


def padded(matrix: npt.NDArray[np.generic], rows: int) -> npt.NDArray[np.generic]:
    """Adds zeros: columns up to a whole panel, and rows up to a whole block of some rows."""
    depth, columns = matrix.shape
    return np.pad(matrix, ((0, -depth % rows), (0, -columns % packing.STREAM)))


def _applies(dot: Product, smallest: int) -> bool:
    return (
        isinstance(dot, Dot)
        and dot.dtype == "float"
        and (dot.batch, dot.n) == (1, 1)
        and dot.k * dot.m >= smallest
        # Otherwise, zeros in the last panel are more to read than a stream saves.
        and -dot.m % packing.STREAM * 8 <= dot.m
    )


def _float32(values: memoryview, product: Product) -> bytes:
    return packing.panels(packing.values(values, product, np.uint32), packing.STREAM)


def _kept(after: tuple[Thunk, ...], before: tuple[Thunk, ...]) -> tuple[Thunk, ...]:
    """Returns thunks with the original kernels in place of products that aren't packed."""

    def kept(thunk: Thunk, original: Thunk) -> Thunk:
        if isinstance(original, Kernel):
            return thunk if isinstance(thunk, Dot) and thunk.packing != "none" else original
        bodies = iter(original.bodies)
        return thunk.with_bodies(lambda body: _kept(body, next(bodies)))

    return tuple(map(kept, after, before))
