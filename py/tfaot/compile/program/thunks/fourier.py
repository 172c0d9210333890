"""Fourier transforms, which take the place of the marks that XLA compiled as sorts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tfaot.compile.program.thunks.fourier_plan import Plan, along
from tfaot.compile.program.thunks.kinds import Buffer, CompiledFunction, Place, Slice, Sort, Thunk, Uses
from tfaot.compile.program.values.instructions import symbol
from tfaot.core.errors import TfaotError
from tfaot.core.isa import TARGETS
from tfaot.xla import marks
from tfaot.xla.module import Instruction, Module

if TYPE_CHECKING:
    from tfaot.compile.program.codegen.emitter import Emitter


@dataclasses.dataclass(frozen=True)
class Fourier(Thunk):
    """Transforms along one axis, in place."""

    plan: Plan
    data: Slice
    roots: Slice
    roots_bytes: int

    @property
    def places(self) -> tuple[Place, ...]:
        """The data and the roots of unity."""
        return (self.data, 2 * self.plan.itemsize * self.plan.values), (
            self.roots,
            self.roots_bytes,
        )

    def uses(self) -> Uses:
        """Returns the data as read and written."""
        return Uses(self.places, self.places[:1])

    @property
    def operations(self) -> int:
        """As many as of a transform whose length is a power of two."""
        plan = self.plan
        return round(5 * plan.outer * plan.inner * plan.size * math.log2(max(plan.size, 2)))

    @property
    def title(self) -> str:
        """The number of transforms, and their length."""
        return f"fourier {self.plan.outer * self.plan.inner}x{self.plan.length}"

    def emit(self, program: Emitter) -> list[str]:
        """Calls the transform."""
        plan = self.plan
        dtype, suffix = ("float", "f32") if plan.itemsize == 4 else ("double", "f64")
        program.needs.add("fourier")
        program.sources.add(f"tfaot/kernels/fourier_{suffix}.cc")
        program.scratch[f"std::size_t{{{-(-plan.scratch * plan.itemsize // 64) * 64}}}"] = None
        program.facts[f"::tfaot::kernels::TFAOT_ISA::kLanes<{dtype}> == {plan.widest}"] = None
        program.facts[f"::tfaot::kernels::Fourier::kMostStages >= {len(plan.radices)}"] = None
        sizes = plan.outer, plan.length, plan.inner, plan.size, plan.padded, repr(plan.scale), len(plan.radices)
        how = f"kernels::Fourier::Kind::k{plan.kind}, {str(plan.inverse).lower()}, kernels::Fourier::Method::k{plan.method}"
        fourier = f"{{{how}, {plan.lanes}, {', '.join(map(str, sizes))}, {{{', '.join(map(str, plan.radices))}}}}}"
        places = f"{program.at(self.roots)}, instance.scratch, {program.at(self.data)}"
        return [f"kernels::TFAOT_ISA::RunFourier<{dtype}>({fourier}, {places});"]


def placed(function: CompiledFunction, module: Module, isa: str) -> tuple[CompiledFunction, dict[str, bytes]]:
    """Puts transforms in the place of their marks.

    Args:
      function: the function from tfcompile's header.
      module: what XLA generated code from.
      isa: the CPU level.

    Returns:
      The function, and the values of the constants that it has in addition, by symbol.

    Raises:
      TfaotError: XLA changed the order of a mark's values in memory.
    """
    sorts = _marked_sorts(module)
    if not sorts:
        return function, {}
    tables: dict[str, bytes] = {}
    buffers: dict[bytes, int] = {}

    def place(thunks: tuple[Thunk, ...]) -> tuple[Thunk, ...]:
        result: list[Thunk] = []
        for thunk in thunks:
            if isinstance(thunk, Sort) and thunk.comparator in sorts:
                result += transforms(thunk, *sorts[thunk.comparator])
            else:
                result.append(thunk.with_bodies(place))
        return tuple(result)

    def transforms(sort: Sort, sort_instruction: Instruction, numbers: tuple[int, ...]) -> list[Thunk]:
        shape = sort_instruction.shape
        if numbers[:1] != (marks.FOURIER,) or sort_instruction.layout != (*reversed(range(len(shape))),):
            raise TfaotError(
                f"{module.name}: XLA changed the mark of a Fourier transform",
                exists=f"numbers {list(numbers)} and a layout of {list(sort_instruction.layout)} for the shape {list(shape)}",
                do="use a TensorFlow that docs/reference/tensorflow_versions.md names; if it is one, this is a bug of rules_tfaot",
            )
        _, kind, inverse, *lengths = numbers
        itemsize = sort.value_sizes[0] // 2
        batch = math.prod(shape[: len(shape) - len(lengths)])
        lanes = TARGETS[isa].vector_bytes // itemsize
        found: list[Thunk] = []
        for plan in along(marks.KINDS[kind], bool(inverse), batch, lengths, lanes, itemsize):
            table = plan.roots().astype(f"<f{itemsize}").tobytes()
            if table not in buffers:
                buffers[table] = len(function.buffers) + len(buffers)
                tables[f"{sort.comparator}_roots_{len(buffers)}"] = table
            found.append(Fourier(plan, sort.values[0], Slice(buffers[table], 0), len(table)))
        return found

    thunks = place(function.thunks)
    added = tuple(Buffer(len(table), "constant", None, None) for table in buffers)
    return (
        dataclasses.replace(
            function,
            thunks=thunks,
            buffers=(*function.buffers, *added),
            constants=(*function.constants, *tables),
        ),
        tables,
    )


def _marked_sorts(module: Module) -> Mapping[str, tuple[Instruction, tuple[int, ...]]]:
    """Returns the sorts that are marks, with their numbers, by the symbols of their orders."""
    result = {}
    for computation in module.computations.values():
        for instruction in computation.instructions.values():
            if instruction.opcode == "sort":
                (order,) = instruction.called
                numbers = marks.numbers(module, module.computations[order])
                if numbers is not None:
                    result[symbol(module, order)] = instruction, numbers
    return result
