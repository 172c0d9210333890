"""What thunks read and write, as far as it is known."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from tfaot.compile.program.thunks.kinds import Place, Slice, Thunk, Uses


def overlap(a: Place, b: Place) -> bool:
    """Returns whether two places have bytes in common."""
    (one, size), (other, other_size) = a, b
    return one.buffer == other.buffer and one.offset < other.offset + other_size and other.offset < one.offset + size


def is_read(place: Place, after: Sequence[Thunk]) -> bool:
    """Returns whether a thunk may read a place before all of it is overwritten."""
    return _left(place, (thunk.uses() for thunk in after)) is None


def is_needed(place: Place, after: Sequence[Thunk], temporary: Container[int]) -> bool:
    """Returns whether anything may read a place before all of it is overwritten: a thunk, or whoever has its buffer later.

    Args:
      place: where the bytes are.
      after: the thunks that follow, up to the end of a run.
      temporary: the buffers that nobody has after a run.
    """
    return is_used(place, (thunk.uses() for thunk in after), temporary)


def is_used(place: Place, after: Iterable[Uses], temporary: Container[int]) -> bool:
    """Returns whether anything may read a place before all of it is overwritten, like `is_needed`.

    Args:
      place: where the bytes are.
      after: what each thunk that follows uses.
      temporary: the buffers that nobody has after a run.
    """
    left = _left(place, after)
    return left is None or (bool(left) and place[0].buffer not in temporary)


def _left(place: Place, after: Iterable[Uses]) -> list[Place] | None:
    """Returns what of a place isn't overwritten, or None if something may read any of it before."""
    rest = [place]
    for uses in after:
        if any(overlap(each, read) for each in rest for read in uses.reads):
            return None
        rest = [part for each in rest for part in without(each, uses.writes)]
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
