"""Collectives: values that the replicas of a model exchange."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from tfaot.compile.program.thunks.kinds import CompiledFunction, InPlace, Place, Slice, Sort, Thunk, Uses, walk
from tfaot.core.dtypes import BY_XLA
from tfaot.core.errors import TfaotError
from tfaot.xla import marks

if TYPE_CHECKING:
    from tfaot.compile.program.codegen.emitter import Emitter
    from tfaot.xla.module import Instruction

_REDUCED = ("f32", "f64", "s32", "s64")
"""The dtypes that can be reduced. Those of `BY_XLA` can be exchanged."""


@dataclasses.dataclass(frozen=True)
class Rank(Thunk):
    """The replica's own rank."""

    replicas: int
    data: Slice

    @property
    def places(self) -> tuple[Place, ...]:
        return ((self.data, 4),)

    def uses(self) -> Uses:
        return Uses((), self.places)

    def emit(self, program: Emitter) -> list[str]:
        program.needs.add("collectives")
        return [f"std::memcpy({program.at(self.data)}, &instance.collectives->rank, 4);"]


@dataclasses.dataclass(frozen=True)
class Collective(InPlace):
    """An exchange of values with all replicas, in place (runtime/tfaot/collectives.h)."""

    number: int
    """The same in all replicas, and no other one of the program's."""
    reduction: marks.Reduction
    replicas: int
    dtype: str
    data: Slice
    count: int
    """Of the values of a block."""
    kind: marks.Exchange = "all_reduce"
    group: int = 0
    """How many replicas exchange values with one another; 0 for all."""
    peers: tuple[int, ...] = ()
    part: str = ""
    """`Start` or `Wait` for a part of it. In between, nothing else uses the data."""
    joined: bool = False
    """Whether the next collective, whose data is behind this one's, can be a part of the same call."""

    @property
    def places(self) -> tuple[Place, ...]:
        return ((self.data, BY_XLA[self.dtype].bytes * self.count * _blocks(self.kind, self.group or self.replicas)),)

    def in_place(self, place: int) -> bool:
        return True

    @property
    def operations(self) -> int:
        return 0  # another library computes them

    @property
    def title(self) -> str:
        return " ".join(filter(None, [self.kind, str(self.number), self.part.lower(), f"{self.count}"]))

    def emit(self, program: Emitter) -> list[str]:
        program.needs.add("collectives")
        op = f"TFAOT_{self.reduction.upper()}" if _reduces(self.kind) else "0"
        kind = f"TFAOT_{self.kind.upper()}{' | TFAOT_IN_GROUPS' if self.group else ''}"
        numbers = f"{self.number}, {kind}, {op}, TFAOT_{BY_XLA[self.dtype].name.upper()}"
        peers = f"kPeers{self.number}" if self.peers else "nullptr"
        call = f"{{{numbers}, {program.at(self.data)}, {self.count}u, {peers}}}"
        joined = {"Start": f", {str(self.joined).lower()}", "Wait": ""}
        calls = [
            f"if (!::tfaot::{part}Collective(instance, {call}{joined[part]})) return false;"
            for part in ([self.part] if self.part else ["Start", "Wait"])
        ]
        if not self.peers:
            return calls
        values = [self.group, *self.peers] if self.group else self.peers
        table = f"static constexpr std::int32_t {peers}[] = {{{', '.join(map(str, values))}}};"
        return ["{", *(f"  {line}" for line in (table, *calls)), "}"]


def _reduces(kind: marks.Exchange) -> bool:
    return kind in ("all_reduce", "reduce_scatter")


def _blocks(kind: marks.Exchange, replicas: int) -> int:
    """Returns how many blocks of values there are in the data."""
    return {"all_reduce": 1, "broadcast": 1, "permute": 2}.get(kind, replicas)


def thunks(
    sort: Sort, instruction: Instruction, numbers: Sequence[int], _isa: str, _constant: Callable[[bytes], Slice]
) -> list[Thunk]:
    """Returns the collective that a mark stands for. For the arguments, see `marked`.

    Raises:
      TfaotError: the interface lacks the values' dtype.
    """
    number, exchange, reduction, replicas, group, single, *peers = numbers
    kind = marks.EXCHANGES[exchange]
    data, dtype = sort.values[0], instruction.dtype
    if kind == "rank":
        return [Rank(replicas, data)]
    possible = _REDUCED if _reduces(kind) else tuple(BY_XLA)
    if dtype not in possible:
        raise TfaotError(
            f"a reduction over replicas of {dtype} values" if _reduces(kind) else f"an exchange of {dtype} values",
            exists=f"collectives of {', '.join(possible)}",
            do="convert the values with tf.cast before the collective, and back behind it",
        )
    count = 1 if single else instruction.count // _blocks(kind, group or replicas)
    targets = tuple(peer - 1 for peer in peers)
    return [Collective(number, marks.REDUCTIONS[reduction], replicas, dtype, data, count, kind, group, targets)]


def check(functions: Iterable[CompiledFunction], what: str) -> None:
    """Checks that the code of all CPU levels has the same collectives: replicas can run on different CPUs.

    In loops, they are in the same order. `schedule` gives the others one.

    Raises:
      TfaotError: it hasn't, or has one twice.
    """
    sets = {tuple(sorted(collectives_in(function), key=repr)) for function in functions}
    numbers = [collective.number for steps in next(iter(sets)) for collective in steps]
    if len(sets) > 1 or len(numbers) != len({*numbers}):
        shown = [
            ", ".join(" ".join(str(one.number) for one in step) for step in steps) for steps in sorted(sets, key=repr)
        ]
        raise TfaotError(
            f"{what}: XLA made other collectives for one CPU level than for another one, or copied one, but all replicas must "
            "have the same",
            exists="; ".join(shown),
            do="compile for one CPU level, and report it to rules_tfaot, please",
        )


def collectives_in(function: CompiledFunction) -> list[tuple[Collective, ...]]:
    """Returns the collectives of each step of a function that has some, in order, without where their data is."""
    steps = (
        tuple(
            dataclasses.replace(thunk, data=Slice(0, 0))
            for thunk in walk((step,))
            if isinstance(thunk, Collective) and thunk.part != "Wait"
        )
        for step in function.thunks
    )
    return [step for step in steps if step]
