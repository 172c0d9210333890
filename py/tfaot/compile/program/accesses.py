"""What thunks read and write, as far as it is known."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

from tfaot.compile.program.thunks import (
    ColumnSums,
    Convolution,
    Copy,
    DenseNet,
    Dot,
    FilterGradient,
    Kernel,
    Pack,
    RowCopies,
    RowSweep,
    Slice,
    Softmax,
    Sweep,
    Thunk,
    slices,
    walk,
)

Place = tuple[Slice, int]
"""Where bytes are, and how many."""


def accesses(thunk: Thunk, single: Container[str]) -> tuple[list[Place], list[Place]]:
    """Returns what a thunk may read, and what it writes. If its writes are unknown, all are reads.

    Args:
      thunk: with all thunks in it.
      single: the symbols of kernels with one result, which is their last argument.
    """
    reads = [each for inner in walk((thunk,)) for each in slices(inner)]
    if isinstance(thunk, Dot | Convolution):
        writes = [reads.pop(0)]
        if thunk.epilogue:
            writes.append(reads.pop(2))  # after the operands
        return reads, writes
    if isinstance(thunk, ColumnSums | Copy | FilterGradient | Pack | RowCopies | Softmax):
        return reads[1:], reads[:1]
    if isinstance(thunk, DenseNet):
        return reads[len(thunk.layers) :], reads[: len(thunk.layers)]
    if isinstance(thunk, Sweep):
        return reads, [reads[array] for array in thunk.written]
    if isinstance(thunk, RowSweep):
        first = len(thunk.arrays) + len(thunk.vectors)
        values = (first + place for place, _ in thunk.formula.values)
        return reads, [reads[place] for place in (*(place for place, _ in thunk.formula.arrays), *values)]
    if isinstance(thunk, Kernel) and thunk.symbol in single:
        return reads[:-1], reads[-1:]
    return reads, []


def overlap(a: Place, b: Place) -> bool:
    """Returns whether two places have bytes in common."""
    (one, size), (other, other_size) = a, b
    return one.buffer == other.buffer and one.offset < other.offset + other_size and other.offset < one.offset + size


def is_read(place: Place, after: Sequence[Thunk], single: Container[str]) -> bool:
    """Returns whether a thunk may read a place before all of it is overwritten."""
    return _left(place, _each(after, single)) is None


def is_needed(place: Place, after: Sequence[Thunk], single: Container[str], temporary: Container[int]) -> bool:
    """Returns whether anything may read a place before all of it is overwritten: a thunk, or whoever has its buffer later.

    Args:
      place: where the bytes are.
      after: the thunks that follow, up to the end of a run.
      single: as in `accesses`.
      temporary: the buffers that nobody has after a run.
    """
    return is_used(place, _each(after, single), temporary)


def is_used(place: Place, after: Iterable[tuple[Sequence[Place], Sequence[Place]]], temporary: Container[int]) -> bool:
    """Returns whether anything may read a place before all of it is overwritten, like `is_needed`.

    Args:
      place: where the bytes are.
      after: what each thunk that follows may read, and what it writes.
      temporary: the buffers that nobody has after a run.
    """
    left = _left(place, after)
    return left is None or (bool(left) and place[0].buffer not in temporary)


def _each(thunks: Sequence[Thunk], single: Container[str]) -> Iterator[tuple[list[Place], list[Place]]]:
    return (accesses(thunk, single) for thunk in thunks)


def _left(place: Place, after: Iterable[tuple[Sequence[Place], Sequence[Place]]]) -> list[Place] | None:
    """Returns what of a place isn't overwritten, or None if something may read any of it before."""
    rest = [place]
    for reads, writes in after:
        if any(overlap(each, read) for each in rest for read in reads):
            return None
        rest = [part for each in rest for part in without(each, writes)]
        if not rest:
            break
    return rest


def without(place: Place, writes: Sequence[Place]) -> list[Place]:
    """Returns what is left of a place after some writes."""
    left = [place]
    for written in writes:
        parts = []
        for at, size in left:
            if not overlap((at, size), written):
                parts.append((at, size))
                continue
            first, last = written[0].offset, written[0].offset + written[1]
            parts += [(at, first - at.offset), (Slice(at.buffer, last), at.offset + size - last)]
        left = [(at, size) for at, size in parts if size > 0]
    return left
