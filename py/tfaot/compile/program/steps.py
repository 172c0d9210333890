"""What a run of a compiled function does, for the report: its steps, their arithmetic, and the memory that they use. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from tfaot.compile.program import cost
from tfaot.compile.program.codegen.emitter import Emitter
from tfaot.compile.program.thunks import kinds
from tfaot.compile.program.thunks.kinds import CompiledFunction, For, Kernel, Place, Slice, Thunk
from tfaot.compile.program.values.instructions import kernels
from tfaot.xla.module import Instruction, Module

_MOVES = {
    "concatenate",
    "copy",
    "dynamic-slice",
    "dynamic-update-slice",
    "gather",
    "pad",
    "reverse",
    "slice",
    "transpose",
}
_FREE = cost.FREE | _MOVES | {"after-all", "bitcast-convert", "convert", "domain", "rng-get-and-update-state"}
"""Instructions without arithmetic."""
_PRODUCTS = ("convolution", "dot")
MEMORY = "memory"
"""What places in working memory are of."""


def describe(function: CompiledFunction, module: Module, arguments: Sequence[str]) -> str:
    """Returns JSON.

    - `memory`: the bytes of working memory, which has the results, too.
    - `steps`: in order, those in loops once. `times` says how often a run does a step; a loop counts one round if nobody knows how
      many there are. `operations` is the arithmetic of each time, or null if it isn't known.
    - `loops`: the first and the last step of each loop, inner loops first.
    - `results`: the places in working memory that a run leaves behind.

    Args:
      function: the function after all passes.
      module: the optimized module that it was compiled from.
      arguments: names of the function's arguments.
    """
    return json.dumps(_Reader(function, module, arguments).read(), indent=1) + "\n"


class _Reader:
    def __init__(self, function: CompiledFunction, module: Module, arguments: Sequence[str]) -> None:
        self._function = function
        self._module = module
        self._arguments = arguments
        self._emitter = Emitter(function)
        self._owner = {name: one for one in module.computations.values() for name in one.instructions}
        self._kernels = dict(kernels(module))
        self._products = [
            instruction
            for one in module.computations.values()
            for instruction in one.instructions.values()
            if instruction.opcode in _PRODUCTS
        ]
        self._steps: list[dict[str, Any]] = []
        self._loops: list[tuple[int, int]] = []

    def read(self) -> dict[str, Any]:
        """Returns what `describe` says."""
        self._add(self._function.thunks, 1)
        sizes = ((Slice(buffer, 0), self._function.buffers[buffer].size) for buffer in self._function.results)
        results = [place for place in self._places(sizes) if place["of"] == MEMORY]
        memory = self._emitter.memory_bytes
        return {"memory": memory, "steps": self._steps, "loops": self._loops, "results": results}

    def _add(self, thunks: Sequence[Thunk], times: int) -> None:
        for thunk in thunks:
            first = len(self._steps)
            if thunk.title:
                self._steps.append(self._step(thunk, times))
            for body in thunk.bodies:
                self._add(body, times * (thunk.trips if isinstance(thunk, For) else 1))
            if isinstance(thunk, For | kinds.While) and len(self._steps) > first:
                self._loops.append((first, len(self._steps) - 1))

    def _step(self, thunk: Thunk, times: int) -> dict[str, Any]:
        instruction = self._instruction(thunk)
        operations = thunk.operations
        if operations is None and instruction:
            operations = self._operations(instruction)
        reads, writes = thunk.uses().reads, thunk.uses().writes
        if instruction and isinstance(thunk, Kernel):
            results = len(instruction.type.arrays)
            reads, writes = thunk.places[:-results], thunk.places[-results:]
        return {
            "kernel": thunk.title,
            "origin": instruction.attributes.metadata.op_name if instruction else "",
            "times": times,
            "operations": operations,
            "reads": self._places(reads),
            "writes": self._places(writes),
        }

    def _places(self, places: Iterable[Place]) -> list[dict[str, Any]]:
        made, arguments, emitter = [], len(self._function.arguments), self._emitter
        for at, size in dict.fromkeys(places):
            number = emitter.number[at.buffer]
            of, first = "constants", 0
            if number < arguments:
                of = self._arguments[number] if number < len(self._arguments) else f"argument {number}"
            elif number < arguments + len(emitter.memory):
                of, first = MEMORY, emitter.memory[number - arguments]
            made.append({"of": of, "offset": first + at.offset, "bytes": size})
        return made

    def _instruction(self, thunk: Thunk) -> Instruction | None:
        """Returns what became a step: a kernel by its name, and a product by its size, of which the first comes first."""
        if isinstance(thunk, Kernel):
            return self._kernels.get(thunk.symbol)
        if isinstance(thunk, kinds.Convolution | kinds.Dot):
            for index, product in enumerate(self._products):
                if self._operations(product) == thunk.operations:
                    return self._products.pop(index)
        return None

    def _operations(self, instruction: Instruction) -> int:
        """Returns the arithmetic of an instruction. A loop whose rounds aren't known counts as one."""
        owner = self._owner[instruction.name]
        operands = [owner.instructions[name].type for name in instruction.operands]
        operations = cost.arithmetic(instruction, operands)
        if instruction.opcode in (*_PRODUCTS, "ragged-dot", *cost.REDUCTIONS):
            return operations
        bodies = (self._module.computations[name] for name in instruction.called)
        inner = sum(self._operations(instruction) for body in bodies for instruction in body.instructions.values())
        if instruction.called and instruction.opcode not in ("custom-call", "map"):
            return inner
        return 0 if instruction.opcode in _FREE else operations
