"""What thunks read and write, as far as it is known."""

from __future__ import annotations

from collections.abc import Container

from tfaot.compile.program.thunks import Convolution, Copy, Dot, Kernel, Pack, Slice, Thunk, slices, walk

Place = tuple[Slice, int]
"""A part of a buffer, with its size in bytes."""


def accesses(thunk: Thunk, known: Container[str]) -> tuple[list[Place], list[Place]]:
    """Returns what a thunk may read, and what it writes. If its writes are unknown, all are reads.

    Args:
      thunk: with all thunks in it.
      known: the symbols of kernels with one result, which is their last argument.
    """
    reads = [each for inner in walk((thunk,)) for each in slices(inner)]
    if isinstance(thunk, Dot | Convolution):
        writes = [reads.pop(0)]
        if thunk.epilogue:
            writes.append(reads.pop(2))  # after the operands
        return reads, writes
    if isinstance(thunk, Copy | Pack):
        return reads[1:], reads[:1]
    if isinstance(thunk, Kernel) and thunk.symbol in known:
        return reads[:-1], reads[-1:]
    return reads, []


def overlap(a: Place, b: Place) -> bool:
    """Returns whether two places share a byte."""
    (one, size), (other, other_size) = a, b
    return one.buffer == other.buffer and one.offset < other.offset + other_size and other.offset < one.offset + size
