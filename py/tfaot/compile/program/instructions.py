"""Reads the text of optimized HLO: computations of instructions that have one array as their result."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Mapping

_MODULE = re.compile(r"^HloModule ([^\s,]+)")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%(\S+) \(.*\) -> .* \{$")
_INSTRUCTION = re.compile(
    r"^  (?P<root>ROOT )?%(?P<name>\S+) = (?P<dtype>\w+)\[(?P<shape>[\d,]*)\](?:\{(?P<layout>[\d,]*)\})? "
    r"(?P<opcode>[\w-]+)\((?P<operands>[^()]*)\)(?P<rest>.*)$"
)

_CALLS = re.compile(r", calls=%([^\s,]+)")
_LOOP = re.compile(r", kind=kLoop, calls=%([^\s,]+)")


@dataclasses.dataclass(frozen=True)
class Instruction:
    """An instruction."""

    name: str
    dtype: str
    """As HLO has it, such as `f32`."""
    shape: tuple[int, ...]
    layout: tuple[int, ...]
    """Dimensions, the one that is adjacent in memory first."""
    opcode: str
    operands: tuple[str, ...]
    """Operand names; for a parameter its number, for a constant its value."""
    rest: str
    """What follows the operands."""

    @property
    def count(self) -> int:
        """The number of values."""
        return math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class Computation:
    """A computation, which a kernel runs or the module itself is."""

    instructions: Mapping[str, Instruction]
    root: str
    complete: bool
    """Whether every line was an instruction with one array as its result."""


@functools.lru_cache(maxsize=4)  # several passes read the modules of all CPU levels
def computations(hlo: str) -> Mapping[str, Computation]:
    """Returns a module's computations by name."""
    lines = iter(hlo.splitlines())
    return {match[1]: _computation(lines) for line in lines if (match := _COMPUTATION.match(line))}


def symbol(hlo: str, name: str) -> str:
    """Returns the symbol of a module's kernel, which comes from the name of its instruction; empty without a module."""
    module = _MODULE.match(hlo)
    return re.sub(r"\W", "_", f"{module[1]}_{name}") if module else ""


@dataclasses.dataclass(frozen=True)
class Fusion:
    """A kernel that runs one computation."""

    instruction: Instruction
    """Where its caller has it. It has the shape and layout of the result."""
    computation: Computation
    given: tuple[Instruction | None, ...]
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
        return self.computation.complete and all(
            each.layout == (*reversed(range(len(each.shape))),) for each in self.computation.instructions.values()
        )

    @property
    def root(self) -> Instruction | None:
        """What computes the result, without changes of its shape."""
        root = self.computation.instructions.get(self.computation.root)
        return self.bare(root) if root else None

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
            given = self.given[int(instruction.operands[0])]
            if given is None:
                return None
            instruction = given
        if instruction.opcode != "constant" or instruction.shape or instruction.dtype not in ("f32", "f64"):
            return None
        return float(instruction.operands[0])

    def combined_by(self, name: str) -> str:
        """Returns the opcode by which a reduction combines two values, or nothing if its computation does more."""
        found = sorted(each.opcode for each in self.others[name].instructions.values())
        return found[0] if found[1:] == ["parameter", "parameter"] else ""


def fusions(hlo: str) -> dict[str, Fusion]:
    """Returns a module's kernels that compute each value of their result in the same way, by their symbol."""
    found_in = computations(hlo)
    found: dict[str, Fusion] = {}
    twice = set()
    for computation in found_in.values():
        for instruction in computation.instructions.values():
            called = _LOOP.match(instruction.rest) if instruction.opcode == "fusion" else None
            kernel = symbol(hlo, instruction.name)
            if called and kernel:
                if kernel in found:
                    twice.add(kernel)  # two names map to one symbol
                given = tuple(map(computation.instructions.get, instruction.operands))
                found[kernel] = Fusion(instruction, found_in[called[1]], given, found_in)
    return {kernel: fusion for kernel, fusion in found.items() if kernel not in twice}


def single_results(hlo: str) -> set[str]:
    """Returns the symbols of a module's kernels that have one result, which is their last argument."""
    found = computations(hlo)
    fused = _fused(found)
    return {
        symbol(hlo, instruction.name + ending)
        for name, computation in found.items()
        if name not in fused
        for instruction in computation.instructions.values()
        for ending in ("", "_kernel")
    }


def numbers(text: str) -> tuple[int, ...]:
    """Reads a list of integers."""
    return tuple(map(int, text.split(","))) if text else ()


def _fused(found: Mapping[str, Computation]) -> set[str]:
    """Returns the computations that are inside a fusion's kernel."""
    fusions = (each for one in found.values() for each in one.instructions.values() if each.opcode == "fusion")
    return {called[1] for each in fusions if (called := _CALLS.search(each.rest))}


def _computation(lines: Iterator[str]) -> Computation:
    found: dict[str, Instruction] = {}
    root, complete = "", True
    for line in lines:
        if line == "}":
            break
        match = _INSTRUCTION.match(line)
        if not match:
            complete = False
            continue
        instruction = Instruction(
            match["name"],
            match["dtype"],
            numbers(match["shape"]),
            numbers(match["layout"] or ""),
            match["opcode"],
            tuple(operand.strip().removeprefix("%") for operand in match["operands"].split(",")),
            match["rest"],
        )
        found[instruction.name] = instruction
        if match["root"]:
            root = instruction.name
    return Computation(found, root, complete)
