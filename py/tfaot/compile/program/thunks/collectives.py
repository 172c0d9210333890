"""Collectives: values that the replicas of a model exchange."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tfaot.compile.program.thunks.kinds import CompiledFunction, Place, Slice, Sort, Thunk, Uses, walk
from tfaot.core.errors import TfaotError
from tfaot.xla import marks

if TYPE_CHECKING:
    from tfaot.compile.program.codegen.emitter import Emitter
    from tfaot.xla.module import Instruction

_REDUCED: Mapping[str, tuple[str, int]] = {
    "f32": ("TFAOT_FLOAT32", 4),
    "f64": ("TFAOT_FLOAT64", 8),
    "s32": ("TFAOT_INT32", 4),
    "s64": ("TFAOT_INT64", 8),
}
_DTYPES: Mapping[str, tuple[str, int]] = {
    **_REDUCED,
    "bf16": ("TFAOT_BFLOAT16", 2),
    "c128": ("TFAOT_COMPLEX128", 16),
    "c64": ("TFAOT_COMPLEX64", 8),
    "f16": ("TFAOT_FLOAT16", 2),
    "pred": ("TFAOT_BOOL", 1),
    "s16": ("TFAOT_INT16", 2),
    "s8": ("TFAOT_INT8", 1),
    "u16": ("TFAOT_UINT16", 2),
    "u32": ("TFAOT_UINT32", 4),
    "u64": ("TFAOT_UINT64", 8),
    "u8": ("TFAOT_UINT8", 1),
}
"""The name of a dtype in tfaot/c_api.h, and the bytes of a value."""


@dataclasses.dataclass(frozen=True)
class Rank(Thunk):
    """The replica's own rank."""

    replicas: int
    data: Slice

    @property
    def places(self) -> tuple[Place, ...]:
        """An int32."""
        return ((self.data, 4),)

    def uses(self) -> Uses:
        """Returns the rank as written."""
        return Uses((), self.places)

    def emit(self, program: Emitter) -> list[str]:
        """Copies it from the program's interface."""
        program.needs.add("collectives")
        return [f"std::memcpy({program.at(self.data)}, &instance.collectives->rank, 4);"]


@dataclasses.dataclass(frozen=True)
class Collective(Thunk):
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
        """The data."""
        return ((self.data, _DTYPES[self.dtype][1] * self.count * _blocks(self.kind, self.group or self.replicas)),)

    def uses(self) -> Uses:
        """Returns the data as read and written."""
        return Uses(self.places, self.places)

    def in_place(self, place: int) -> bool:
        """Returns true: it has no other place."""
        return True

    @property
    def operations(self) -> int:
        """One for each value of each other replica. Another library computes them."""
        return 0

    @property
    def title(self) -> str:
        """The number, and how many values there are."""
        return " ".join(filter(None, [self.kind, str(self.number), self.part.lower(), f"{self.count}"]))

    def emit(self, program: Emitter) -> list[str]:
        """Calls the program's interface."""
        program.needs.add("collectives")
        op = f"TFAOT_{self.reduction.upper()}" if _reduces(self.kind) else "0"
        kind = f"TFAOT_{self.kind.upper()}{' | TFAOT_IN_GROUPS' if self.group else ''}"
        numbers = f"{self.number}, {kind}, {op}, {_DTYPES[self.dtype][0]}"
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
    if dtype not in (_REDUCED if _reduces(kind) else _DTYPES):
        raise TfaotError(
            f"a reduction over replicas of {dtype} values" if _reduces(kind) else f"an exchange of {dtype} values",
            exists=f"collectives of {', '.join(_REDUCED if _reduces(kind) else _DTYPES)}",
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
            ", ".join(" ".join(str(each.number) for each in step) for step in steps) for steps in sorted(sets, key=repr)
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
