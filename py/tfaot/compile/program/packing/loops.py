"""The pass `pack_loops`: packs a right side once before a loop that multiplies by it in every step.

`prepack` packs constants when a model is compiled. A variable's value is only known in a run, and packing it costs as much as a
product with a few rows. A recurrent layer multiplies by the same weights in each of its steps, so packing them before the first
step pays off, and so does transposing them for the steps of the gradient.

Applies to right sides of products of several rows in loops of 8 steps or more, if no step changes them. The loop's memory grows
by the packed weights. A training step of LSTM(128) over 50 steps takes 3 to 5 % less (Zen 3, AVX2).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from tfaot.compile.program.packing.layouts import PANEL_BYTES
from tfaot.compile.program.packing.prepack import has_panels
from tfaot.compile.program.thunks.accesses import may_change
from tfaot.compile.program.thunks.compiled import Compiled
from tfaot.compile.program.thunks.kinds import (
    SIZES,
    Buffer,
    CompiledFunction,
    Dot,
    For,
    Pack,
    Slice,
    Thunk,
    While,
    mapped,
    walk,
)

_TRIPS = 8
"""The fewest steps of a loop. With 16 rows, panels save a seventh to a sixth of a product, and packing costs as much as four
steps save."""


def pack_loops(compiled: Compiled) -> int:
    """Packs right sides that loops don't change, at all CPU levels.

    Returns:
      The number of right sides at the level with the most.
    """
    compiled.change(lambda function: _packed(compiled, function))
    return compiled.most(lambda thunk: isinstance(thunk, Pack))


def _packed(compiled: Compiled, function: CompiledFunction) -> CompiledFunction:
    """Returns a function that packs right sides before its loops, with a buffer for each of them."""
    buffers = [*function.buffers]

    def sequence(thunks: tuple[Thunk, ...]) -> tuple[Thunk, ...]:
        result: list[Thunk] = []
        for thunk in thunks:
            packs: dict[Thunk, Pack] = {}
            if isinstance(thunk, While) or (isinstance(thunk, For) and thunk.trips >= _TRIPS):
                packs = _packs(compiled, thunk, buffers)
            elif isinstance(thunk, For):
                for dot in filter(_has_panels, walk((thunk,))):
                    compiled.missed(dot, f"its loop has {thunk.trips} steps")
            result += dict.fromkeys(packs.values())
            # Before outer loops first, so that an inner loop doesn't pack them again.
            result.append(mapped((thunk,), functools.partial(_reading, packs))[0].with_bodies(sequence))
        return tuple(result)

    thunks = sequence(function.thunks)
    return dataclasses.replace(function, buffers=tuple(buffers), thunks=thunks)


def _packs(compiled: Compiled, loop: For | While, buffers: list[Buffer]) -> dict[Thunk, Pack]:
    """Returns how to pack the right sides that a loop doesn't change, by product. Products may share one."""
    shared: dict[Pack, Pack] = {}
    packs: dict[Thunk, Pack] = {}
    for dot in walk((loop,)):
        if not isinstance(dot, Dot) or not _has_panels(dot):
            continue
        if may_change((loop,), dot.places[1]):
            compiled.missed(dot, "its loop changes the right side")
            continue
        columns = PANEL_BYTES // SIZES[dot.dtype]
        size = -(-dot.m // columns) * dot.k * PANEL_BYTES
        # Equal until it has a buffer.
        pack = Pack(dot.dtype, Slice(-1, 0), dot.lhs, dot.k, dot.m, dot.transpose_lhs, size)
        if pack not in shared:
            shared[pack] = dataclasses.replace(pack, out=Slice(len(buffers), 0))
            buffers.append(Buffer(size, "temp", None, None))
        packs[dot] = shared[pack]
    return packs


def _reading(packs: Mapping[Thunk, Pack], thunk: Thunk) -> Thunk:
    """Returns a product that reads a packed right side."""
    if not isinstance(thunk, Dot) or thunk not in packs:
        return thunk
    return dataclasses.replace(thunk, lhs=packs[thunk].out, packing="panels")


def _has_panels(thunk: Thunk) -> bool:
    return isinstance(thunk, Dot) and thunk.packing == "none" and has_panels(thunk)
