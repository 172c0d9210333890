"""Which right sides are packed before a loop."""

from __future__ import annotations

import dataclasses
import json
import unittest
from pathlib import Path

from tests.compile.program.changed import NO_KERNELS, changed
from tests.compile.program.models import HEAD, MODELS
from tests.stages.harness import StageTest
from tfaot.compile.program.packing.loops import pack_loops
from tfaot.compile.program.thunks.kinds import (
    Buffer,
    Call,
    CompiledFunction,
    Copy,
    Dot,
    For,
    Kernel,
    Pack,
    Slice,
    Thunk,
    While,
    walk,
)

WEIGHTS = 4 * 3 * 32
FIRST = Slice(1, 0)


def dot(right: Slice = FIRST, *, rows: int = 4, transposed: bool = False, packing: str = "none") -> Dot:
    """Returns a product [rows, 3] x [3, 32] of the start of buffer 0, written further on in it."""
    return Dot(
        dtype="float",
        batch=1,
        out=Slice(0, 2048),
        lhs=right,
        rhs=Slice(0, 0),
        strides=(rows * 32, 96, rows * 3),
        m=32,
        n=rows,
        k=3,
        transpose_lhs=transposed,
        transpose_rhs=False,
        packing=packing,
    )


def kernel(*at: tuple[int, int, int], single: bool = True) -> Kernel:
    """Returns a kernel whose arguments are buffers, offsets, and sizes. The last one is its result, if there is only one."""
    args = tuple((Slice(buffer, offset), size) for buffer, offset, size in at)
    return Kernel("known", args, (1, 1, 1), single)


def function(*thunks: Thunk) -> CompiledFunction:
    """Returns a function with an argument, buffer 0, and weights, buffers 1 and 2."""
    buffers = tuple(Buffer(1 << 16, "parameter", index, None) for index in range(3))
    return CompiledFunction(buffers, (0, 1, 2), (0,), (), (), thunks)


class PackLoopsTest(unittest.TestCase):
    """The pass on thunks."""

    def packs(self, *thunks: Thunk) -> list[tuple[int, int]]:
        """Returns the buffer of each packed right side, and the panels' buffer. Each product reads what was packed for it."""
        got = changed(pack_loops, NO_KERNELS, function(*thunks))
        found = [each for each in walk(got.thunks) if isinstance(each, Pack)]
        panels = {each.out for each in found}
        for each in walk(got.thunks):
            if isinstance(each, Dot):
                self.assertEqual(each.packing == "panels", each.lhs in panels or each.lhs.buffer == 9)
        for each in found:
            self.assertEqual(got.buffers[each.out.buffer], Buffer(each.size, "temp", None, None))
        return [(each.input.buffer, each.out.buffer) for each in found]

    def test_before_the_loop(self) -> None:
        """Protects numbers: the right side is packed right before the loop, after what wrote it."""
        first = Copy(Slice(1, 0), Slice(0, 0), WEIGHTS)
        got = changed(pack_loops, NO_KERNELS, function(first, For(8, (dot(),))))
        pack = Pack("float", Slice(3, 0), Slice(1, 0), 3, 32, False, 384)
        product = dataclasses.replace(dot(), lhs=Slice(3, 0), packing="panels")
        self.assertEqual(got.thunks, (first, pack, For(8, (product,))))
        self.assertEqual(got.buffers[3:], (Buffer(384, "temp", None, None),))

    def test_where_it_gains(self) -> None:
        """Protects speed: packing costs a few steps, so short loops and other code stay as they are, and rows of one."""
        self.assertEqual(self.packs(For(8, (dot(),))), [(1, 3)])
        self.assertEqual(self.packs(While(Slice(0, 0), (), (dot(),))), [(1, 3)])
        for other in (For(7, (dot(),)), dot(), Call((dot(),)), For(8, (dot(rows=1),))):
            self.assertEqual(self.packs(other), [])
        self.assertEqual(self.packs(For(8, (dot(Slice(9, 0), packing="panels"),))), [])

    def test_shared(self) -> None:
        """Protects memory and time: products that need the same panels share them, and others don't."""
        self.assertEqual(self.packs(For(8, (dot(), dot(rows=9)))), [(1, 3)])
        self.assertEqual(self.packs(For(8, (dot(), dot(transposed=True)))), [(1, 3), (1, 4)])
        self.assertEqual(self.packs(For(8, (dot(), dot(Slice(2, 0))))), [(1, 3), (2, 4)])
        self.assertEqual(self.packs(For(8, (dot(),)), For(8, (dot(),))), [(1, 3), (1, 4)])

    def test_nested(self) -> None:
        """Protects speed: what the outer loop doesn't change is packed before it, and the rest before the inner one."""
        inner = For(9, (dot(), dot(Slice(2, 0))))
        got = changed(pack_loops, NO_KERNELS, function(For(10, (kernel((0, 0, 4), (2, 0, 4)), inner))))
        outer_pack, outer = got.thunks
        assert isinstance(outer_pack, Pack)
        assert isinstance(outer, For)
        self.assertEqual(outer_pack.input, Slice(1, 0))
        self.assertEqual([type(each) for each in outer.body], [Kernel, Pack, For])


class CompiledTest(StageTest):
    """The pass in the compile stage."""

    def test_manifest(self) -> None:
        """Protects `NAME.passes.json`, and the switch that turns the pass off."""
        exported = self.export(HEAD + MODELS["recurrent"])
        self.compile(exported)
        self.assertEqual(json.loads(Path(exported.path("passes")).read_text())["pack_loops"], 3)
        self.compile(exported, passes=("*", "!pack_loops"))
        self.assertIsNone(json.loads(Path(exported.path("passes")).read_text())["pack_loops"])
        self.assertNotIn("RunPack", Path(exported.path("source")).read_text())


if __name__ == "__main__":
    unittest.main()
