"""The kernels of optimized HLO: computations of instructions that have one array as their result."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tfaot.xla.module import Computation, Instruction, Module


def symbol(module: Module, name: str) -> str:
    """Returns the symbol of a module's kernel, which comes from the name of its instruction."""
    return "".join(character if character.isalnum() else "_" for character in f"{module.name}_{name}")


@dataclasses.dataclass(frozen=True)
class Fusion:
    """What a kernel computes from arguments. Another argument, the last one, is the result."""

    arguments: int
    """How many there are, with the result."""
    parameters: Mapping[str, int]
    """The argument's number of each instruction that is an argument."""
    instructions: tuple[Instruction, ...]
    """In the order in which they run. Each has one array as its result."""
    root: str
    """The instruction that computes the result."""
    others: Mapping[str, Computation]
    """All computations of the module, by name."""

    def combined_by(self, reduction: Instruction) -> str:
        """Returns the opcode by which a reduction combines two values, or nothing if its computation does more."""
        (called,) = reduction.called
        first, *rest = sorted(step.opcode for step in self.others[called].instructions.values())
        return first if rest == ["parameter", "parameter"] else ""


class Window(NamedTuple):
    """The windows of a reduction along one axis. Their distance is their size."""

    size: int
    before: int
    """The padding before the first value."""
    after: int


def windows(reduction: Instruction, shape: tuple[int, ...]) -> list[Window] | None:
    """Returns the windows of a `reduce-window`, if they cut an array into pieces without gaps, each of which has a value."""
    pieces = []
    for axis, length in zip(reduction.attributes.window.dimensions, shape, strict=True):
        window = Window(axis.size, axis.padding_low, axis.padding_high)
        if axis.stride != axis.size or max(axis.window_dilation, axis.base_dilation) > 1 or axis.window_reversal:
            return None
        if (
            not 0 <= min(window[1:]) <= max(window[1:]) < axis.size
            or (window.before + length + window.after) % axis.size
        ):
            return None
        pieces.append(window)
    return pieces


_MOVES = ("concatenate", "copy", "fusion")
"""What stays a kernel of XLA's if it is one by itself."""


def fusions(module: Module) -> dict[str, Fusion]:
    """Returns what kernels compute, by symbol: loops, products with what they end in, and instructions of their own."""
    results: dict[str, Fusion] = {}
    symbols = Counter(kernel for kernel, _ in kernels(module))
    for computation in module.computations.values():
        for instruction in computation.instructions.values() if not computation.fused else ():
            kernel, fusion = symbol(module, instruction.name), None
            if instruction.opcode == "fusion" and instruction.attributes.fusion_kind in ("kLoop", "kOutput"):
                (called,) = instruction.called
                body = module.computations[called]
                steps = tuple(body.instructions.values())
                parameters = {step.name: step.number for step in steps if step.opcode == "parameter"}
                fusion = Fusion(len(instruction.operands) + 1, parameters, steps, body.root.name, module.computations)
            elif instruction.operands and instruction.opcode not in _MOVES:
                # In a kernel of its own. TensorFlow 2.20 puts few instructions in fusions.
                kernel += "_kernel"
                parameters = {name: number for number, name in enumerate(instruction.operands)}
                steps = (*map(computation.instructions.__getitem__, parameters), instruction)
                arguments = len(instruction.operands) + 1
                fusion = Fusion(arguments, parameters, steps, instruction.name, module.computations)
            if fusion and symbols[kernel] == 1 and all(step.type.plain for step in fusion.instructions):
                results[kernel] = fusion
    return results


def kernels(module: Module) -> Iterator[tuple[str, Instruction]]:
    """Iterates over the symbols that kernels can have, and their instructions."""
    for computation in module.computations.values():
        if not computation.fused:
            for instruction in computation.instructions.values():
                for ending in ("", "_kernel"):
                    yield symbol(module, instruction.name + ending), instruction
