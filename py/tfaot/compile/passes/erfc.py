"""The complement of the error function, as GELU has it, in half the time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from tensorflow.core.framework import types_pb2

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
"""Of exp(x²)·erfc(x) for 0 <= x <= 9.45, where erfc has long been zero for a float32; lowest powers first.

The relative error is 5e-9. All are positive, so that no digits cancel. Found by Lawson's algorithm: least squares on nodes, with
weights that grow where the error is large.
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
"""Of exp(x) for |x| <= ln(2)/2, found likewise; the relative error is 3.1e-9."""
_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440054690583e-4
"""Their sum is ln(2); few enough bits that a product of the first with a small integer is exact."""
_ROUND = 12582912.0
"""1.5·2²³: what it is added to is rounded to an integer, which then is in the low bits of the sum."""
_LARGEST = 87.0
"""Of x²: a little beyond, erfc is below the smallest normal float32, and zero."""


def erfc(program: Program) -> int:
    """Writes the erfc of float32 as exp(−x²)·p(|x|)/q(|x|), and as 2 minus that where x < 0.

    XLA computes a polynomial for |x| < 1 and, for others, an exponential times a quotient of polynomials, and takes one of the
    two: two divisions and a long chain of sums, each of which waits for the one before. Here it is one division, and polynomials
    whose parts do not wait for each other. GELU is x·erfc(−x/√2) / 2.

    Returns:
      The number of places.
    """
    found = [
        node.name for node in program.graph.node if node.op == "Erfc" and node.attr["T"].type == types_pb2.DT_FLOAT
    ]
    for name in found:
        _Writer(program, name).write()
    return len(found)


class _Writer:
    """Writes one place."""

    def __init__(self, program: Program, name: str) -> None:
        self._program = program
        self._name = name

    def write(self) -> None:
        """Makes a SelectV2 of the Erfc."""
        node = self._program.nodes()[self._name]
        x = node.input[0]
        zero, two = self._number(0), self._number(2)
        magnitude, square = self._op("Abs", x), self._op("Square", x)
        quotient = self._op(
            "RealDiv",
            self._polynomial(_NUMERATOR, magnitude, square),
            self._polynomial(_DENOMINATOR, magnitude, square),
        )
        tail = self._op("Mul", quotient, self._exp_of_minus_square(x, square))
        # Also where x² is infinite, and the quotient is none.
        tail = self._op("SelectV2", self._op("Greater", square, self._number(_LARGEST)), zero, tail)
        negative = self._op("Less", x, zero)
        self._program.become(node, "SelectV2", (negative, self._op("Sub", two, tail), tail), T=_FLOAT)

    def _exp_of_minus_square(self, x: str, square: str) -> str:
        """exp(−x²) for x² <= _LARGEST, of x and its rounded square.

        With n = −x²·log2(e), rounded, it is 2ⁿ·exp(−x² − n·ln(2)). Adding n to a float's exponent multiplies by 2ⁿ. What
        rounding took from the square is put back: of 81, say, it would be 32 units in the last place of the result.
        """
        shifted = self._bits(self._fused(square, self._number(-_LOG2_E), self._number(_ROUND)), _FLOAT, _INT)
        n = self._op("Sub", shifted, self._number(_bits_of(_ROUND), _INT), dtype=_INT)
        as_float = self._add("Cast", n, SrcT=_INT, DstT=_FLOAT)
        # With half of its bits, the square of `high` is exact.
        half = self._number(-1 << 12, _INT)
        high = self._bits(self._op("BitwiseAnd", self._bits(x, _FLOAT, _INT), half, dtype=_INT), _INT, _FLOAT)
        lost = self._op("Sub", square, self._op("Square", high))
        lost = self._op("Sub", lost, self._op("Mul", self._op("Sub", x, high), self._op("AddV2", x, high)))
        rest = self._op("Sub", self._op("Mul", as_float, self._number(-_LN2_HIGH)), square)
        rest = self._op("AddV2", rest, self._fused(as_float, self._number(-_LN2_LOW), lost))
        exponent = self._op("LeftShift", n, self._number(23, _INT), dtype=_INT)
        power = self._bits(self._polynomial(_EXP, rest, self._op("Square", rest)), _FLOAT, _INT)
        return self._bits(self._op("AddV2", power, exponent, dtype=_INT), _INT, _FLOAT)

    def _polynomial(self, coefficients: Sequence[float], x: str, square: str) -> str:
        """Estrin's scheme: neighbours are summed up in pairs, then pairs of them, with x, x², x⁴ …."""
        terms, powers = [self._number(each) for each in coefficients], [square, x]
        while len(terms) > 1:
            if not powers:
                powers = [self._op("Square", x)]
            x = powers.pop()
            pairs = [self._fused(high, x, low) for low, high in zip(terms[::2], terms[1::2], strict=False)]
            terms = pairs + terms[2 * len(pairs) :]
        return terms[0]

    def _fused(self, a: str, b: str, c: str) -> str:
        """a·b + c, which the compiler makes one instruction where the CPU has it."""
        return self._op("AddV2", self._op("Mul", a, b), c)

    def _bits(self, value: str, of: npt.DTypeLike, to: npt.DTypeLike) -> str:
        return self._add("Bitcast", value, T=of, type=to)

    def _op(self, op: str, *operands: str, dtype: npt.DTypeLike = _FLOAT) -> str:
        return self._add(op, *operands, T=dtype)

    def _add(self, op: str, *operands: str, **attributes: object) -> str:
        added: str = self._program.add(op, f"{self._name}/{op}", operands, origin=self._name, **attributes).name
        return added

    def _number(self, value: float, dtype: npt.DTypeLike = _FLOAT) -> str:
        constant = self._program.constant(f"{self._name}/constant", np.array(value, dtype), origin=self._name)
        added: str = constant.name
        return added


def _bits_of(value: float) -> int:
    return int(np.float32(value).view(np.int32))
