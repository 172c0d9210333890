"""Which products read and write rows where they lie, and that the results stay the same."""

from __future__ import annotations

import dataclasses
import re
import unittest
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.compile.program.changed import stored
from tests.xla.hlo import parsed
from tfaot.compile.program.passes.transpose_folding import transpose_folding
from tfaot.compile.program.thunks.compiled import Compiled, described
from tfaot.compile.program.thunks.kinds import (
    Buffer,
    Call,
    CompiledFunction,
    Dot,
    Kernel,
    Slice,
    Thunk,
    walk,
)
from tfaot.compile.program.values.copies import order, original
from tfaot.compile.program.values.gemv import product

Array = npt.NDArray[Any]

ROWS, HEADS, CHANNELS = 6, 3, 4
COUNT = ROWS * HEADS * CHANNELS

HEAD = "HloModule m, is_scheduled=true\n\n"

COPY = f"""\
%split (p: f32[1,{ROWS + 1},12]) -> f32[{HEADS},{ROWS},{CHANNELS}] {{
  %p = f32[1,{ROWS + 1},12]{{2,1,0}} parameter(0)
  %slice.1 = f32[1,{ROWS},12]{{2,1,0}} slice(%p), slice={{[0:1], [1:{ROWS + 1}], [0:12]}}
  %bitcast.1 = f32[1,{ROWS},{HEADS},{CHANNELS}]{{3,2,1,0}} bitcast(%slice.1)
  %transpose.1 = f32[1,{HEADS},{ROWS},{CHANNELS}]{{3,1,2,0}} transpose(%bitcast.1), dimensions={{0,2,1,3}}
  %copy.1 = f32[1,{HEADS},{ROWS},{CHANNELS}]{{3,2,1,0}} copy(%transpose.1)
  ROOT %bitcast.2 = f32[{HEADS},{ROWS},{CHANNELS}]{{2,1,0}} bitcast(%copy.1)
}}
"""
"""[row, head, channel] without the first row, as [head, row, channel]."""

TURN = f"""\
%turn (p: f32[{ROWS},{HEADS},{CHANNELS}]) -> f32[{HEADS},{CHANNELS},{ROWS}] {{
  %p = f32[{ROWS},{HEADS},{CHANNELS}]{{2,1,0}} parameter(0)
  %transpose.2 = f32[{HEADS},{CHANNELS},{ROWS}]{{1,0,2}} transpose(%p), dimensions={{1,2,0}}
  ROOT %copy.2 = f32[{HEADS},{CHANNELS},{ROWS}]{{2,1,0}} copy(%transpose.2)
}}
"""

BACK = f"""\
%back (p: f32[{HEADS},{ROWS},{CHANNELS}]) -> f32[{ROWS},12] {{
  %p = f32[{HEADS},{ROWS},{CHANNELS}]{{2,1,0}} parameter(0)
  %transpose.3 = f32[{ROWS},{HEADS},{CHANNELS}]{{2,0,1}} transpose(%p), dimensions={{1,0,2}}
  %copy.3 = f32[{ROWS},{HEADS},{CHANNELS}]{{2,1,0}} copy(%transpose.3)
  ROOT %bitcast.3 = f32[{ROWS},12]{{1,0}} bitcast(%copy.3)
}}
"""

ENTRY = f"""\
ENTRY %main (x: f32[1,{ROWS + 1},12], y: f32[{ROWS},{HEADS},{CHANNELS}], q: f32[{HEADS},{CHANNELS}]) -> f32[{ROWS},12] {{
  %x = f32[1,{ROWS + 1},12]{{2,1,0}} parameter(0)
  %y = f32[{ROWS},{HEADS},{CHANNELS}]{{2,1,0}} parameter(1)
  %q = f32[{HEADS},{CHANNELS}]{{1,0}} parameter(2)
  %copy_fusion = f32[{HEADS},{ROWS},{CHANNELS}]{{2,1,0}} fusion(%x), kind=kLoop, calls=%split
  %turn_fusion = f32[{HEADS},{CHANNELS},{ROWS}]{{2,1,0}} fusion(%y), kind=kLoop, calls=%turn
  %dot.1 = f32[{HEADS},{ROWS}]{{1,0}} dot(%q, %copy_fusion), lhs_batch_dims={{0}}, lhs_contracting_dims={{1}}, \
rhs_batch_dims={{0}}, rhs_contracting_dims={{2}}
  %known = f32[{HEADS},{ROWS},{CHANNELS}]{{2,1,0}} negate(%copy_fusion)
  ROOT %back_fusion = f32[{ROWS},12]{{1,0}} fusion(%known), kind=kLoop, calls=%back
}}
"""

HLO = "\n".join((HEAD, COPY, TURN, BACK, ENTRY))


def kernel(name: str, *places: tuple[Slice, int]) -> Kernel:
    """Returns a kernel of the module, given its arguments and their numbers of values."""
    return Kernel(f"m_{name}", tuple((at, 4 * count) for at, count in places), (1, 1, 1), single=name != "unknown")


def dot(
    lhs: Slice, rhs: Slice, out: Slice, *, m: int, n: int, k: int, batch: int = HEADS, transposed: bool = False
) -> Dot:
    """Returns a product in batches."""
    strides = (m * n, m * k, k * n)
    return Dot("float", batch, out, lhs, rhs, strides, m, n, k, transpose_lhs=transposed, transpose_rhs=False)


# Buffers: an argument, then memory, then the result.
X, Y, Q = Slice(0, 0), Slice(0, 400), Slice(0, 800)
SPLIT, TURNED, OTHER = Slice(1, 0), Slice(1, 400), Slice(1, 800)
RESULT = Slice(2, 0)
TO_HEADS = kernel("copy_fusion", (X, COUNT + 12), (SPLIT, COUNT))
TO_COLUMNS = kernel("turn_fusion", (Y, COUNT), (TURNED, COUNT))
SCORES = kernel("dot_1_kernel", (Q, HEADS * CHANNELS), (SPLIT, COUNT), (RESULT, HEADS * ROWS))
KNOWN = kernel("known", (SPLIT, COUNT), (OTHER, COUNT))
# [2 queries] x [rows] of each head, with keys as columns: rows and channels change places.
TWO = dot(TURNED, Q, RESULT, m=ROWS, n=2, k=CHANNELS)
# Weights times values, whose result goes back to rows of all heads.
MIXED = dot(SPLIT, Q, OTHER, m=CHANNELS, n=ROWS, k=ROWS)
FROM_HEADS = kernel("back_fusion", (OTHER, COUNT), (RESULT, COUNT))


class StridedProductsTest(unittest.TestCase):
    """The pass on thunks."""

    def changed(self, *thunks: Thunk, hlo: str = HLO) -> tuple[Thunk, ...]:
        """Returns what the pass makes of thunks."""
        buffers = (Buffer(2000, "parameter", 0, None), Buffer(2000, "temp", None, None), Buffer(400, "temp", None, 0))
        compiled = Compiled({"v3": CompiledFunction(buffers, (0,), (2,), (), (), thunks)}, {}, (parsed(hlo),))
        count = transpose_folding(compiled)
        got = compiled.functions["v3"].thunks
        self.assertEqual(count, len(thunks) - len(got))
        return got

    def assert_stays(self, *thunks: Thunk) -> None:
        """Checks that the pass changes nothing."""
        self.assertEqual(self.changed(*thunks), thunks)

    def test_rows(self) -> None:
        """Protects speed: a product of one row, which XLA computes itself, reads a slice of all heads' rows."""
        (got,) = self.changed(TO_HEADS, SCORES)
        assert isinstance(got, Dot)
        self.assertEqual((got.lhs, got.transpose_lhs), (Slice(0, 48), True))
        self.assertEqual((got.strides[1], got.columns_apart), (CHANNELS, (0, 12, 0)))
        self.assertEqual(got.places[1], (Slice(0, 48), 4 * COUNT))

    def test_columns(self) -> None:
        """Protects speed: a transposition to columns becomes a transposed side."""
        (got,) = self.changed(TO_COLUMNS, TWO)
        assert isinstance(got, Dot)
        self.assertEqual((got.lhs, got.transpose_lhs, got.columns_apart), (Y, True, (0, 12, 0)))
        both = dataclasses.replace(dot(TURNED, TURNED, RESULT, m=CHANNELS, n=CHANNELS, k=ROWS), transpose_lhs=True)
        (got,) = self.changed(TO_COLUMNS, both)
        assert isinstance(got, Dot)
        self.assertEqual((got.lhs, got.rhs, got.columns_apart), (Y, Y, (0, 12, 12)))
        self.assertEqual((got.transpose_lhs, got.transpose_rhs), (False, True))

    def test_result(self) -> None:
        """Protects speed: a product writes each head's rows between those of the others."""
        got = self.changed(KNOWN, MIXED, FROM_HEADS)
        self.assertEqual(len(got), 2)
        assert isinstance(got[1], Dot)
        self.assertEqual((got[1].out, got[1].strides[0], got[1].columns_apart), (RESULT, CHANNELS, (12, 0, 0)))
        self.assertEqual(len(self.changed(TO_HEADS, MIXED, FROM_HEADS)), 1)
        there, from_there = ((place, COUNT) for place in (Slice(1, 1200), Slice(1, 1200)))
        again = kernel("back_fusion", (OTHER, COUNT), there), kernel("back_fusion", from_there, (RESULT, COUNT))
        self.assertEqual(len(self.changed(KNOWN, MIXED, *again)), 3)

    def test_other_products(self) -> None:
        """Protects numbers: products with other packings and dtypes, and loops stay."""
        for change in (
            {"packing": "float32"},
            {"dtype": "Eigen::half"},
            {"dtype": "double"},
            {"strides": (24, 30, 36)},
        ):
            self.assertEqual(len(self.changed(TO_HEADS, dataclasses.replace(MIXED, **change))), 2, change)
        half = kernel("copy_fusion", (X, (COUNT + 12) // 2), (SPLIT, COUNT // 2))
        products = half, dataclasses.replace(MIXED, dtype="Eigen::half")
        self.assertEqual(len(self.changed(*products, hlo=HLO.replace("f32", "f16"))), 2)
        self.assert_stays(Call((TO_HEADS, SCORES)))


class CopiesTest(unittest.TestCase):
    """The reader of optimized HLO."""

    def order(self, hlo: str, symbol: str = "m_copy_fusion") -> Array | None:
        """Returns where a kernel's values come from, if it only copies."""
        kernel = stored(hlo, symbol)
        return order(kernel) if kernel and original(kernel) else None

    def test_order(self) -> None:
        """Protects numbers: slices, transpositions, and changes of shape, in every layout."""
        x = np.arange((ROWS + 1) * 12).reshape(ROWS + 1, HEADS, CHANNELS)
        np.testing.assert_array_equal(self.order(HLO), x[1:].transpose(1, 0, 2).ravel())
        other = "{3,2,1,0} bitcast(%slice.1)"
        text = HLO.replace(other, other.replace("3,2,1,0", "2,3,1,0"))
        columns = x[1:].reshape(ROWS, CHANNELS, HEADS).transpose(2, 0, 1)
        np.testing.assert_array_equal(self.order(text), columns.ravel())
        root = f"ROOT %copy.2 = f32[{HEADS},{CHANNELS},{ROWS}]"
        text = HLO.replace(root + "{2,1,0}", root + "{1,2,0}")
        rows = x[:-1].transpose(1, 0, 2).ravel()
        np.testing.assert_array_equal(self.order(text, "m_turn_fusion"), rows)
        strided = HLO.replace(f"[1:{ROWS + 1}], [0:12]", f"[0:{ROWS}], [0:12:1]")
        np.testing.assert_array_equal(self.order(strided), rows)

    def test_large(self) -> None:
        """Protects memory: a slice of a large array is fine, and a large copy isn't read."""
        small, large = f"f32[1,{ROWS + 1},12]", f"f32[{1 << 40},{ROWS + 1},12]"
        text = HLO.replace(f"%p = {small}", f"%p = {large}").replace("slice={[0:1]", "slice={[5:6]")
        here, there = self.order(HLO), self.order(text)
        assert here is not None and there is not None
        np.testing.assert_array_equal(there, here + 5 * (ROWS + 1) * 12)
        root = f"ROOT %bitcast.2 = f32[{HEADS},{ROWS},{CHANNELS}]"
        self.assertIsNone(self.order(HLO.replace(root, f"ROOT %bitcast.2 = f32[{1 << 21},9,1]")))

    def test_strict(self) -> None:
        """Protects numbers: kernels with arithmetic, other dtypes, or equal symbols aren't copies."""
        for old, new in (
            (" copy(%transpose.1)", " negate(%transpose.1)"),
            ("ROOT %bitcast.2 = f32", "ROOT %bitcast.2 = s32"),
            ("  %slice.1", "  %pair = (f32[], f32[]) tuple(%p, %p)\n  %slice.1"),
            ("%turn_fusion = ", "%copy.fusion = "),
        ):
            self.assertIsNone(self.order(HLO.replace(old, new)), new)

    def test_products(self) -> None:
        """Protects numbers: products of one row in a batch are read in any order, if each has its matrix in one piece."""

        def read(hlo: str) -> tuple[int, int, int, int, int, bool] | None:
            kernel = stored(hlo, "m_dot_1_kernel")
            got = product(kernel) if kernel else None
            return (got.rhs.buffer, got.lhs.buffer, got.batch, got.k, got.m, got.transpose_lhs) if got else None

        sides = "(%q, %copy_fusion), lhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_batch_dims={0}, rhs_contracting_dims={2}"
        self.assertEqual(read(HLO), (0, 1, HEADS, CHANNELS, ROWS, True))
        other = "(%copy_fusion, %q), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}"
        self.assertEqual(read(HLO.replace(sides, other)), (1, 0, HEADS, CHANNELS, ROWS, True))
        matrix = f"%copy_fusion = f32[{HEADS},{ROWS},{CHANNELS}]{{2,1,0}}"
        by_rows = HLO.replace(matrix, matrix.replace("2,1,0", "1,2,0"))
        self.assertEqual(read(by_rows), (0, 1, HEADS, CHANNELS, ROWS, False))
        for old, new in (
            (matrix, matrix.replace("2,1,0", "0,2,1")),
            (f"%q = f32[{HEADS},{CHANNELS}]{{1,0}}", f"%q = f32[{HEADS},{CHANNELS}]{{0,1}}"),
            (f"%dot.1 = f32[{HEADS},{ROWS}]{{1,0}}", f"%dot.1 = f32[{HEADS},{ROWS}]{{0,1}}"),
            (
                sides,
                sides.replace("batch_dims={0}", "batch_dims={1}").replace(
                    "lhs_contracting_dims={1}", "lhs_contracting_dims={0}"
                ),
            ),
            (f"%q = f32[{HEADS},{CHANNELS}]{{1,0}}", f"%q = f32[{HEADS},2,{CHANNELS}]{{2,1,0}}"),
        ):
            self.assertIn(old, HLO)
            self.assertIsNone(read(HLO.replace(old, new)), new)

    def test_results(self) -> None:
        """Protects numbers: only kernels of instructions with one result have one, and none is inside of another kernel."""
        module = parsed(re.sub(r"(%known = )(f32\S+) negate\(", r"\1(f32[4], \2) tuple(%copy_fusion, ", HLO))

        def single(*symbols: str) -> list[bool]:
            kernels = tuple(Kernel(symbol, (), (1, 1, 1)) for symbol in symbols)
            function = described(CompiledFunction((), (), (), (), (), (Call(kernels),)), module)
            return [each.single for each in walk(function.thunks) if isinstance(each, Kernel)]

        self.assertEqual(single("m_dot_1_kernel", "m_copy_fusion", "m_known"), [True, True, False])
        self.assertRaises(KeyError, single, "m_copy_1")


if __name__ == "__main__":
    unittest.main()
