"""Which kernels add up rows, and that a call of the runtime adds up the same."""

from __future__ import annotations

import dataclasses
import unittest

import numpy as np

from tests.compile.program.changed import changed, stored, thunks
from tfaot.compile.program.passes.column_reduction import column_reduction, column_sums
from tfaot.compile.program.thunks.kinds import (
    Buffer,
    ColumnSums,
    CompiledFunction,
    For,
    Kernel,
    Slice,
    Thunk,
)


def module(
    shape: str, result: str, operation: str, *, combined: str = "add", start: str = "0", dtype: str = "f32"
) -> str:
    """Returns a module whose kernel `total` reduces its first argument by an operation, from a start value."""

    def layout(dims: str) -> str:
        rank = len(dims.split(",")) if dims else 0
        return f"{{{','.join(map(str, reversed(range(rank))))}}}" if rank else ""

    def array(dims: str) -> str:
        return f"{dtype}[{dims}]{layout(dims)}"

    return f"""\
HloModule m, is_scheduled=true

%region (a: {dtype}[], b: {dtype}[]) -> {dtype}[] {{
  %a = {dtype}[] parameter(0)
  %b = {dtype}[] parameter(1)
  ROOT %combined = {dtype}[] {combined}(%a, %b)
}}

%fused (p: {dtype}[{shape}]) -> {dtype}[{result}] {{
  %p = {array(shape)} parameter(0)
  %q = {dtype}[] constant({start})
  ROOT %reduced = {array(result)} {operation}, to_apply=%region
}}

ENTRY %main (x: {dtype}[{shape}]) -> {dtype}[{result}] {{
  %x = {array(shape)} parameter(0)
  ROOT %total = {array(result)} fusion(%x), kind=kLoop, calls=%fused
}}
"""


def replaced(hlo: str, *given: Thunk) -> tuple[Thunk, ...]:
    """Returns what the pass makes of thunks."""
    buffers = tuple(Buffer(1 << 20, "temp", None, None) for _ in range(3))
    return thunks(column_reduction, hlo, CompiledFunction(buffers, (), (), (), (), given))


def sizes(hlo: str) -> tuple[int, ...] | None:
    """Returns arrays, rows, columns, blocks, and the rows of the first and of other blocks, if the kernel becomes a call."""
    kernel = stored(hlo, "m_total")
    assert kernel is not None
    got = column_sums(kernel)
    if not isinstance(got, ColumnSums):
        return None
    assert (got.input, got.out) == (Slice(0, 0), Slice(1, 0))
    return got.arrays, got.rows, got.columns, got.blocks, got.first, got.step


class SummedTest(unittest.TestCase):
    """The reader of optimized HLO."""

    def test_whole(self) -> None:
        """Protects sums over all rows: of one array, of several, and of rows with several dimensions."""
        for shape, result, dimensions, wanted in (
            ("300,4", "4", "0", (1, 300, 4, 1, 300, 300)),
            ("8,64,64", "64,64", "0", (1, 8, 4096, 1, 8, 8)),
            ("6,9,7,5", "6,5", "1,2", (6, 63, 5, 1, 63, 63)),
        ):
            with self.subTest(shape):
                self.assertEqual(sizes(module(shape, result, f"reduce(%p, %q), dimensions={{{dimensions}}}")), wanted)

    def test_blocks(self) -> None:
        """Protects sums that XLA cuts into blocks, of which the first and the last can be shorter."""
        for shape, result, window, wanted in (
            ("64,27,27,4", "2,1,1,4", "size=32x27x27x1 stride=32x27x27x1", (1, 46656, 4, 2, 23328, 23328)),
            ("81,9,4", "3,1,4", "size=32x9x1 stride=32x9x1 pad=7_8x0_0x0_0", (1, 729, 4, 3, 225, 288)),
            ("5,81,4", "5,3,4", "size=1x32x1 stride=1x32x1 pad=0_0x15_0x0_0", (5, 81, 4, 3, 17, 32)),
        ):
            with self.subTest(shape):
                hlo = module(shape, result, f"reduce-window(%p, %q), window={{{window}}}")
                self.assertEqual(sizes(hlo), wanted)

    def test_everything_else(self) -> None:
        """Protects other models: what is no sum of rows stays a kernel."""
        whole, window = "reduce(%p, %q), dimensions={0}", "reduce-window(%p, %q), window={{size={} stride={}{}}}"
        for hlo in (
            module("300,4", "4", whole, combined="maximum"),
            module("300,4", "4", whole, start="1"),
            module("300,4", "4", whole, dtype="f64"),
            module("200,4", "4", whole),  # a small sum
            module("300,4", "4", whole).replace("{1,0}", "{0,1}"),
            module("300,4", "300", "reduce(%p, %q), dimensions={1}"),
            module("30,4,30", "4", "reduce(%p, %q), dimensions={0,2}"),
            module("30,4,30,3", "4,3", "reduce(%p, %q), dimensions={0,2}"),
            module("64,32", "64,2", window.format("1x16", "1x16", "")),
            module("300,4,5", "5", "reduce(%p, %q), dimensions={0,1}")
            .replace("reduce(%p", "reduce(%x")
            .replace("  %q =", "  %x = f32[300,4,5]{2,1,0} exponential(%p)\n  %q =", 1),
            module("30,9,9,4", "1,3,1,4", window.format("30x3x9x1", "30x3x9x1", "")),
            module("64,27,4", "2,27,4", window.format("32x1x1", "16x1x1", "")),
            module("64,27,4", "2,27,2", window.format("32x1x2", "32x1x2", "")),
            module("64,27,4", "2,2,4", window.format("32x27x1", "32x27x1", " pad=0_0x13_14x0_0")),
            module("64,27,4", "2,27,4", window.format("32x1x1", "32x1x1", " pad=0_1x0_0x0_0")),
            module("64,27,4", "4,27,4", window.format("32x1x1", "32x1x1", " pad=32_32x0_0x0_0")),
            module("64,27,4", "64,27,4", window.format("1x1x1", "1x1x1", "")),
        ):
            with self.subTest(hlo):
                self.assertIsNone(sizes(hlo))


class ReplaceTest(unittest.TestCase):
    """The pass on thunks."""

    HLO = module("300,4", "4", "reduce(%p, %q), dimensions={0}")

    def kernel(self, values: Slice, out: Slice, *, size: int = 4800, out_size: int = 16) -> Kernel:
        """Returns a kernel that adds up 300 rows of 4."""
        return Kernel("m_total", ((values, size), (out, out_size)), (1, 1, 1), single=True)

    def test_call(self) -> None:
        """Protects the numbers: the call reads and writes what the kernel does, also in loops."""
        kernel, call = (
            self.kernel(Slice(0, 0), Slice(2, 64)),
            ColumnSums(1, 300, 4, 1, 300, 300, out=Slice(2, 64), input=Slice(0, 0)),
        )
        self.assertEqual(replaced(self.HLO, kernel, For(3, (kernel,))), (call, For(3, (call,))))

    def test_single_instruction(self) -> None:
        """Protects TensorFlow 2.20, which puts few instructions in fusions: a kernel can be a single instruction."""
        start, end = "ROOT %total = ", "fusion(%x), kind=kLoop, calls=%fused"
        alone = self.HLO.replace(start, f"%zero = f32[] constant(0)\n  {start}")
        alone = alone.replace(end, "reduce(%x, %zero), dimensions={0}, to_apply=%region")
        args = ((Slice(0, 0), 4800), (Slice(1, 0), 4), (Slice(0, 4864), 16))
        kernel = Kernel("m_total_kernel", args, (1, 1, 1), single=True)
        buffers = (Buffer(1 << 20, "temp", None, None), Buffer(4, "constant", None, None))
        function = CompiledFunction(buffers, (), (), ("start",), (), (kernel,))
        call = ColumnSums(1, 300, 4, 1, 300, 300, out=Slice(0, 4864), input=Slice(0, 0))
        for value, made in ((0, call), (1, kernel)):
            content = np.float32(value).tobytes()
            self.assertEqual(changed(column_reduction, alone, function, {"start": content}).thunks, (made,))

    def test_left_alone(self) -> None:
        """Protects kernels whose arguments aren't those of the sum, or that write over what they read."""
        for kernel in (
            self.kernel(Slice(0, 0), Slice(2, 0), size=4796),
            self.kernel(Slice(0, 0), Slice(2, 0), out_size=32),
            self.kernel(Slice(0, 0), Slice(0, 0)),
            dataclasses.replace(self.kernel(Slice(0, 0), Slice(2, 0)), symbol="m_other"),
            dataclasses.replace(
                self.kernel(Slice(0, 0), Slice(2, 0)), args=self.kernel(Slice(0, 0), Slice(2, 0)).args[1:]
            ),
        ):
            with self.subTest(kernel):
                self.assertEqual(replaced(self.HLO, kernel), (kernel,))


if __name__ == "__main__":
    unittest.main()
