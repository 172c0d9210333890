"""The pass `erfc`: computes the complementary error function with one quotient of polynomials.

GELU is x·erfc(−x/√2)/2, unless it is the approximate form. XLA computes two functions of every value, one for |x| < 1 and one
for the rest, with two divisions and an exponential in chains where each operation waits for the one before. The pass writes
exp(−x²)·p(|x|)/q(|x|), and 2 minus that for negative x: one division, polynomials in pairs that don't wait for each other, and
an exponential that knows its argument's sign and range. NaN and infinities are as in IEEE arithmetic.

Applies to float32. GELU of 2 × 32 × 256 values with bias takes 15.6 instead of 21.9 µs (Zen 3, AVX2). Over 3.8 million values
from −5 to 9.2, the largest error is 5.4 instead of 65 units in the last place, and the mean error 0.48 instead of 3.9, because
the pass corrects for rounding the square.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from tensorflow.core.framework import types_pb2

from tfaot.compile.passes.writer import Writer
from tfaot.graph.program import Program

_FLOAT, _INT = np.dtype("float32"), np.dtype("int32")

_NUMERATOR = (1.0, 1.232728499128825, 0.7256663443029612, 0.22639325902617433, 0.03220504995870951)
_DENOMINATOR = (
    1.0,
    2.361108177612147,
    2.3898832796453893,
    1.3142857647086164,
    0.4013009052215667,
    0.057081162746384397,
)
"""Coefficients for exp(x²)·erfc(x) for 0 <= x <= 9.45, lowest powers first. A float32 erfc is zero well before 9.45.

The relative error is 5e-9. All coefficients are positive, so no digits cancel. They were found by Lawson's algorithm:
least squares on nodes, with weights that grow where the error is large.
"""
_EXP = (
    1.0,
    1.0,
    0.49999993447778607,
    0.16666520631622167,
    0.041668388048911265,
    0.00836871688781364,
    0.001381459847104069,
)
"""Coefficients for exp(x) for |x| <= ln(2)/2, found the same way. The relative error is 3.1e-9."""
_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440054690583e-4
"""Their sum is ln(2). The first has few enough bits that its product with a small integer is exact."""
_ROUND = 12582912.0
"""1.5·2²³. Adding it to a number rounds the number to an integer, in the low bits of the sum."""
_LARGEST = 87.0
"""The largest x². Slightly above it, erfc is below the smallest normal float32, and zero."""


def erfc(program: Program) -> int:
    """Rewrites each float32 erfc, and returns how many."""
    nodes = [
        node for node in program.nodes().values() if node.op == "Erfc" and node.attr["T"].type == types_pb2.DT_FLOAT
    ]
    for node in nodes:
        _Erfc(program, node).write()
    return len(nodes)


class _Erfc(Writer):
    """Rewrites one place."""

    def write(self) -> None:
        """Turns the Erfc into a SelectV2."""
        x = self.node.input[0]
        zero, two = self.number(0), self.number(2)
        magnitude, square = self.add("Abs", x), self.add("Square", x)
        quotient = self.add(
            "RealDiv",
            self._polynomial(_NUMERATOR, magnitude, square),
            self._polynomial(_DENOMINATOR, magnitude, square),
        )
        tail = self.add("Mul", quotient, self._exp_of_minus_square(x, square))
        # Also covers infinite x², where the quotient is NaN.
        tail = self.add("SelectV2", self.add("Greater", square, self.number(_LARGEST)), zero, tail)
        self.become("SelectV2", self.add("Less", x, zero), self.add("Sub", two, tail), tail)

    def _exp_of_minus_square(self, x: str, square: str) -> str:
        """Computes exp(−x²) for x² <= _LARGEST, from x and its rounded square.

        For n = round(−x²·log2(e)), the result is 2ⁿ·exp(−x² − n·ln(2)). Adding n to a float's exponent multiplies it by
        2ⁿ. The rounding error of the square is added back: for 81, for example, it is 32 units in the last place of the
        result.
        """
        shifted = self._bits(self._fused(square, self.number(-_LOG2_E), self.number(_ROUND)), _FLOAT, _INT)
        n = self.add("Sub", shifted, self.constant(np.float32(_ROUND).view(np.int32)), T=_INT)
        as_float = self.op("Cast", n, SrcT=_INT, DstT=_FLOAT)
        # `high` has half of the bits, which makes its square exact.
        half = self.constant(-1 << 12)
        high = self._bits(self.add("BitwiseAnd", self._bits(x, _FLOAT, _INT), half, T=_INT), _INT, _FLOAT)
        lost = self.add("Sub", square, self.add("Square", high))
        lost = self.add("Sub", lost, self.add("Mul", self.add("Sub", x, high), self.add("AddV2", x, high)))
        rest = self.add("Sub", self.add("Mul", as_float, self.number(-_LN2_HIGH)), square)
        rest = self.add("AddV2", rest, self._fused(as_float, self.number(-_LN2_LOW), lost))
        exponent = self.add("LeftShift", n, self.constant(23), T=_INT)
        power = self._bits(self._polynomial(_EXP, rest, self.add("Square", rest)), _FLOAT, _INT)
        return self._bits(self.add("AddV2", power, exponent, T=_INT), _INT, _FLOAT)

    def _polynomial(self, coefficients: Sequence[float], x: str, square: str) -> str:
        """Applies Estrin's scheme: adds neighbors in pairs, then pairs of these, with x, x², x⁴, …."""
        terms, powers = [self.number(coefficient) for coefficient in coefficients], [square, x]
        while len(terms) > 1:
            if not powers:
                powers = [self.add("Square", x)]
            x = powers.pop()
            pairs = [self._fused(high, x, low) for low, high in zip(terms[::2], terms[1::2], strict=False)]
            terms = pairs + terms[2 * len(pairs) :]
        return terms[0]

    def _fused(self, a: str, b: str, c: str) -> str:
        """Computes a·b + c, which the compiler turns into one instruction if the CPU has it."""
        return self.add("AddV2", self.add("Mul", a, b), c)

    def _bits(self, value: str, of: npt.DTypeLike, to: npt.DTypeLike) -> str:
        return self.op("Bitcast", value, T=of, type=to)
