"""What thunks read and write, as far as it is known, and which changes of them are legal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from typing import TYPE_CHECKING

from tfaot.compile.program.thunks.kinds import Buffer, CompiledFunction, Kernel, Place, Slice, Thunk, Uses, walk

if TYPE_CHECKING:
    from tfaot.compile.program.values.graph import Graph

Call = Thunk | Callable[[Sequence[int]], Thunk | None]
"""See `Body.merged`."""


def overlap(a: Place, b: Place) -> bool:
    """Returns whether two places have bytes in common."""
    (one, size), (other, other_size) = a, b
    return one.buffer == other.buffer and one.offset < other.offset + other_size and other.offset < one.offset + size


def is_used(place: Place, after: Iterable[Uses], temporary: Container[int]) -> bool:
    """Returns whether anything may read a place before all of it is overwritten: a thunk after, or who has its buffer later."""
    rest = [place]
    for uses in after:
        if any(overlap(part, read) for part in rest for read in uses.reads):
            return True
        rest = [left for part in rest for left in without(part, uses.writes)]
    return bool(rest) and place[0].buffer not in temporary


def may_change(thunks: tuple[Thunk, ...], place: Place) -> bool:
    """Returns whether thunks, or those in them, may write in a place."""
    return any(overlap(place, change) for thunk in walk(thunks) if not thunk.bodies for change in thunk.uses().changes)


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


@dataclasses.dataclass
class Body:
    """The thunks of a function, or of a loop in it, as a pass changes them."""

    thunks: list[Thunk | None]
    """None where a thunk was that is now a part of another one."""
    graph: Graph
    """What they compute before the pass."""
    temporary: set[int]
    """The buffers that nobody has after a run. A loop has none, because the next step may need what a step leaves."""
    function: CompiledFunction
    added: list[Buffer]
    """More buffers of the function."""

    def since(self, place: Place, before: int) -> int:
        """Returns the index of the thunk from which on a place has what a later thunk reads there, or -1."""
        uses = ((index, thunk.uses()) for index, thunk in enumerate(self.thunks[:before]) if thunk)
        return max((at for at, one in uses if any(overlap(place, change) for change in one.changes)), default=-1)

    def is_used(self, place: Place, index: int) -> bool:
        """Returns whether anything may read a place after a thunk."""
        return is_used(place, (later.uses() for later in self.thunks[index + 1 :] if later), self.temporary)

    def merge(self, members: Collection[int], inputs: Iterable[tuple[int, Place]], call: Call, at: int) -> str:
        """Puts a call in place of thunks; for the arguments, see `merged`. If that isn't legal, returns why not."""
        whole = self.merged(members, inputs, call, at)
        if isinstance(whole, str):
            return whole
        for member in members:
            self.thunks[member] = None
        self.thunks[at] = whole
        return ""

    def merged(self, members: Collection[int], inputs: Iterable[tuple[int, Place]], call: Call, at: int) -> Thunk | str:
        """Returns a call that does what thunks do, in place of one of them, if nothing sees a difference; otherwise, why not.

        This decides for all passes what is legal. What the call reads must be there when it runs. What a member stored and the
        call doesn't must be of no use to anything else. What the call stores earlier or later than the member must not be used in
        between.

        Args:
          members: the indices of the thunks.
          inputs: what the call reads, with the index of the thunk from which on it is there.
          call: the call, or what returns the one that stores the results of some members, of which the last one is the first, or
            None if it can't.
          at: the member in whose place the call is.
        """
        last = max(members)
        results: dict[int, tuple[Place, ...]] = {}
        for member in members:
            thunk = self.thunks[member]
            if thunk is None or not (writes := thunk.uses().writes):
                return "a part of it is a part of something else already"
            results[member] = writes
        others = [(index, one, one.uses()) for index, one in enumerate(self.thunks) if one and index not in members]
        for since, place in inputs:
            if since in members or since >= at:
                return "what it reads isn't there before"
            for index, other, uses in others:
                if since < index < at and any(overlap(place, changed) for changed in uses.changes):
                    return f"{other.title or 'a loop'} in between changes what it reads"
            # What was there last may have written a part only.
            for member in (earlier for earlier in members if earlier < since):
                over = [Uses((), uses.writes) for index, _, uses in others if member < index <= since]
                if any(is_used(result, [*over, Uses((place,), ())], {result[0].buffer}) for result in results[member]):
                    return "what it reads isn't there before"

        def using(member: int) -> Thunk | None:
            """Returns what uses the place of a result between the member and the call."""
            begin, end = sorted((member, at))
            for index, other, uses in others:
                used = (*uses.reads, *uses.writes) if begin < index < end else ()
                if any(overlap(result, place) for result in results[member] for place in used):
                    return other
            return None

        stored = [last]
        while True:
            if user := using(stored[-1]):
                return f"{user.title or 'a loop'} in between uses what it stores"
            whole = call if isinstance(call, Thunk) else call(stored)
            if whole is None:
                return "something else needs what is in between"
            if clashes(whole):
                return "its result is where it still reads"
            # Before any member stores anything, the call has read its inputs.
            own = Uses((), tuple(place for member in stored for place in results[member]))
            # The last first: where several members store in one place, the others' results are gone.
            for member in sorted({*members} - {*stored}, reverse=True):
                after = [uses for index, _, uses in others if member < index < last]
                after += [own, *(uses for index, _, uses in others if index > last)]
                if any(is_used(place, after, self.temporary) for place in results[member]):
                    stored.append(member)
                    break
            else:
                return whole

    def remove_unused(self, call: int, places: Sequence[Place]) -> None:
        """Removes kernels before a call that store what nothing reads in some places, which thunks read that are a part of it."""
        after: list[Uses] = []
        for index in reversed(range(len(self.thunks))):
            thunk = self.thunks[index]
            if thunk is None:
                continue
            uses = thunk.uses()
            before = index < call and isinstance(thunk, Kernel)
            was_read = any(overlap(place, result) for place in places for result in uses.writes)
            if before and was_read and not any(is_used(one, reversed(after), self.temporary) for one in uses.writes):
                self.thunks[index] = None
            else:
                after.append(uses)


def clashes(call: Thunk) -> bool:
    """Returns whether a result overlaps another one, or an operand in whose place it can't be."""
    places, writes = call.places, call.uses().writes
    for index, result in enumerate(writes):
        if any(overlap(result, other) for other in writes[:index]):
            return True
        if any(
            overlap(result, other) and not (other == result and call.in_place(number))
            for number, other in enumerate(places)
        ):
            return True
    return False
