"""Which kernels only finish the preceding operation."""

from __future__ import annotations

import math
import unittest

from tests.compile.program import changed
from tests.xla.hlo import kernel, parsed
from tfaot.compile.program.passes.epilogues import epilogues
from tfaot.compile.program.thunks.kinds import Buffer, CompiledFunction, Dot, Slice
from tfaot.compile.program.values.instructions import fusions

SHAPE = "f32[2,3,4]{2,1,0}"


def module(*lines: str, parameters: str = "x", root: str = SHAPE) -> str:
    """Returns the text of a module with a kernel `m_k`, whose computation has these lines after its parameters.

    Args:
      lines: instructions; the last one is the root
      parameters: a letter each: `x` with the result's shape, `b` a vector along the last dimension
      root: the result's shape
    """
    shapes = {"x": SHAPE, "b": "f32[4]{0}", "s": "f32[]", "t": "f32[3]{0}", "w": "f32[2]{0}"}
    return kernel(*lines, parameters=[shapes[kind] for kind in parameters], root=root)


BIAS = f"bias = {SHAPE} broadcast(%p1), dimensions={{2}}"
SUM = f"sum = {SHAPE} add(%p0, %bias)"
ZERO = "zero = f32[] constant(0)"
ZEROS = f"zeros = {SHAPE} broadcast(%zero), dimensions={{}}"


class PatternsTest(unittest.TestCase):
    """Reading optimized HLO."""

    def ways(self, text: str) -> list[tuple[int, int | None, int | None, int | None, float, float]]:
        """Returns how products can end in the kernel: value, bias, addend, and its bias, as indices of arguments; and bounds."""
        return [way[:-1] for way in self.scaled_ways(text)]

    def scaled_ways(self, text: str) -> list[tuple[int, int | None, int | None, int | None, float, float, float]]:
        """Returns the same, and the factor."""
        finish = changed.kernel(text, "m_k")
        assert finish is not None
        args = finish.args
        buffers = tuple(Buffer(4096, "parameter", None, None) for _ in range(len(args) + 2))
        ways = []
        for index in range(len(args) - 1):
            sides = Slice(len(args), 0), Slice(len(args) + 1, 0)
            product = Dot("float", 1, Slice(index, 0), *sides, (24, 8, 12), 4, 6, 2, False, False)
            function = CompiledFunction(buffers, (), (), (), (), (product, finish))
            first, *others = changed.thunks(epilogues, text, function)
            if others:
                continue
            assert isinstance(first, Dot) and first.epilogue
            end = first.epilogue
            bias, addend, addend_bias = (at.buffer if at else None for at in (end.bias, end.addend, end.addend_bias))
            self.assertEqual((first.out, end.out), (product.out, args[-1][0]))
            ways.append((index, bias, addend, addend_bias, end.low, end.high, end.scale))
        return ways

    def test_bias_and_bounds(self) -> None:
        """Protects what follows most layers: a bias, and ReLU in XLA's form, or bounds on both sides."""
        self.assertEqual(self.ways(module(BIAS, SUM, parameters="xb")), [(0, 1, None, None, -math.inf, math.inf)])
        relu = module(BIAS, SUM, ZERO, ZEROS, f"r = {SHAPE} maximum(%sum, %zeros)", parameters="xb")
        self.assertEqual(self.ways(relu), [(0, 1, None, None, 0, math.inf)])
        clamp = f"r = {SHAPE} clamp(%zeros, %sum, %sixes)"
        six = ("six = f32[] constant(6.5)", f"sixes = {SHAPE} broadcast(%six), dimensions={{}}")
        self.assertEqual(
            self.ways(module(BIAS, SUM, ZERO, ZEROS, *six, clamp, parameters="xb")), [(0, 1, None, None, 0, 6.5)]
        )
        least = f"r = {SHAPE} minimum(%six, %p0)"
        self.assertEqual(self.ways(module(six[0], least)), [(0, None, None, None, -math.inf, 6.5)])

    def test_selection(self) -> None:
        """Protects residual sums, whose ReLU is a selection. Any other comparison or order of values stays a kernel."""
        less = "negative = pred[2,3,4]{2,1,0} compare(%sum, %zeros), direction=LT"
        before = (BIAS, SUM, ZERO, ZEROS)
        chosen = f"r = {SHAPE} select(%negative, %zeros, %sum)"
        self.assertEqual(self.ways(module(*before, less, chosen, parameters="xb")), [(0, 1, None, None, 0, math.inf)])
        one, ones = "one = f32[] constant(1)", f"ones = {SHAPE} broadcast(%one), dimensions={{}}"
        for lines in (
            (less.replace("LT", "GT"), chosen),
            (less.replace("%sum, %zeros", "%p0, %zeros"), chosen),
            (less.replace("%sum, %zeros", "%zeros, %sum"), chosen),
            (less, f"r = {SHAPE} select(%negative, %sum, %zeros)"),
            (one, ones, less, f"r = {SHAPE} select(%negative, %ones, %sum)"),
        ):
            self.assertEqual(self.ways(module(*before, *lines, parameters="xb")), [])
        logical = module(ZERO, ZEROS, f"r = {SHAPE} maximum(%p0, %zeros)").replace("%p0 = f32", "%p0 = pred")
        self.assertEqual(self.ways(logical), [])

    def test_addends(self) -> None:
        """Protects residual connections: either of two values can be the product's, and each keeps its own bias."""
        either = [(0, None, 1, None, -math.inf, math.inf), (1, None, 0, None, -math.inf, math.inf)]
        self.assertEqual(self.ways(module(f"r = {SHAPE} add(%p0, %p1)", parameters="xx")), either)
        both = module(
            BIAS,
            SUM,
            f"other = {SHAPE} broadcast(%p3), dimensions={{2}}",
            f"second = {SHAPE} add(%other, %p2)",
            f"r = {SHAPE} add(%second, %sum)",
            parameters="xbxb",
        )
        self.assertEqual(self.ways(both), [(0, 1, 2, 3, -math.inf, math.inf), (2, 3, 0, 1, -math.inf, math.inf)])

    def test_flattened(self) -> None:
        """Protects a layer before Flatten: the shape in which its result continues doesn't move its columns."""
        relu = module(
            BIAS,
            SUM,
            ZERO,
            ZEROS,
            f"relu = {SHAPE} maximum(%sum, %zeros)",
            "r = f32[2,12]{1,0} bitcast(%relu)",
            parameters="xb",
            root="f32[2,12]{1,0}",
        )
        self.assertEqual(self.ways(relu), [(0, 1, None, None, 0, math.inf)])
        before = module(
            "flat = f32[2,12]{1,0} bitcast(%p0)",
            ZERO,
            "r = f32[2,12]{1,0} maximum(%flat, %zero)",
            root="f32[2,12]{1,0}",
        )
        self.assertEqual(self.ways(before), [(0, None, None, None, 0, math.inf)])

    def test_bounds_after_each_other(self) -> None:
        """Protects two bounds in either operation, and no value in between the wrong ones."""
        six = ("six = f32[] constant(6)", ZERO)
        low, high = f"low = {SHAPE} maximum(%p0, %zero)", f"r = {SHAPE} minimum(%low, %six)"
        self.assertEqual(self.ways(module(*six, low, high)), [(0, None, None, None, 0, 6)])
        other = (f"low = {SHAPE} minimum(%p0, %six)", f"r = {SHAPE} maximum(%low, %zero)")
        self.assertEqual(self.ways(module(*six, *other)), [])

    def test_other_kernels(self) -> None:
        """Protects numbers: a kernel with another computation, order, or axis isn't an epilogue."""
        for name, text in {
            "factor": module(BIAS, f"r = {SHAPE} multiply(%p0, %bias)", parameters="xb"),
            "another axis": module(f"bias = {SHAPE} broadcast(%p1), dimensions={{1}}", SUM, parameters="xt"),
            "a bias after the sum": module(
                BIAS, f"two = {SHAPE} add(%p0, %p2)", f"r = {SHAPE} add(%two, %bias)", parameters="xbx"
            ),
            "three values": module(f"two = {SHAPE} add(%p0, %p1)", f"r = {SHAPE} add(%two, %p2)", parameters="xxx"),
            "the value twice": module(f"r = {SHAPE} add(%p0, %p0)"),
            "a sum after bounds": module(
                ZERO, f"r0 = {SHAPE} maximum(%p0, %zero)", f"r = {SHAPE} add(%r0, %p1)", parameters="xx"
            ),
            "no bound": module("n = f32[] constant(nan)", f"r = {SHAPE} maximum(%p0, %n)"),
            "bounds that cross": module(
                "l = f32[] constant(2)", "h = f32[] constant(1)", f"r = {SHAPE} clamp(%l, %p0, %h)"
            ),
            "a bound that is not known": module(f"r = {SHAPE} maximum(%p0, %p1)", parameters="xs"),
            "another layout": module(f"r = {SHAPE.replace('2,1,0', '0,1,2')} add(%p0, %p1)", parameters="xx"),
            "another dtype": module(f"r = {SHAPE} add(%p0, %p1)", parameters="xx").replace("f32", "s32"),
            "a transposition": module(f"r = {SHAPE} transpose(%p0), dimensions={{0,1,2}}"),
            "rows of another length": module(
                "flat = f32[6,2,2]{2,1,0} bitcast(%p0)",
                "b = f32[6,2,2]{2,1,0} broadcast(%p1), dimensions={2}",
                "r = f32[6,2,2]{2,1,0} add(%flat, %b)",
                parameters="xw",
                root="f32[6,2,2]{2,1,0}",
            ),
        }.items():
            with self.subTest(name):
                self.assertEqual(self.ways(text), [])

    def test_sgd(self) -> None:
        """Protects SGD: a variable minus a constant times a gradient. Any other factor or order of values stays a kernel."""
        rate, rates = "rate = f32[] constant(0.25)", f"rates = {SHAPE} broadcast(%rate), dimensions={{}}"
        step, result = f"step = {SHAPE} multiply(%rates, %p1)", f"r = {SHAPE} subtract(%p0, %step)"

        def scaled(value: str) -> str:
            return step.replace("%p1", f"%{value}")

        def less(value: str) -> str:
            return f"r = {SHAPE} subtract(%{value}, %step)"

        wanted = (1, None, 0, None, -math.inf, math.inf)
        for lines in (
            (rate, rates, step, result),
            (rate, rates, step.replace("%rates, %p1", "%p1, %rates"), result),
        ):
            self.assertEqual(self.scaled_ways(module(*lines, parameters="xx")), [(*wanted, -0.25)])
        plus = (rate, rates, step, result.replace("subtract", "add"))
        reverse = (*plus[:-1], f"r = {SHAPE} add(%step, %p0)")
        for lines in (plus, reverse):
            self.assertEqual(self.scaled_ways(module(*lines, parameters="xx")), [(*wanted, 0.25)])
        clamped = (*plus[:-1], plus[-1].replace("r =", "sum ="), ZERO, f"r = {SHAPE} maximum(%sum, %zero)")
        self.assertEqual(self.scaled_ways(module(*clamped, parameters="xx")), [(*wanted[:4], 0, math.inf, 0.25)])
        for name, text in {
            "a product alone": module(rate, rates, step, parameters="xx"),
            "the other order": module(rate, rates, step, f"r = {SHAPE} subtract(%step, %p0)", parameters="xx"),
            "a difference": module(f"r = {SHAPE} subtract(%p0, %p1)", parameters="xx"),
            "the same value twice": module(rate, rates, step.replace("%p1", "%p0"), result, parameters="xx"),
            "a rate that isn't constant": module(
                f"rates = {SHAPE} broadcast(%p2), dimensions={{}}", step, result, parameters="xxs"
            ),
            "a bias, too": module(BIAS, SUM, rate, rates, scaled("p2"), less("sum"), parameters="xbx"),
            "a bias in the product": module(BIAS, SUM, rate, rates, scaled("sum"), less("p2"), parameters="xbx"),
            "a bound in the product": module(
                ZERO,
                ZEROS,
                f"max = {SHAPE} maximum(%p1, %zeros)",
                rate,
                rates,
                scaled("max"),
                result,
                parameters="xx",
            ),
            "two products": module(
                rate,
                rates,
                step,
                f"other = {SHAPE} multiply(%rates, %p0)",
                f"r = {SHAPE} add(%other, %step)",
                parameters="xx",
            ),
        }.items():
            with self.subTest(name):
                self.assertEqual(self.ways(text), [])

    def test_names_that_meet(self) -> None:
        """Protects against a symbol that stands for two kernels: then neither is recognized."""
        text = module(BIAS, SUM, parameters="xb")
        (line,) = (line for line in text.splitlines() if "fusion(" in line)
        one, other = (line.replace("ROOT %k", name) for name in ("%k.1", "%k_1"))
        self.assertIn("m_k_1", fusions(parsed(text.replace(line, one))))
        self.assertNotIn("m_k_1", fusions(parsed(text.replace(line, f"{one}\n{other}"))))


if __name__ == "__main__":
    unittest.main()
