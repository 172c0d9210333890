"""A compiled function for all CPU levels, which the passes after the compiler read and change."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from tfaot.compile.program.thunks.accesses import Body, clashes
from tfaot.compile.program.thunks.kinds import Buffer, CompiledFunction, Kernel, Thunk, mapped, walk
from tfaot.compile.program.values.graph import Graph, Value
from tfaot.compile.program.values.instructions import Fusion, fusions, kernels
from tfaot.xla.module import Module


@dataclasses.dataclass(frozen=True)
class Constant:
    """A constant. If several levels have it, or a level has it several times, it is still one constant."""

    value: memoryview
    places: tuple[tuple[str, int, str], ...]
    """Its CPU levels, buffers, and symbols."""


@dataclasses.dataclass(frozen=True)
class Packed:
    """A packed constant."""

    packing: str
    shape: tuple[int, ...]
    """For a product's right side: inner dimension and columns. For a kernel: x, y, channels, filters."""
    before: int
    """Its size in bytes before and after packing."""
    after: int


@dataclasses.dataclass
class Compiled:
    """A compiled function, which passes change in place."""

    functions: dict[str, CompiledFunction]
    """Functions by CPU level, lowest first."""
    values: Mapping[str, memoryview]
    """What the compiler stored in each constant, by symbol."""
    modules: Sequence[Module] = ()
    """What XLA generated code from, for each level."""
    weights: str = ""
    """The dtype to which the export stage has rounded weights: `bfloat16` or `int8`. Empty if it hasn't."""
    replaced: dict[str, bytes] = dataclasses.field(default_factory=dict)
    """Replacements for constants' values, by symbol, without the constants that stay unchanged."""
    added: dict[str, bytes] = dataclasses.field(default_factory=dict)
    """More constants, by symbol."""
    packed: dict[int, Packed] = dataclasses.field(default_factory=dict)
    """The packed constants, by their index in `constants`."""
    running: str = ""
    """The name of the pass that runs."""
    reasons: dict[tuple[str, str], str] = dataclasses.field(default_factory=dict)
    """Why a pass left something as it is, by the pass's name, and a thunk's title or a constant's symbol."""

    _graphs: dict[int, tuple[Sequence[Thunk], Graph]] = dataclasses.field(default_factory=dict, init=False)
    """By the identity of a sequence."""

    def missed(self, what: Thunk | str, reason: str) -> None:
        """Notes a near miss of the pass that runs: its pattern matches, but the change isn't legal, or doesn't pay off.

        Args:
          what: a thunk, or the symbol of a constant.
          reason: continues the sentence "the pass left it, because".
        """
        self.reasons.setdefault((self.running, what if isinstance(what, str) else what.title), reason)

    @property
    def remaining(self) -> dict[str, int]:
        """The number of XLA's kernels that are called, by CPU level. A call in a loop counts once."""
        return {
            isa: sum(isinstance(thunk, Kernel) for thunk in walk(function.thunks))
            for isa, function in self.functions.items()
        }

    @property
    def near_misses(self) -> list[dict[str, str]]:
        """The near misses of all passes: what they left, as far as no other pass has replaced it since."""
        origins = {
            symbol: kernel.attributes.metadata.op_name for module in self.modules for symbol, kernel in kernels(module)
        }
        left = {thunk.title for function in self.functions.values() for thunk in walk(function.thunks)}
        for index, constant in enumerate(self.constants):
            if index not in self.packed:
                left.update(symbol for _, _, symbol in constant.places)
        return [
            {"pass": name, "what": what, "origin": origins.get(what, ""), "reason": reason}
            for (name, what), reason in self.reasons.items()
            if what in left
        ]

    @functools.cached_property
    def fusions(self) -> dict[str, Fusion]:
        """What the kernels of all levels compute, by symbol."""
        return {symbol: fusion for module in self.modules for symbol, fusion in fusions(module).items()}

    def graph(self, function: CompiledFunction, sequence: Sequence[Thunk]) -> Graph:
        """Returns the values that a function's thunks compute, or those in one of its loops."""
        before, graph = self._graphs.get(id(sequence), (None, None))
        if before is not sequence or graph is None:
            constants = {buffer: self.values[symbol] for buffer, symbol in _symbols(function) if symbol in self.values}
            graph = Graph(sequence, self.fusions, constants)
            self._graphs[id(sequence)] = sequence, graph
        return graph

    def change(self, changed: Callable[[CompiledFunction], CompiledFunction]) -> None:
        """Replaces the function of each level by one with the same results."""

        def kept(function: CompiledFunction) -> CompiledFunction:
            after = changed(function)
            return function if after == function else after  # an equal one would have another graph

        self.functions = {isa: kept(function) for isa, function in self.functions.items()}

    def rewrite(self, change: Callable[[Body], None], *, loops: bool = False) -> None:
        """Changes the thunks of each level's function, also those in loops if `loops` says so, inner loops first."""

        def changed(function: CompiledFunction) -> CompiledFunction:
            added: list[Buffer] = []

            def sequence(thunks: tuple[Thunk, ...], temporary: set[int]) -> tuple[Thunk, ...]:
                inside = [thunk.with_bodies(lambda body: sequence(body, set())) if loops else thunk for thunk in thunks]
                body = Body([*inside], self.graph(function, thunks), temporary, function, added)
                change(body)
                return tuple(thunk for thunk in body.thunks if thunk)

            thunks = sequence(function.thunks, function.temporary)
            return dataclasses.replace(function, thunks=thunks, buffers=(*function.buffers, *added))

        self.change(changed)

    def replace(self, call: Callable[[Value], Thunk | str | None]) -> None:
        """Puts calls in place of kernels, one for one, also in loops.

        Args:
          call: returns a call that does what a kernel does, from what it stores; why the kernel stays; or None if it is another.
        """

        def change(body: Body) -> None:
            for index, stored in enumerate(body.graph.results):
                made = call(stored) if stored else None
                if isinstance(made, Thunk) and clashes(made):
                    made = "its result is where it still reads"
                if isinstance(made, Thunk):
                    body.thunks[index] = made
                elif made and (thunk := body.thunks[index]):
                    self.missed(thunk, made)

        self.rewrite(change, loops=True)

    def most(self, count: Callable[[Thunk], int]) -> int:
        """Returns the sum of a number over all thunks, also those in loops, at the level where it is largest."""
        return max(sum(map(count, walk(function.thunks))) for function in self.functions.values())

    @functools.cached_property
    def constants(self) -> tuple[Constant, ...]:
        """The compiler's constants, in the order in which the functions first name them."""
        by_value: dict[tuple[int, bytes], tuple[memoryview, list[tuple[str, int, str]]]] = {}
        for isa, function in self.functions.items():
            for buffer, symbol in _symbols(function):
                value = self.values[symbol]
                key = len(value), hashlib.sha256(value).digest()
                by_value.setdefault(key, (value, []))[1].append((isa, buffer, symbol))
        return tuple(Constant(value, tuple(places)) for value, places in by_value.values())


def _symbols(function: CompiledFunction) -> Iterator[tuple[int, str]]:
    """Returns buffers and symbols of the constants that have values."""
    filled = (index for index, buffer in enumerate(function.buffers) if buffer.kind == "constant" and buffer.size)
    return zip(filled, function.constants, strict=True)


def described(function: CompiledFunction, module: Module) -> CompiledFunction:
    """Returns a function whose kernels say whether they have one result.

    Raises:
      KeyError: the module doesn't have a kernel, of which this is the symbol.
    """
    single: dict[str, bool] = {}
    for kernel, instruction in kernels(module):
        single[kernel] = single.get(kernel, True) and instruction.type.plain  # two names can map to one symbol

    def changed(thunk: Thunk) -> Thunk:
        return dataclasses.replace(thunk, single=single[thunk.symbol]) if isinstance(thunk, Kernel) else thunk

    return dataclasses.replace(function, thunks=mapped(function.thunks, changed))
