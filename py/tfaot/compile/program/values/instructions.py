"""The kernels of optimized HLO: computations of instructions that have one array as their result."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tfaot.xla.module import Computation, Instruction, Module


def symbol(module: Module, name: str) -> str:
    """Returns the symbol of a module's kernel, which comes from the name of its instruction."""
    return "".join(each if each.isalnum() else "_" for each in f"{module.name}_{name}")


def complete(computation: Computation) -> bool:
    """Returns whether every instruction has one array as its result."""
    return all(each.type.plain for each in computation.instructions.values())


@dataclasses.dataclass(frozen=True)
class Fusion:
    """A kernel that runs one computation."""

    instruction: Instruction
    """Where its caller has it. It has the shape and layout of the result."""
    computation: Computation
    given: tuple[Instruction, ...]
    """What the caller passes for each parameter. The kernel's last argument is the result."""
    others: Mapping[str, Computation]
    """All computations of the module, by name."""

    @property
    def arguments(self) -> int:
        """The number of the kernel's arguments."""
        return len(self.given) + 1

    @property
    def row_major(self) -> bool:
        """Whether all arrays, including the result, have their dimensions in memory in order, the last one adjacent."""
        return complete(self.computation) and all(
            each.layout == (*reversed(range(len(each.shape))),) for each in self.computation.instructions.values()
        )

    @property
    def root(self) -> Instruction:
        """What computes the result, without changes of its shape."""
        return self.bare(self.computation.root)

    def operand(self, instruction: Instruction, index: int) -> Instruction:
        """Returns an operand of an instruction in the computation."""
        return self.computation.instructions[instruction.operands[index]]

    def bare(self, instruction: Instruction) -> Instruction:
        """Returns what has the same values in the same order, if arrays are row-major."""
        while instruction.opcode == "bitcast":
            instruction = self.operand(instruction, 0)
        return instruction

    def constant(self, instruction: Instruction) -> float | None:
        """Returns the number that an instruction is, in the computation or as the caller passes it."""
        if instruction.opcode == "parameter":
            instruction = self.given[instruction.number]
        return instruction.value if not instruction.shape and instruction.dtype in ("f32", "f64") else None

    def combined_by(self, reduction: Instruction) -> str:
        """Returns the opcode by which a reduction combines two values, or nothing if its computation does more."""
        (called,) = reduction.called
        found = sorted(each.opcode for each in self.others[called].instructions.values())
        return found[0] if found[1:] == ["parameter", "parameter"] else ""


class Window(NamedTuple):
    """The windows of a reduction along one axis. Their distance is their size."""

    size: int
    before: int
    """The padding before the first value."""
    after: int


def windows(reduction: Instruction, values: Instruction) -> list[Window] | None:
    """Returns the windows of a `reduce-window`, if they cut values into pieces without gaps, each of which has a value."""
    found = []
    for axis, length in zip(reduction.attributes.window.dimensions, values.shape, strict=True):
        window = Window(axis.size, axis.padding_low, axis.padding_high)
        if axis.stride != axis.size or max(axis.window_dilation, axis.base_dilation) > 1 or axis.window_reversal:
            return None
        if (
            not 0 <= min(window[1:]) <= max(window[1:]) < axis.size
            or (window.before + length + window.after) % axis.size
        ):
            return None
        found.append(window)
    return found


def fusions(module: Module) -> dict[str, Fusion]:
    """Returns a module's kernels that compute each value of their result in the same way, by their symbol."""
    found: dict[str, Fusion] = {}
    twice = set()
    for computation in module.computations.values():
        for instruction in computation.instructions.values():
            if (
                instruction.opcode == "fusion"
                and instruction.attributes.fusion_kind == "kLoop"
                and instruction.type.plain
            ):
                kernel = symbol(module, instruction.name)
                if kernel in found:
                    twice.add(kernel)  # two names map to one symbol
                given = tuple(map(computation.instructions.__getitem__, instruction.operands))
                (called,) = instruction.called
                found[kernel] = Fusion(instruction, module.computations[called], given, module.computations)
    return {kernel: fusion for kernel, fusion in found.items() if kernel not in twice}


def kernels(module: Module) -> Iterator[tuple[str, Instruction]]:
    """Iterates over the symbols that kernels can have, and their instructions."""
    for computation in module.computations.values():
        if not computation.fused:
            for instruction in computation.instructions.values():
                for ending in ("", "_kernel"):
                    yield symbol(module, instruction.name + ending), instruction
