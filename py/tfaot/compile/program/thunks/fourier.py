"""Fourier transforms."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tfaot.compile.program.thunks.fourier_plan import Plan, along
from tfaot.compile.program.thunks.kinds import InPlace, Place, Slice, Sort, Thunk
from tfaot.core.isa import TARGETS
from tfaot.xla import marks

if TYPE_CHECKING:
    from tfaot.compile.program.codegen.emitter import Emitter
    from tfaot.xla.module import Instruction


@dataclasses.dataclass(frozen=True)
class Fourier(InPlace):
    """Transforms along one axis, in place."""

    plan: Plan
    data: Slice
    roots: Slice
    roots_bytes: int

    @property
    def places(self) -> tuple[Place, ...]:
        return (self.data, 2 * self.plan.itemsize * self.plan.values), (self.roots, self.roots_bytes)

    @property
    def operations(self) -> int:
        plan = self.plan  # as many as of a length that is a power of two
        return round(5 * plan.outer * plan.inner * plan.size * math.log2(max(plan.size, 2)))

    @property
    def title(self) -> str:
        return f"fourier {self.plan.outer * self.plan.inner}x{self.plan.length}"

    def emit(self, program: Emitter) -> list[str]:
        plan = self.plan
        dtype, suffix = ("float", "f32") if plan.itemsize == 4 else ("double", "f64")
        program.needs.add("fourier")
        program.sources.add(f"tfaot/kernels/fourier_{suffix}.cc")
        program.scratch[f"std::size_t{{{plan.slots * plan.scratch * plan.itemsize}}}"] = None
        program.facts[f"::tfaot::kernels::TFAOT_ISA::kLanes<{dtype}> == {plan.widest}"] = None
        program.facts[f"::tfaot::kernels::Fourier::kMostStages >= {len(plan.radices)}"] = None
        sizes: list[object] = [
            plan.outer,
            plan.length,
            plan.inner,
            plan.size,
            plan.padded,
            repr(plan.scale),
            plan.scratch,
            plan.slots,
        ]
        sizes += [len(plan.radices), f"{{{', '.join(map(str, plan.radices))}}}"]
        how = f"kernels::Fourier::Kind::k{plan.kind}, {str(plan.inverse).lower()}, kernels::Fourier::Method::k{plan.method}"
        fourier = f"{{{how}, {plan.lanes}, {', '.join(map(str, sizes))}}}"
        places = f"{program.at(self.roots)}, instance.scratch, {program.at(self.data)}, instance.threads"
        return [f"kernels::TFAOT_ISA::RunFourier<{dtype}>({fourier}, {places});"]


def thunks(
    sort: Sort, instruction: Instruction, numbers: Sequence[int], isa: str, constant: Callable[[bytes], Slice]
) -> list[Thunk]:
    """Returns the transforms that a mark stands for. For the arguments, see `marked`."""
    kind, inverse, *lengths = numbers
    itemsize = sort.value_sizes[0] // 2
    batch = math.prod(instruction.shape[: len(instruction.shape) - len(lengths)])
    lanes = TARGETS[isa].vector_bytes // itemsize
    result: list[Thunk] = []
    for plan in along(marks.KINDS[kind], bool(inverse), batch, lengths, lanes, itemsize):
        table = plan.roots().astype(f"<f{itemsize}").tobytes()
        result.append(Fourier(plan, sort.values[0], constant(table), len(table)))
    return result
