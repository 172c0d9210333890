"""Which kernels are a softmax, and that one call of the runtime takes the place of nothing else."""

from __future__ import annotations

import dataclasses
import unittest

import numpy as np

from tests.compile.program.changed import changed
from tfaot.compile.program.passes.softmax import softmax
from tfaot.compile.program.thunks.kinds import (
    Buffer,
    CompiledFunction,
    Copy,
    Kernel,
    SizedSlice,
    Slice,
    Softmax,
    Thunk,
)

ROWS, COLUMNS = 6, 5
ALL, EACH = 4 * ROWS * COLUMNS, 4 * ROWS

HLO = """\
HloModule m, is_scheduled=true

%region_max (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %maximum.1 = f32[] maximum(%a, %b)
}

%region_add (c: f32[], d: f32[]) -> f32[] {
  %c = f32[] parameter(0)
  %d = f32[] parameter(1)
  ROOT %add.1 = f32[] add(%c, %d)
}

%peaks (p.1: f32[6,5]) -> f32[1,2,3] {
  %p.1 = f32[6,5]{1,0} parameter(0)
  %factor.1 = f32[] constant(0.25)
  %factors.1 = f32[6,5]{1,0} broadcast(%factor.1), dimensions={}
  %scaled.1 = f32[6,5]{1,0} multiply(%p.1, %factors.1)
  %bitcast.1 = f32[1,2,3,5]{3,2,1,0} bitcast(%scaled.1)
  %least = f32[] constant(-inf)
  ROOT %reduce.1 = f32[1,2,3]{2,1,0} reduce(%bitcast.1, %least), dimensions={3}, to_apply=%region_max
}

%powers (p.2: f32[1,2,3], q.2: f32[6,5]) -> f32[1,2,3,5] {
  %q.2 = f32[6,5]{1,0} parameter(1)
  %factor.2 = f32[] constant(0.25)
  %factors.2 = f32[6,5]{1,0} broadcast(%factor.2), dimensions={}
  %scaled.2 = f32[6,5]{1,0} multiply(%q.2, %factors.2)
  %bitcast.2 = f32[1,2,3,5]{3,2,1,0} bitcast(%scaled.2)
  %p.2 = f32[1,2,3]{2,1,0} parameter(0)
  %bitcast.3 = f32[2,3]{1,0} bitcast(%p.2)
  %broadcast.2 = f32[1,2,3,5]{3,2,1,0} broadcast(%bitcast.3), dimensions={1,2}
  %subtract.2 = f32[1,2,3,5]{3,2,1,0} subtract(%bitcast.2, %broadcast.2)
  ROOT %exponential.2 = f32[1,2,3,5]{3,2,1,0} exponential(%subtract.2)
}

%sums (p.3: f32[1,2,3,5], q.3: f32[]) -> f32[1,2,3] {
  %p.3 = f32[1,2,3,5]{3,2,1,0} parameter(0)
  %q.3 = f32[] parameter(1)
  ROOT %reduce.3 = f32[1,2,3]{2,1,0} reduce(%p.3, %q.3), dimensions={3}, to_apply=%region_add
}

%shares (p.4: f32[1,2,3,5], q.4: f32[1,2,3]) -> f32[6,5] {
  %p.4 = f32[1,2,3,5]{3,2,1,0} parameter(0)
  %q.4 = f32[1,2,3]{2,1,0} parameter(1)
  %bitcast.4 = f32[2,3]{1,0} bitcast(%q.4)
  %broadcast.4 = f32[1,2,3,5]{3,2,1,0} broadcast(%bitcast.4), dimensions={1,2}
  %divide.4 = f32[1,2,3,5]{3,2,1,0} divide(%p.4, %broadcast.4)
  ROOT %bitcast.5 = f32[6,5]{1,0} bitcast(%divide.4)
}

ENTRY %main (x: f32[6,5]) -> f32[6,5] {
  %x = f32[6,5]{1,0} parameter(0)
  %zero = f32[] constant(0)
  %peak = f32[1,2,3]{2,1,0} fusion(%x), kind=kLoop, calls=%peaks
  %power = f32[1,2,3,5]{3,2,1,0} fusion(%peak, %x), kind=kLoop, calls=%powers
  %sum = f32[1,2,3]{2,1,0} fusion(%power, %zero), kind=kLoop, calls=%sums
  %other = f32[6,5]{1,0} negate(%x)
  ROOT %share = f32[6,5]{1,0} fusion(%power, %sum), kind=kLoop, calls=%shares
}
"""

LONG = """\
HloModule m, is_scheduled=true

%region_max (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %maximum.1 = f32[] maximum(%a, %b)
}

%region_add (c: f32[], d: f32[]) -> f32[] {
  %c = f32[] parameter(0)
  %d = f32[] parameter(1)
  ROOT %add.1 = f32[] add(%c, %d)
}

%times (p.0: f32[3,37]) -> f32[3,37] {
  %p.0 = f32[3,37]{1,0} parameter(0)
  %factor.0 = f32[] constant(0.5)
  %factors.0 = f32[3,37]{1,0} broadcast(%factor.0), dimensions={}
  ROOT %scaled.0 = f32[3,37]{1,0} multiply(%factors.0, %p.0)
}

%peaks (p.1: f32[3,37], q.1: f32[]) -> f32[3,2] {
  %p.1 = f32[3,37]{1,0} parameter(0)
  %q.1 = f32[] parameter(1)
  ROOT %window.1 = f32[3,2]{1,0} reduce-window(%p.1, %q.1), window={size=1x32 stride=1x32 pad=0_0x13_14}, to_apply=%region_max
}

%peak (p.2: f32[3,2], q.2: f32[]) -> f32[3] {
  %p.2 = f32[3,2]{1,0} parameter(0)
  %q.2 = f32[] parameter(1)
  ROOT %reduce.2 = f32[3]{0} reduce(%p.2, %q.2), dimensions={1}, to_apply=%region_max
}

%powers (p.3: f32[3], q.3: f32[3,37]) -> f32[3,37] {
  %p.3 = f32[3]{0} parameter(0)
  %q.3 = f32[3,37]{1,0} parameter(1)
  %factor.3 = f32[] constant(0.5)
  %factors.3 = f32[3,37]{1,0} broadcast(%factor.3), dimensions={}
  %scaled.3 = f32[3,37]{1,0} multiply(%q.3, %factors.3)
  %broadcast.3 = f32[3,37]{1,0} broadcast(%p.3), dimensions={0}
  %subtract.3 = f32[3,37]{1,0} subtract(%scaled.3, %broadcast.3)
  ROOT %exponential.3 = f32[3,37]{1,0} exponential(%subtract.3)
}

%sums (p.4: f32[3,37], q.4: f32[]) -> f32[3,2] {
  %p.4 = f32[3,37]{1,0} parameter(0)
  %q.4 = f32[] parameter(1)
  ROOT %window.4 = f32[3,2]{1,0} reduce-window(%p.4, %q.4), window={size=1x32 stride=1x32 pad=0_0x13_14}, to_apply=%region_add
}

%sum (p.5: f32[3,2], q.5: f32[]) -> f32[3] {
  %p.5 = f32[3,2]{1,0} parameter(0)
  %q.5 = f32[] parameter(1)
  ROOT %reduce.5 = f32[3]{0} reduce(%p.5, %q.5), dimensions={1}, to_apply=%region_add
}

%shares (p.6: f32[3,37], q.6: f32[3]) -> f32[3,37] {
  %p.6 = f32[3,37]{1,0} parameter(0)
  %q.6 = f32[3]{0} parameter(1)
  %broadcast.6 = f32[3,37]{1,0} broadcast(%q.6), dimensions={0}
  ROOT %divide.6 = f32[3,37]{1,0} divide(%p.6, %broadcast.6)
}

ENTRY %main (x: f32[3,37]) -> f32[3,37] {
  %x = f32[3,37]{1,0} parameter(0)
  %zero = f32[] constant(-0)
  %least = f32[] constant(-inf)
  %scaled = f32[3,37]{1,0} fusion(%x), kind=kLoop, calls=%times
  %peak_pieces = f32[3,2]{1,0} fusion(%scaled, %least), kind=kLoop, calls=%peaks
  %peak = f32[3]{0} fusion(%peak_pieces, %least), kind=kLoop, calls=%peak
  %power = f32[3,37]{1,0} fusion(%peak, %x), kind=kLoop, calls=%powers
  %sum_pieces = f32[3,2]{1,0} fusion(%power, %zero), kind=kLoop, calls=%sums
  %sum = f32[3]{0} fusion(%sum_pieces, %zero), kind=kLoop, calls=%sum
  ROOT %share = f32[3,37]{1,0} fusion(%power, %sum), kind=kLoop, calls=%shares
}
"""
"""Rows of more than 32 values: reductions have two steps, and the scores are scaled in a kernel of its own."""

X, OUT, PEAK, POWER, TOTAL, ZERO, MORE, LEAST = (Slice(buffer, 0) for buffer in range(8))


def kernel(name: str, *places: tuple[Slice, int]) -> Kernel:
    """Returns a kernel of the module, given its arguments and their bytes."""
    return Kernel(f"m_{name}", tuple(SizedSlice(at, size) for at, size in places), (1, 1, 1), single=name != "unknown")


def function(*thunks: Thunk) -> CompiledFunction:
    """Returns a function with an argument X and a result OUT."""
    buffers = (
        Buffer(ALL, "parameter", 0, None),
        Buffer(ALL, "parameter", None, 0),
        *(Buffer(size, "temp", None, None) for size in (EACH, ALL, EACH)),
        Buffer(4, "constant", None, None),
        Buffer(2 * ALL, "temp", None, None),
        Buffer(4, "constant", None, None),
    )
    return CompiledFunction(buffers, (0,), (1,), ("zero", "least"), (), thunks)


def chain(
    *, x: Slice = X, out: Slice = OUT, power: Slice = POWER, peak: Slice = PEAK, total: Slice = TOTAL
) -> tuple[Kernel, ...]:
    """Returns the four kernels."""
    return (
        kernel("peak", (x, ALL), (peak, EACH)),
        kernel("power", (peak, EACH), (x, ALL), (power, ALL)),
        kernel("sum", (power, ALL), (ZERO, 4), (total, EACH)),
        kernel("share", (power, ALL), (total, EACH), (out, ALL)),
    )


def merged(*thunks: Thunk, hlo: str = HLO, results: tuple[int, ...] = (1,), zero: float = 0) -> tuple[Thunk, ...]:
    """Returns what the pass makes of thunks."""
    before = dataclasses.replace(function(*thunks), results=results)
    constants = {"zero": np.float32(zero).tobytes(), "least": np.float32(-np.inf).tobytes()}
    return changed(softmax, hlo, before, constants).thunks


class PartsTest(unittest.TestCase):
    """The reader of optimized HLO."""

    def test_without_a_factor(self) -> None:
        """Protects plain softmax, whose scores nothing multiplies."""
        hlo = HLO.replace("bitcast(%scaled.1)", "bitcast(%p.1)").replace("bitcast(%scaled.2)", "bitcast(%q.2)")
        self.assertEqual(merged(*chain(), hlo=hlo), (Softmax(ROWS, COLUMNS, 1.0, OUT, X),))

    def test_limited(self) -> None:
        """Protects scores that the export stage limits to the largest one, which changes none of them. No other limit is a part."""
        old = "%subtract.2 = f32[1,2,3,5]{3,2,1,0} subtract(%bitcast.2, %broadcast.2)"
        new = (
            "%limited.2 = f32[1,2,3,5]{3,2,1,0} minimum(%bitcast.2, %broadcast.2)\n"
            "  %subtract.2 = f32[1,2,3,5]{3,2,1,0} subtract(%limited.2, %broadcast.2)"
        )
        self.assertIn(old, HLO)
        self.assertEqual(merged(*chain(), hlo=HLO.replace(old, new)), (Softmax(ROWS, COLUMNS, 0.25, OUT, X),))
        for other in ("minimum(%bitcast.2, %bitcast.2)", "maximum(%bitcast.2, %broadcast.2)"):
            changed = HLO.replace(old, new.replace("minimum(%bitcast.2, %broadcast.2)", other))
            self.assertEqual(merged(*chain(), hlo=changed), chain())

    def test_everything_else(self) -> None:
        """Protects other models: a kernel that does anything else is no part of a softmax."""
        for old, new in (
            ("dimensions={3}, to_apply=%region_max", "dimensions={2}, to_apply=%region_max"),
            ("maximum(%a, %b)", "minimum(%a, %b)"),
            ("constant(-inf)", "constant(0)"),
            ("%factor.1 = f32[] constant(0.25)", "%factor.1 = f32[] constant(0.5)"),
            ("constant(0.25)", "constant(inf)"),
            ("constant(0.25)", "constant(1e-31)"),
            ("multiply(%p.1, %factors.1)", "add(%p.1, %factors.1)"),
            ("subtract(%bitcast.2, %broadcast.2)", "subtract(%broadcast.2, %bitcast.2)"),
            ("exponential(%subtract.2)", "tanh(%subtract.2)"),
            ("broadcast(%bitcast.3), dimensions={1,2}", "broadcast(%bitcast.3), dimensions={2,1}"),
            ("broadcast(%bitcast.3), dimensions={1,2}", "broadcast(%bitcast.3), dimensions={1,3}"),
            ("%p.2 = f32[1,2,3]{2,1,0} parameter(0)", "%p.2 = f32[1,2,3]{0,1,2} parameter(0)"),
            ("%p.2 = f32[1,2,3]{2,1,0}", "%p.2 = f32[1,2,2]{2,1,0}"),
            ("add(%c, %d)", "multiply(%c, %d)"),
            ("divide(%p.4, %broadcast.4)", "multiply(%p.4, %broadcast.4)"),
            ("%p.4 = f32[1,2,3,5]{3,2,1,0} parameter(0)", "%p.4 = f16[1,2,3,5]{3,2,1,0} parameter(0)"),
        ):
            with self.subTest(new):
                self.assertIn(old, HLO)
                self.assertEqual(merged(*chain(), hlo=HLO.replace(old, new)), chain())
        self.assertEqual(merged(*chain(), zero=1), chain())
        unknown = (*chain()[:2], kernel("sum", (POWER, ALL), (Slice(6, 0), 4), (TOTAL, EACH)), chain()[3])
        self.assertEqual(merged(*unknown), unknown)

    def test_reciprocal(self) -> None:
        """Protects TensorFlow 2.22, where a softmax multiplies by the reciprocal of a row's sum."""
        old = "%broadcast.4 = f32[1,2,3,5]{3,2,1,0} broadcast(%bitcast.4), dimensions={1,2}"
        one = "%one = f32[] constant(1)\n  %ones = f32[2,3]{1,0} broadcast(%one), dimensions={}\n"
        new = f"{one}  %part = f32[2,3]{{1,0}} divide(%ones, %bitcast.4)\n  {old.replace('(%bitcast.4)', '(%part)')}"
        hlo = HLO.replace(old, new).replace("divide(%p.4, %broadcast.4)", "multiply(%broadcast.4, %p.4)")
        self.assertEqual(merged(*chain(), hlo=hlo), (Softmax(ROWS, COLUMNS, 0.25, OUT, X),))
        self.assertEqual(merged(*chain(), hlo=hlo.replace("constant(1)", "constant(2)")), chain())


class LongTest(unittest.TestCase):
    """Rows of more than 32 values."""

    def thunks(self, *, scaled: Slice = MORE, scores: Slice = X) -> tuple[Kernel, ...]:
        """Returns the seven kernels. The pieces of both reductions have the same memory."""
        all_, pieces, each = 4 * 3 * 37, 4 * 3 * 2, 4 * 3
        return (
            kernel("scaled", (X, all_), (scaled, all_)),
            kernel("peak_pieces", (scaled, all_), (LEAST, 4), (TOTAL, pieces)),
            kernel("peak", (TOTAL, pieces), (LEAST, 4), (PEAK, each)),
            kernel("power", (PEAK, each), (scores, all_), (OUT, all_)),
            kernel("sum_pieces", (OUT, all_), (ZERO, 4), (TOTAL, pieces)),
            kernel("sum", (TOTAL, pieces), (ZERO, 4), (PEAK, each)),
            kernel("share", (OUT, all_), (PEAK, each), (OUT, all_)),
        )

    def test_all_seven(self) -> None:
        """Protects long rows: one call replaces both steps of both reductions, and the scaling."""
        self.assertEqual(merged(*self.thunks(), hlo=LONG), (Softmax(3, 37, 0.5, OUT, X),))

    def test_left_alone(self) -> None:
        """Protects the numbers: pieces must make up the rows, and the scaled scores must be those of the exponentials."""
        for old, new in (
            (
                "size=1x32 stride=1x32 pad=0_0x13_14}, to_apply=%region_max",
                "size=1x32 stride=1x16 pad=0_0x13_14}, to_apply=%region_max",
            ),
            (
                "size=1x32 stride=1x32 pad=0_0x13_14}, to_apply=%region_max",
                "size=3x32 stride=3x32 pad=0_0x13_14}, to_apply=%region_max",
            ),
            (
                "size=1x32 stride=1x32 pad=0_0x13_14}, to_apply=%region_max",
                "size=1x32 stride=1x32 pad=1_0x13_14}, to_apply=%region_max",
            ),
            (
                "size=1x32 stride=1x32 pad=0_0x13_14}, to_apply=%region_max",
                "size=1x32 stride=1x32 pad=0_0x13_46}, to_apply=%region_max",
            ),
            (
                "size=1x32 stride=1x32 pad=0_0x13_14}, to_apply=%region_max",
                "size=1x32 stride=1x32 pad=0_0x13_13}, to_apply=%region_max",
            ),
            (
                "size=1x32 stride=1x32 pad=0_0x13_14}, to_apply=%region_max",
                "size=1x32 stride=1x32}, to_apply=%region_max",
            ),
            ("%factor.0 = f32[] constant(0.5)", "%factor.0 = f32[] constant(0.25)"),
            (
                "reduce(%p.5, %q.5), dimensions={1}, to_apply=%region_add",
                "reduce(%p.5, %q.5), dimensions={1}, to_apply=%region_max",
            ),
        ):
            with self.subTest(new):
                self.assertIn(old, LONG)
                self.assertEqual(merged(*self.thunks(), hlo=LONG.replace(old, new)), self.thunks())
        other = self.thunks(scores=POWER)
        self.assertEqual(merged(*other, hlo=LONG), other)

    def test_scaled_elsewhere(self) -> None:
        """Protects scaled scores that something else reads: they stay, and the softmax reads them."""
        scaled, *others = self.thunks()
        copy = Copy(OUT, MORE, 4)
        self.assertEqual(merged(scaled, *others, copy, hlo=LONG), (scaled, Softmax(3, 37, 1.0, OUT, MORE), copy))


class MergeTest(unittest.TestCase):
    """The pass on thunks."""

    def test_places(self) -> None:
        """Protects memory: one call reads the scores and writes the result, which can be the same place."""
        self.assertEqual(merged(*chain()), (Softmax(ROWS, COLUMNS, 0.25, OUT, X),))
        for out in (X, POWER, MORE):
            with self.subTest(out=out):
                self.assertEqual(
                    merged(*chain(out=out), Copy(OUT, out, ALL)),
                    (Softmax(ROWS, COLUMNS, 0.25, out, X), Copy(OUT, out, ALL)),
                )
        self.assertEqual(merged(*chain(power=X, out=X)), (Softmax(ROWS, COLUMNS, 0.25, X, X),))
        peak, power, total, share = chain()
        self.assertEqual(merged(peak, power, total, power, share), (Softmax(ROWS, COLUMNS, 0.25, OUT, X),))

    def test_others_in_between(self) -> None:
        """Protects the order: what runs between the four kernels stays, before the call."""
        peak, power, total, share = chain()
        other = Copy(MORE, X, ALL)
        self.assertEqual(merged(peak, power, other, total, share), (other, Softmax(ROWS, COLUMNS, 0.25, OUT, X)))

    def test_two(self) -> None:
        """Protects models with several: each chain becomes a call of its own."""
        later = chain(x=OUT, out=MORE)
        self.assertEqual(
            merged(*chain(), *later),
            (Softmax(ROWS, COLUMNS, 0.25, OUT, X), Softmax(ROWS, COLUMNS, 0.25, MORE, OUT)),
        )

    def test_overwritten_result(self) -> None:
        """Protects the last layer: its sums can be in a result's memory if the result is written later."""
        there = Slice(6, 0)
        thunks = chain(peak=there)
        self.assertEqual(merged(*thunks, results=(6,)), thunks)
        end = Copy(there, OUT, ALL)
        self.assertEqual(merged(*thunks, end, results=(6,)), (Softmax(ROWS, COLUMNS, 0.25, OUT, X), end))

    def test_left_alone(self) -> None:
        """Protects everything that needs more than the softmax, or that another thunk changes."""
        peak, power, total, share = chain()
        half = Slice(6, ALL // 2)
        for why, thunks in {
            "the exponentials are read later": (*chain(), Copy(MORE, POWER, ALL)),
            "the sums are read later": (*chain(), Copy(MORE, TOTAL, EACH)),
            "the largest values are read in between": (peak, power, Copy(MORE, PEAK, EACH), total, share),
            "the largest values are read at once": (peak, Copy(MORE, PEAK, EACH), power, total, share),
            "the sums begin elsewhere": (peak, power, total, chain(total=Slice(4, 4))[-1]),
            "the sums are of something else": (peak, power, chain(power=MORE)[2], share),
            "the scores change": (peak, Copy(X, MORE, ALL), power, total, share),
            "the scores change after the exponentials": (peak, power, total, Copy(X, MORE, 4), share),
            "something unknown could change the scores": (peak, power, kernel("unknown", (X, 4)), total, share),
            "the result begins within the scores": chain(x=MORE, out=half),
            "the exponentials change": (peak, power, total, Copy(POWER, MORE, ALL), share),
            "other scores have the exponentials": (
                peak,
                dataclasses.replace(power, args=chain(x=MORE)[1].args),
                total,
                share,
            ),
            "a kernel is missing": (peak, power, share),
            "other sizes": (peak, power, total, kernel("share", (POWER, ALL), (TOTAL, EACH), (OUT, ALL - 4))),
        }.items():
            with self.subTest(why):
                self.assertEqual(merged(*thunks), thunks)


if __name__ == "__main__":
    unittest.main()
