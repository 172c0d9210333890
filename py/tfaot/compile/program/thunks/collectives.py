"""Collectives: values that the replicas of a model reduce together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tfaot.compile.program.thunks.kinds import CompiledFunction, Place, Slice, Sort, Thunk, Uses, walk
from tfaot.core.errors import TfaotError, listed
from tfaot.xla import marks

if TYPE_CHECKING:
    from tfaot.compile.program.codegen.emitter import Emitter
    from tfaot.xla.module import Instruction

_DTYPES: Mapping[str, tuple[str, int]] = {
    "f32": ("TFAOT_FLOAT32", 4),
    "f64": ("TFAOT_FLOAT64", 8),
    "s32": ("TFAOT_INT32", 4),
    "s64": ("TFAOT_INT64", 8),
}
"""The name of a dtype in tfaot/c_api.h, and the bytes of a value."""


@dataclasses.dataclass(frozen=True)
class Collective(Thunk):
    """A reduction over all replicas, in place."""

    number: int
    """The same in all replicas, and no other one of the program's."""
    reduction: marks.Reduction
    replicas: int
    dtype: str
    data: Slice
    count: int
    part: str = ""
    """`Start` or `Wait` for a part of it. In between, nothing else uses the data."""
    joined: bool = False
    """Whether the next collective, whose data is behind this one's, can be a part of the same call."""

    @property
    def places(self) -> tuple[Place, ...]:
        """The data."""
        return ((self.data, _DTYPES[self.dtype][1] * self.count),)

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
        return " ".join(filter(None, ["all_reduce", str(self.number), self.part.lower(), f"{self.count}"]))

    def emit(self, program: Emitter) -> list[str]:
        """Calls the program's interface."""
        program.needs.add("collectives")
        numbers = f"{self.number}, TFAOT_ALL_REDUCE, TFAOT_{self.reduction.upper()}, {_DTYPES[self.dtype][0]}"
        call = f"{{{numbers}, {program.at(self.data)}, {self.count}u}}"
        joined = {"Start": f", {str(self.joined).lower()}", "Wait": ""}
        return [
            f"if (!::tfaot::{part}Collective(instance, {call}{joined[part]})) return false;"
            for part in ([self.part] if self.part else ["Start", "Wait"])
        ]


def thunks(
    sort: Sort, instruction: Instruction, numbers: Sequence[int], _isa: str, _constant: Callable[[bytes], Slice]
) -> list[Thunk]:
    """Returns the collective that a mark stands for. For the arguments, see `marked`.

    Raises:
      TfaotError: the interface lacks the values' dtype.
    """
    number, reduction, replicas, single = numbers
    dtype = instruction.dtype
    if dtype not in _DTYPES:
        raise TfaotError(
            f"a reduction over replicas of {dtype} values",
            exists=f"collectives of {', '.join(_DTYPES)}",
            do="convert the values with tf.cast before the reduction, and back behind it",
        )
    count = 1 if single else instruction.count
    return [Collective(number, marks.REDUCTIONS[reduction], replicas, dtype, sort.values[0], count)]


def check(functions: Iterable[CompiledFunction], what: str) -> None:
    """Checks that the code of all CPU levels has the same collectives in the same order: replicas can run on different CPUs.

    Raises:
      TfaotError: it hasn't.
    """
    orders = {tuple(collectives_in(function)) for function in functions}
    if len(orders) > 1:
        shown = [listed([str(each.number) for each in order]) for order in sorted(orders, key=repr)]
        raise TfaotError(
            f"{what}: the code of different CPU levels reduces in another order, but all replicas must reduce in the same one",
            exists="; ".join(shown),
            do="compile for one CPU level, and report it to rules_tfaot, please",
        )


def collectives_in(function: CompiledFunction) -> list[Collective]:
    """Returns the collectives of a function, in order, without where their data is."""
    return [
        dataclasses.replace(thunk, data=Slice(0, 0))
        for thunk in walk(function.thunks)
        if isinstance(thunk, Collective) and thunk.part != "Wait"
    ]
