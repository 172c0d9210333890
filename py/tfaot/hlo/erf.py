"""The error function as a StableHLO function, because StableHLO has no operation for it.

For `float32` and narrower: x·α(x²)/β(x²) on a clamped x, with the minimax coefficients that Eigen's `generic_fast_erf`
and XLA's `Erf` share. For `float64`: the rational approximations of Cephes (S. L. Moshier, ndtr.c), one for |x| < 1 and
one for the complement outside. Both are within a few units in the last place of the result.
"""

from __future__ import annotations

from collections.abc import Sequence

_CLAMP = 3.7439211627767994
"""The point where a float32 erf is half a unit in the last place below one."""
_ALPHA = (0.00022905065861350646, 0.0034082910107109506, 0.050955695062380861, 0.18520832239976145, 1.128379143519084)
_BETA = (
    -1.1791602954361697e-7,
    0.000023547966471313185,
    0.0010179625278914885,
    0.014070470171167667,
    0.11098505178285362,
    0.49746925110067538,
    1.0,
)

_T = (
    9.60497373987051638749,
    90.0260197203842689217,
    2232.00534594684319226,
    7003.32514112805075473,
    55592.3013010394962768,
)
_U = (
    1.0,
    33.5617141647503099647,
    521.357949780152679795,
    4594.32382970980127987,
    22629.0000613890934246,
    49267.3942608635921086,
)
_P = (
    2.46196981473530512524e-10,
    5.64189564831068821977e-1,
    7.46321056442269912687,
    48.6371970985681366614,
    196.520832956077098242,
    526.445194995477358631,
    934.528527171957607540,
    1027.55188689515710272,
    557.535335369399327526,
)
_Q = (
    1.0,
    13.2281951154744992508,
    86.7072140885989742329,
    354.937778887819891062,
    975.708501743205489753,
    1823.90916687909736289,
    2246.33760818710981792,
    1656.66309194161350182,
    557.535340817727675546,
)

FLOATS = ("f16", "bf16", "f32", "f64")
"""MLIR's names of the dtypes that have an erf."""


def function(name: str, dims: Sequence[int], element: str) -> str:
    """Returns the text of `func.func private @name(tensor) -> tensor`.

    Args:
      name: the function's symbol.
      dims: the tensor's dimensions.
      element: one of `FLOATS`.
    """
    body = _Body(dims, "f64" if element == "f64" else "f32")
    outer = "tensor<" + "".join(f"{size}x" for size in dims) + element + ">"
    x = "%x" if body.type == outer else body.emit(f"stablehlo.convert %x : ({outer}) -> {body.type}")
    result = _wide(body, x) if element == "f64" else _narrow(body, x)
    if body.type != outer:
        result = body.emit(f"stablehlo.convert {result} : ({body.type}) -> {outer}")
    lines = "".join(f"    {line}\n" for line in body.lines)
    return f"  func.func private @{name}(%x: {outer}) -> {outer} {{\n{lines}    return {result} : {outer}\n  }}\n"


class _Body:
    """The lines of a function on tensors of one type."""

    def __init__(self, dims: Sequence[int], element: str) -> None:
        self._shape = "".join(f"{size}x" for size in dims)
        self.type = f"tensor<{self._shape}{element}>"
        self.lines: list[str] = []

    def emit(self, operation: str) -> str:
        """Appends an operation and returns its result."""
        self.lines.append(f"%{len(self.lines)} = {operation}")
        return f"%{len(self.lines) - 1}"

    def constant(self, value: float) -> str:
        return self.emit(f"stablehlo.constant dense<{value:.17e}> : {self.type}")

    def apply(self, operation: str, *operands: str) -> str:
        return self.emit(f"stablehlo.{operation} {', '.join(operands)} : {self.type}")

    def compare(self, left: str, right: str) -> tuple[str, str]:
        """Returns `left < right`, and its type."""
        mask = f"tensor<{self._shape}i1>"
        return self.emit(f"stablehlo.compare LT, {left}, {right} : ({self.type}, {self.type}) -> {mask}"), mask

    def polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        """Evaluates a polynomial by Horner's scheme, highest power first."""
        result = self.constant(coefficients[0])
        for coefficient in coefficients[1:]:
            result = self.apply("add", self.apply("multiply", result, x), self.constant(coefficient))
        return result

    def ratio(self, x: str, above: Sequence[float], below: Sequence[float]) -> str:
        return self.apply("divide", self.polynomial(x, above), self.polynomial(x, below))


def _narrow(body: _Body, x: str) -> str:
    x = body.apply("maximum", body.apply("minimum", x, body.constant(_CLAMP)), body.constant(-_CLAMP))
    square = body.apply("multiply", x, x)
    # Multiplies x by the numerator first, as XLA does, for the same rounding.
    above = body.apply("multiply", x, body.polynomial(square, _ALPHA))
    return body.apply("divide", above, body.polynomial(square, _BETA))


def _wide(body: _Body, x: str) -> str:
    square = body.apply("multiply", x, x)
    near = body.apply("multiply", x, body.ratio(square, _T, _U))
    size = body.apply("abs", x)
    # Beyond 8, the complement is too small to matter, and its polynomials could overflow.
    far = body.apply("minimum", size, body.constant(8.0))
    falling = body.apply("exponential", body.apply("negate", body.apply("multiply", far, far)))
    complement = body.apply("multiply", falling, body.ratio(far, _P, _Q))
    one = body.constant(1.0)
    beyond = body.apply("multiply", body.apply("sign", x), body.apply("subtract", one, complement))
    small, mask = body.compare(size, one)
    return body.emit(f"stablehlo.select {small}, {near}, {beyond} : {mask}, {body.type}")
