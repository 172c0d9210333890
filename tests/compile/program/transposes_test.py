"""Which kernels only copy in another order, and that a call of the runtime copies the same."""

from __future__ import annotations

import dataclasses
import unittest

import numpy as np

from tests.compile.program.changed import stored, thunks
from tfaot.compile.program.passes.transposes import LOOPS, loops_of, transposes
from tfaot.compile.program.thunks.kinds import (
    Buffer,
    CompiledFunction,
    For,
    Kernel,
    RowCopies,
    Slice,
    Thunk,
)
from tfaot.compile.program.values.copies import Order, original

HLO = """\
HloModule m, is_scheduled=true

%fused (p: f32[8,32,4,16]) -> f32[8,4,32,16] {
  %p = f32[8,32,4,16]{3,2,1,0} parameter(0)
  %transpose.1 = f32[8,4,32,16]{3,1,2,0} transpose(%p), dimensions={0,2,1,3}
  ROOT %copy.1 = f32[8,4,32,16]{3,2,1,0} copy(%transpose.1)
}

ENTRY %main (x: f32[8,32,4,16]) -> f32[8,4,32,16] {
  %x = f32[8,32,4,16]{3,2,1,0} parameter(0)
  ROOT %copied = f32[8,4,32,16]{3,2,1,0} fusion(%x), kind=kLoop, calls=%fused
}
"""
SIZE = 4 * 8 * 32 * 4 * 16


def of(first: int, loops: tuple[tuple[int, int], ...]) -> Order:
    """Returns the indices that loops go through."""
    index = np.array(first)
    for count, step in loops:
        index = np.add.outer(index, np.arange(count) * step)
    return index.ravel()


class LoopsTest(unittest.TestCase):
    """The order of a copy as loops."""

    def test_fewest(self) -> None:
        """Protects short code and long rows: dimensions that stay together are one loop."""
        order = np.arange(120).reshape(2, 3, 4, 5).transpose(1, 0, 2, 3).ravel()
        self.assertEqual(loops_of(order), (0, ((3, 20), (2, 60), (20, 1))))

    def test_others(self) -> None:
        """Protects orders that no loops have."""
        for order in (
            np.array([0, 1, 2, 4, 5, 3]),
            np.array([0, 1, 3, 4, 5]),
            np.array([0, 1, 2, 3, 10, 12, 14, 16]),
        ):
            self.assertIsNone(loops_of(order), order)


class ReplaceTest(unittest.TestCase):
    """The pass on thunks."""

    CALL = RowCopies(0, ((1, 0), (8, 2048), (4, 16), (32, 64)), 16, Slice(1, 0), Slice(0, 0), SIZE)

    def replaced(self, *given: Thunk, hlo: str = HLO) -> tuple[Thunk, ...]:
        """Returns what the pass makes of thunks."""
        buffers = tuple(Buffer(SIZE, "temp", None, None) for _ in range(2))
        return thunks(transposes, hlo, CompiledFunction(buffers, (), (), (), (), given))

    def kernel(self, *places: tuple[Slice, int]) -> Kernel:
        """Returns the kernel, given its arguments and their bytes."""
        return Kernel("m_copied", tuple(places), (1, 1, 1), single=True)

    def test_call(self) -> None:
        """Protects the numbers: the call reads and writes where the kernel does, also in loops, and its loops are the runtime's."""
        self.assertEqual(len(self.CALL.loops), LOOPS)
        kernel = self.kernel((Slice(0, 0), SIZE), (Slice(1, 0), SIZE))
        self.assertEqual(self.replaced(kernel, For(3, (kernel,))), (self.CALL, For(3, (self.CALL,))))

    def test_left_alone(self) -> None:
        """Protects kernels with other arguments, and those that XLA copies as fast, or that are too large to look at."""
        kernel = self.kernel((Slice(0, 0), SIZE), (Slice(1, 0), SIZE))
        for other in (
            self.kernel((Slice(0, 0), SIZE), (Slice(1, 0), SIZE - 4)),
            self.kernel((Slice(0, 0), SIZE), (Slice(0, 64), SIZE)),
            self.kernel((Slice(0, 0), SIZE), (Slice(0, 0), 4), (Slice(1, 0), SIZE)),
            dataclasses.replace(kernel, symbol="m_other"),
        ):
            self.assertEqual(self.replaced(other), (other,))
        single = ("transpose(%p), dimensions={0,3,2,1}", "[8,4,32,16]{3,1,2,0}", "[8,16,4,32]{1,2,3,0}")
        for hlo, values in (
            (HLO.replace("f32[", "f64["), SIZE // 4),
            (HLO.replace("8,32,4,16", "8,32,4,64").replace("8,4,32,16", "8,4,32,64"), SIZE),
            (HLO.replace("8,32,4,16", "1,15,4,16").replace("8,4,32,16", "1,4,15,16"), 15 * 64),
            (
                HLO.replace("transpose(%p), dimensions={0,2,1,3}", single[0])
                .replace(single[1], single[2])
                .replace("8,4,32,16", "8,16,4,32"),
                SIZE // 4,
            ),
            (HLO.replace("8,32,4,16", "2049,32,4,16").replace("8,4,32,16", "2049,4,32,16"), 2049 * 2048),
            (_six_loops(), 4096),
        ):
            with self.subTest(hlo):
                copy = stored(hlo, "m_copied")
                self.assertTrue(copy and original(copy))
                thunk = self.kernel((Slice(0, 0), 4 * values), (Slice(1, 0), 4 * values))
                self.assertEqual(self.replaced(thunk, hlo=hlo), (thunk,))


def _six_loops() -> str:
    """Returns a module that copies rows in five loops."""
    return (
        HLO.replace("8,32,4,16", "4,4,4,4,4,4")
        .replace("8,4,32,16", "4,4,4,4,4,4")
        .replace("dimensions={0,2,1,3}", "dimensions={4,3,2,1,0,5}")
        .replace("{3,1,2,0}", "{5,0,1,2,3,4}")
        .replace("{3,2,1,0}", "{5,4,3,2,1,0}")
    )


if __name__ == "__main__":
    unittest.main()
