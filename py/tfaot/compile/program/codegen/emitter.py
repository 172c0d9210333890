"""Writes the run of a compiled function: what thunks need for that, and share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tfaot.compile.program.packing import layouts as packing
from tfaot.compile.program.thunks.kinds import CompiledFunction, Slice, Thunk, walk
from tfaot.compile.program.values.formulas import Formula

ALIGNMENT = 64
"""The alignment in bytes of every buffer in an instance's memory, as XLA's kernels expect it. Generated programs assert that the
runtime has the same number for this and the following constants."""

MAX_SORTED = 64
"""The most arrays that can be sorted together: `kMaxSorted` in runtime/tfaot/sort.h."""


class Emitter:
    """Renumbers and places the buffers, and collects the tables of a program.

    The new order is: arguments, buffers in an instance's memory, constants. A buffer gets no number if no thunk uses it
    and it contains no result.
    """

    def __init__(self, function: CompiledFunction) -> None:
        self.kernel_args: list[tuple[int, int, int]] = []
        """An offset, a size, and a buffer each."""
        self.calls: list[str] = []
        self.products: list[str] = []
        self.images: list[str] = []
        self.formulas: dict[Formula, int] = {}
        self.row_formulas: dict[tuple[Formula, int], int] = {}
        self.sources = set[str]()
        """The runtime's sources that the program calls, each compiled for the program's level."""
        self.symbols = set[str]()
        """Kernels in the object file."""
        self.comparators = set[str]()
        self.scratch: dict[str, None] = {}
        """The bytes of memory that calls work in, as C++."""
        self.facts = {f"::tfaot::Executor::kAlignment == {ALIGNMENT}": None}
        """What the program asserts about the runtime."""
        self.needs = set[str]()
        """Parts of the runtime: `bounds`, `calls`, `collectives`, `complex`, `fourier`, `linear`, `mlp_fusion`, `half`,
        `sort`, or `winograd`."""
        used = {at.buffer for thunk in walk(function.thunks) for at, _ in thunk.places}
        used |= set(function.results)
        self.number = {buffer: index for index, buffer in enumerate(function.arguments)}
        """Of the buffers that are used."""
        self.memory: list[int] = []
        self.memory_bytes = 0
        constants = [
            index for index, buffer in enumerate(function.buffers) if buffer.kind == "constant" and buffer.size
        ]
        for index in sorted(used - set(self.number) - set(constants)):
            self.number[index] = len(self.number)
            self.memory.append(self.memory_bytes)
            self.memory_bytes += -(-function.buffers[index].size // ALIGNMENT) * ALIGNMENT
        self.constants = []
        for index, symbol in zip(constants, function.constants, strict=True):
            if index in used:
                self.number[index] = len(self.number)
                self.constants.append(symbol)

    def at(self, place: Slice) -> str:
        """Returns a pointer to a place."""
        return f"b[{self.number[place.buffer]}] + {place.offset}"

    def all_at(self, places: Iterable[Slice]) -> str:
        """Returns pointers in braces."""
        return "{" + ", ".join(map(self.at, places)) + "}"

    def sequence(self, thunks: Sequence[Thunk], depth: int = 0) -> list[str]:
        """Returns the code of thunks, with this indentation."""
        lines = []
        for thunk in thunks:
            if thunk.title:
                lines.append(f'if (!step("{thunk.title}")) return false;')
            lines += thunk.emit(self)
        return ["  " * depth + line for line in lines]

    @property
    def most_sorted(self) -> int:
        """The most arrays that the runtime can sort together, which the program asserts."""
        self.facts[f"::tfaot::kMaxSorted == {MAX_SORTED}"] = None
        return MAX_SORTED

    def packed(self, name: str) -> bool:
        """Asserts what the kernels must know about a packing. Returns whether it is one for products of few rows."""
        self.facts.update(dict.fromkeys(packing.facts(name)))
        return name in packing.STREAMS

    def image(self, sizes: Sequence[int], pairs: Sequence[tuple[int, int]], layout: str) -> str:
        """Adds an entry of the table of convolutions, and returns its name. `pairs` have what each axis has."""
        axes = ", ".join(f"{{{', '.join(str(pair[axis]) for pair in pairs)}}}" for axis in (0, 1))
        self.images.append(f"{{{', '.join(map(str, sizes))}, {axes}, {_packing(layout)}}}")
        return f"kImages[{len(self.images) - 1}]"

    def product(self, sizes: Iterable[object], layout: str, apart: str) -> str:
        """Adds an entry of the table of products, and returns its name."""
        self.products.append(f"{{{', '.join(map(str, sizes))}, {_packing(layout)}{apart}}}")
        return f"kProducts[{len(self.products) - 1}]"

    def context(self, function: CompiledFunction) -> dict[str, Any]:
        """Returns the names that the template uses, apart from formulas, after the run was written."""
        uses: list[int] = []
        first_use = [0]
        for argument in range(len(function.arguments)):
            uses += [index for index, (_, _, buffer) in enumerate(self.kernel_args) if buffer == argument]
            first_use.append(len(uses))
        return {
            **vars(self),
            "comparators": sorted(self.comparators),
            "constant_data": [f"{symbol} + 64" for symbol in self.constants],
            "first_use": first_use,
            "kernel_args": [f"{{{offset}u, {size}u, {buffer}u}}" for offset, size, buffer in self.kernel_args],
            "kernels": sorted(self.symbols),
            "memory": [f"{offset}u" for offset in self.memory],
            "needs": self.needs | ({"calls"} if self.sources else set()),
            "results": [f"{self.number[buffer]}u" for buffer in function.results],
            "uses": uses,
        }


def _packing(layout: str) -> str:
    return f"kernels::Packing::k{layout.capitalize()}"
