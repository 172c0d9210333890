"""A compiled function for all CPU levels, which the passes after the compiler read and change."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence

from tfaot.compile.program.thunks import CompiledFunction


@dataclasses.dataclass(frozen=True)
class Constant:
    """A constant; one that several levels have, or that a level has several times, is one constant."""

    value: memoryview
    places: tuple[tuple[str, int, str], ...]
    """CPU levels, buffers, and symbols."""


@dataclasses.dataclass(frozen=True)
class Packed:
    """A constant that was packed."""

    packing: str
    shape: tuple[int, ...]
    """Of a product's right side: inner dimension and columns; of a kernel: x, y, channels, filters."""
    before: int
    """Its size in bytes before and after."""
    after: int


@dataclasses.dataclass
class Compiled:
    """A compiled function, which passes change in place."""

    functions: dict[str, CompiledFunction]
    """By CPU level, lowest first."""
    values: Mapping[str, memoryview]
    """What the compiler stored in each constant, by symbol."""
    optimized_hlo: Sequence[str] = ()
    """The text that XLA generated code from, without the constants' values; none if XLA wrote it elsewhere."""
    replaced: dict[str, bytes] = dataclasses.field(default_factory=dict)
    """What to store instead, by symbol; without the constants that stay as they are."""
    packed: dict[int, Packed] = dataclasses.field(default_factory=dict)
    """The constants that were packed, by their index in `constants`."""

    @functools.cached_property
    def constants(self) -> tuple[Constant, ...]:
        """All constants, in the order in which the functions name them first."""
        found: dict[tuple[int, bytes], tuple[memoryview, list[tuple[str, int, str]]]] = {}
        for isa, function in self.functions.items():
            for buffer, symbol in _symbols(function):
                value = self.values[symbol]
                key = len(value), hashlib.sha256(value).digest()
                found.setdefault(key, (value, []))[1].append((isa, buffer, symbol))
        return tuple(Constant(value, tuple(places)) for value, places in found.values())


def _symbols(function: CompiledFunction) -> Iterator[tuple[int, str]]:
    """Buffers and symbols of the constants that have values."""
    filled = (index for index, buffer in enumerate(function.buffers) if buffer.kind == "constant" and buffer.size)
    return zip(filled, function.constants, strict=True)
