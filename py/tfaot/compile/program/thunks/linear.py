"""Linear algebra."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tfaot.compile.program.thunks.kinds import InPlace, Place, Slice, Sort, Thunk
from tfaot.xla import linear

if TYPE_CHECKING:
    from tfaot.compile.program.codegen.emitter import Emitter
    from tfaot.xla.module import Instruction


@dataclasses.dataclass(frozen=True)
class Linear(InPlace):
    """Decomposes matrices, or solves linear systems, in place."""

    call: linear.Linear
    batch: int
    itemsize: int
    is_complex: bool
    data: Slice

    @property
    def places(self) -> tuple[Place, ...]:
        return ((self.data, self.batch * self.call.row * self.itemsize),)

    @property
    def operations(self) -> int:
        return self.batch * self.call.operations * (4 if self.is_complex else 1)

    @property
    def title(self) -> str:
        return f"{self.call.op.lower()} {self.batch}x{self.call.rows}x{self.call.columns}"

    def emit(self, program: Emitter) -> list[str]:
        call, part = self.call, self.itemsize // (2 if self.is_complex else 1)
        dtype, suffix = ("float", "f32") if part == 4 else ("double", "f64")
        program.needs.add("linear")
        # Small float matrices are decomposed in float64.
        names = (f"linear_{suffix}", f"products_{suffix}", "products_f64")
        program.sources |= {f"tfaot/kernels/{name}.cc" for name in names}
        flags = [str(flag).lower() for flag in (call.lower, call.adjoint, call.unit, call.vectors)]
        sizes = map(str, (self.batch, call.rows, call.columns, call.others))
        linear = (
            f"::tfaot::kernels::Linear{{{', '.join([f'::tfaot::kernels::Linear::Op::k{call.op}', *sizes, *flags])}}}"
        )
        program.scratch[f"::tfaot::kernels::LinearScratchBytes({linear}, {self.itemsize})"] = None
        program.facts[f"::tfaot::kernels::LinearRow({linear}) == {call.row}"] = None
        places = f"{str(self.is_complex).lower()}, instance.scratch, {program.at(self.data)}, instance.threads"
        return [f"kernels::TFAOT_ISA::RunLinear<{dtype}>({linear}, {places});"]


def thunks(
    sort: Sort, instruction: Instruction, numbers: Sequence[int], _isa: str, _constant: Callable[[bytes], Slice]
) -> list[Thunk]:
    """Returns the call that a mark stands for. For the arguments, see `marked`."""
    call = linear.Linear.of(numbers)
    is_complex = instruction.dtype in ("c64", "c128")
    batch = instruction.count // call.row
    return [Linear(call, batch, sort.value_sizes[0], is_complex, sort.values[0])]
