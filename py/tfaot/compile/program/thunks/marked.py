"""Puts the runtime's calls in the place of the marks that XLA compiled as sorts (`tfaot.xla.marks`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from tfaot.compile.program.thunks import collectives, fourier, linear
from tfaot.compile.program.thunks.kinds import Buffer, CompiledFunction, Slice, Sort, Thunk
from tfaot.compile.program.values.instructions import symbol
from tfaot.core.errors import TfaotError
from tfaot.xla import marks
from tfaot.xla.module import Instruction, Module

_CALLS: Mapping[int, Callable[..., list[Thunk]]] = {
    marks.FOURIER: fourier.thunks,
    marks.COLLECTIVE: collectives.thunks,
    marks.LINEAR: linear.thunks,
}
"""By a mark's first number, what makes its thunks.

It takes the sort as a thunk and as an instruction, the mark's other numbers, the CPU level, and a function that stores a
constant and returns its place."""


def placed(function: CompiledFunction, module: Module, isa: str) -> tuple[CompiledFunction, dict[str, bytes]]:
    """Puts calls in the place of their marks.

    Args:
      function: the function from tfcompile's header.
      module: what XLA generated code from.
      isa: the CPU level.

    Returns:
      The function, and the values of the constants that it has in addition, by symbol.

    Raises:
      TfaotError: XLA changed a mark, or the order of its values in memory.
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
                result += calls(thunk, *sorts[thunk.comparator])
            else:
                result.append(thunk.with_bodies(place))
        return tuple(result)

    def calls(sort: Sort, instruction: Instruction, numbers: tuple[int, ...]) -> list[Thunk]:
        shape = instruction.shape
        thunks = _CALLS.get(numbers[0]) if numbers else None
        if thunks is None or instruction.layout != (*reversed(range(len(shape))),):
            raise TfaotError(
                f"{module.name}: XLA changed the mark of a call",
                exists=f"numbers {list(numbers)} and a layout of {list(instruction.layout)} for the shape {list(shape)}",
                do="use a TensorFlow that docs/reference/tensorflow_versions.md names; if it is one, this is a bug of rules_tfaot",
            )

        def constant(table: bytes) -> Slice:
            if table not in buffers:
                buffers[table] = len(function.buffers) + len(buffers)
                tables[f"{sort.comparator}_constant_{len(buffers)}"] = table
            return Slice(buffers[table], 0)

        return thunks(sort, instruction, numbers[1:], isa, constant)

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


def _marked_sorts(module: Module) -> dict[str, tuple[Instruction, tuple[int, ...]]]:
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
