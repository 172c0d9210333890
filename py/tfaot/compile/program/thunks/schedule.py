"""Schedules collectives: in which order they start, when they end, and where their values are.

The values that replicas reduce are side by side in one buffer, in the order in which they become final. So the runtime can reduce
several of them in one call (`bucket_bytes` of runtime/tfaot/collectives.h).
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tfaot.compile.program.codegen.emitter import ALIGNMENT
from tfaot.compile.program.thunks.accesses import is_used, overlap, without
from tfaot.compile.program.thunks.collectives import Collective
from tfaot.compile.program.thunks.kinds import Buffer, CompiledFunction, Copy, Place, Rng, Slice, Thunk, Uses, walk
from tfaot.core.errors import TfaotError


def scheduled(functions: Mapping[str, CompiledFunction], what: str) -> dict[str, CompiledFunction]:
    """Starts each collective as soon as its data is final, and waits for it when nothing else is left to compute.

    It is the last change of functions: passes see a collective as one step. Steps that use the same data keep their order.

    Args:
      functions: the code for each CPU level, with the same collectives. Afterwards, they are in the same order, too.
      what: names the model, for messages.

    Raises:
      TfaotError: no order is possible at all levels.
    """
    apart = {isa: _apart(function) for isa, function in functions.items()}
    first = next(iter(apart.values())).thunks
    numbers = [number for thunk in first if (number := _number(thunk)) is not None]
    if not numbers:
        return dict(functions)
    for order in (_final_order(first), numbers):
        steps = {isa: _ordered(_split(function.thunks), order) for isa, function in apart.items()}
        if all(steps.values()):
            break
    else:
        raise TfaotError(
            f"{what}: the code of different CPU levels can't exchange values in the same order, but all replicas must do so",
            exists=f"{len(numbers)} collectives",
            do="compile for one CPU level, and report it to rules_tfaot, please",
        )
    joined = _joined(steps.values(), order)
    return {
        isa: _in_arena(dataclasses.replace(function, thunks=tuple(steps[isa])), order, joined)
        for isa, function in apart.items()
    }


def _apart(function: CompiledFunction) -> CompiledFunction:
    """Gives the data of each collective a buffer of its own, from the step that stores it to those that use the result.

    Where that isn't possible, it copies the data there and back.
    """
    buffers, thunks = [*function.buffers], [*function.thunks]
    uses = [thunk.uses() for thunk in thunks]

    def own(steps: range, room: Place) -> None:
        at, size = room

        def move(place: Slice) -> Slice:
            inside = place.buffer == at.buffer and 0 <= place.offset - at.offset < size
            return Slice(len(buffers) - 1, place.offset - at.offset) if inside else place

        for step in steps:
            if any(overlap(room, place) for place in (*uses[step].reads, *uses[step].writes)):
                thunks[step] = _moved(thunks[step], move)
                uses[step] = thunks[step].uses()

    index = 0
    while index < len(thunks):
        collective = thunks[index]
        if isinstance(collective, Collective):
            (place,) = collective.places
            copied = Slice(len(buffers), 0)
            stored = _stored(uses, index, place)
            steps = _life(thunks, uses, index, *stored, function.temporary) if stored else None
            buffers.append(Buffer(stored[1][1] if steps and stored else place[1], "temp", None, None))
            if steps and stored:
                own(steps, stored[1])
                index -= _without_copy(thunks, uses, steps.start, own, function.temporary)
            else:
                there, back = Copy(copied, place[0], place[1]), Copy(place[0], copied, place[1])
                own(range(index, index + 1), place)
                thunks[index : index + 1] = [there, thunks[index], back]
                uses[index : index + 1] = [there.uses(), uses[index], back.uses()]
                index += 2
        index += 1
    return dataclasses.replace(function, buffers=tuple(buffers), thunks=tuple(thunks))


def _stored(uses: Sequence[Uses], index: int, place: Place) -> tuple[int, Place] | None:
    """Returns the latest step before another one that stores what is in a place, and where: there can be padding behind it."""
    for first in reversed(range(index)):
        for room in uses[first].writes:
            fits = room[0] == place[0] and place[1] <= room[1] <= _aligned(place[1])
            if fits and not any(overlap(room, read) for read in uses[first].reads):
                return first, room
    return None


def _life(
    thunks: Sequence[Thunk], uses: Sequence[Uses], index: int, first: int, room: Place, temporary: set[int]
) -> range | None:
    """Returns the steps that use a collective's data, from the first one that stores it, or None if they use more than that."""
    last, left = index, [room]
    for step in range(index + 1, len(thunks)):
        if any(overlap(part, read) for part in left for read in uses[step].reads):
            last, left = step, [room]
        else:
            left = [rest for part in left for rest in without(part, uses[step].writes)]
        if not left:
            break
    if left and room[0].buffer not in temporary:
        return None
    chained = any(
        isinstance(thunk, Collective) and overlap(room, thunk.places[0])
        for step, thunk in enumerate(thunks[first : last + 1], first)
        if step != index
    )
    steps = range(first, last + 1)
    return steps if not chained and _only(uses, steps, room) else None


def _only(uses: Sequence[Uses], steps: range, room: Place) -> bool:
    """Returns whether whatever some steps use of a place is inside of it."""
    return not any(
        overlap(room, used) and without(used, [room])
        for step in steps
        for used in (*uses[step].reads, *uses[step].writes)
    )


def _without_copy(
    thunks: list[Thunk], uses: list[Uses], copied: int, own: Callable[[range, Place], None], temporary: set[int]
) -> bool:
    """Lets the step store data where it is needed whose result is copied there. Returns whether there was such a copy."""
    copy = thunks[copied]
    if not isinstance(copy, Copy):
        return False
    source = copy.input, copy.size
    stored = _stored(uses, copied, source)
    if stored is None or stored[1] != source or is_used(source, uses[copied + 1 :], temporary):
        return False
    steps = range(stored[0], copied)
    if not _only(uses, steps, source) or any(
        isinstance(thunks[step], Collective) and overlap(source, thunks[step].places[0]) for step in steps
    ):
        return False
    own(steps, source)
    del thunks[copied], uses[copied]
    return True


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _moved(value: Any, move: Callable[[Slice], Slice]) -> Any:
    """Returns a thunk, or a part of one, that uses other places."""
    if isinstance(value, Slice):
        return move(value)
    if isinstance(value, tuple):
        parts = (_moved(part, move) for part in value)
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
        return dataclasses.replace(value, **{name: _moved(part, move) for name, part in fields.items()})
    return value


def _final_order(thunks: Sequence[Thunk]) -> list[int]:
    """Returns the numbers of collectives in the order in which their data becomes final."""
    steps = _split(thunks)
    final = {
        (max(before, default=-1), number)
        for step, before in zip(steps, _dependencies(steps), strict=True)
        for number in [_number(step)]
        if number is not None and not (isinstance(step, Collective) and step.part == "Wait")
    }
    return [number for _, number in sorted(final)]


def _number(thunk: Thunk) -> int | None:
    """Returns the number of a collective, or of the first one in a loop, or None."""
    inside = (inner.number for inner in walk((thunk,)) if isinstance(inner, Collective))
    return next(inside, None)


def _split(thunks: Sequence[Thunk]) -> list[Thunk]:
    """Returns steps in which each collective is two."""
    steps: list[Thunk] = []
    for thunk in thunks:
        if isinstance(thunk, Collective):
            steps += (dataclasses.replace(thunk, part=part) for part in ("Start", "Wait"))
        else:
            steps.append(thunk)
    return steps


def _ordered(steps: Sequence[Thunk], order: Sequence[int]) -> list[Thunk]:
    """Returns the steps in the order in which they run, given that of collectives. Empty if that order isn't possible."""
    before = _dependencies(steps)
    at: dict[tuple[int, str], int] = {}
    for index, thunk in enumerate(steps):
        if (number := _number(thunk)) is not None:
            # A loop starts when all collectives before it have ended.
            parts = [thunk.part] if isinstance(thunk, Collective) else ["Start", "Wait"]
            at |= {(number, part): index for part in parts}
    for one, other in itertools.pairwise(order):
        for part in ("Start", "Wait"):
            before[at[other, part]].add(at[one, part])
    users: list[list[int]] = [[] for _ in steps]
    for step, others in enumerate(before):
        for other in others:
            users[other].append(step)
    missing = [len(others) for others in before]
    ready = [(_turn(thunk), index) for index, thunk in enumerate(steps) if not missing[index]]
    heapq.heapify(ready)
    result: list[Thunk] = []
    while ready:
        _, step = heapq.heappop(ready)
        result.append(steps[step])
        for user in users[step]:
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(ready, (_turn(steps[user]), user))
    return result if len(result) == len(steps) else []


def _turn(thunk: Thunk) -> int:
    """Returns which steps run first of those that can."""
    return {"Start": 0, "": 1, "Wait": 2}[thunk.part] if isinstance(thunk, Collective) else 1


def _joined(levels: Iterable[Sequence[Thunk]], order: Sequence[int]) -> set[int]:
    """Returns the collectives that a call can have together with the next one, because at no level one waits before that starts."""
    result = set(order)
    for steps in levels:
        starts: list[Collective] = []
        for step in steps:
            if isinstance(step, Collective) and step.part == "Start":
                starts.append(step)
            elif isinstance(step, Collective) and starts:
                result.discard(starts[-1].number)
        for one, other in itertools.pairwise(starts):
            alike = [(step.kind, step.reduction, step.group, step.peers, step.dtype) for step in (one, other)]
            if one.kind != "all_reduce" or alike[0] != alike[1]:
                result.discard(one.number)
    return result


def _in_arena(function: CompiledFunction, order: Sequence[int], joined: set[int]) -> CompiledFunction:
    """Places the data of collectives, which have a buffer each, in one buffer."""
    buffers = {step.number: step.data.buffer for step in function.thunks if isinstance(step, Collective)}
    arena, size = len(function.buffers), 0
    places = dict[int, int]()
    for number in (number for number in order if number in buffers):
        places[buffers[number]] = size
        size += _aligned(function.buffers[buffers[number]].size)

    def move(at: Slice) -> Slice:
        return Slice(arena, places[at.buffer] + at.offset) if at.buffer in places else at

    thunks = _moved(function.thunks, move)
    thunks = tuple(
        dataclasses.replace(step, joined=step.number in joined) if isinstance(step, Collective) else step
        for step in thunks
    )
    added = [Buffer(size, "temp", None, None)] if buffers else []
    return dataclasses.replace(function, buffers=(*function.buffers, *added), thunks=thunks)


def _dependencies(steps: Sequence[Thunk]) -> list[set[int]]:
    """Returns the steps that each one must stay behind."""
    owners: list[int] = []
    rows: list[tuple[int, int, int, bool]] = []
    for step, thunk in enumerate(steps):
        uses = thunk.uses()
        for place, size in uses.reads:
            rows.append((place.buffer, place.offset, place.offset + size, not uses.writes))
            owners.append(step)
        for place, size in uses.writes:
            rows.append((place.buffer, place.offset, place.offset + size, True))
            owners.append(step)
    owner = np.array(owners)
    table = np.array(rows, np.int64).reshape(-1, 4)
    buffers, begins, ends, writes = table.T
    result: list[set[int]] = [set() for _ in steps]
    for step, (buffer, begin, end, written) in zip(owners, rows, strict=True):
        clash = (buffers == buffer) & (begins < end) & (ends > begin) & (owner < step)
        result[step].update(owner[clash & ((writes != 0) | written)].tolist())
    latest: int | None = None
    for step, thunk in enumerate(steps):
        # Generators have a state, which is no place.
        if any(isinstance(inner, Rng) for inner in walk((thunk,))):
            result[step].update(() if latest is None else (latest,))
            latest = step
    return result
