"""Which kernels become layers of dense nets."""

from __future__ import annotations

import dataclasses
import math
import unittest

from tests.compile.program.changed import thunks, with_products
from tests.xla.hlo import kernels
from tfaot.compile.program.passes.mlp_fusion import LARGEST, mlp_fusion
from tfaot.compile.program.thunks.kinds import (
    Buffer,
    CompiledFunction,
    Copy,
    DenseNet,
    Dot,
    Epilogue,
    For,
    Kernel,
    Slice,
    Thunk,
)

X, W, B, H, V, C, Y, OTHER = (Slice(index, 0) for index in range(8))
ROW, TWO = "f32[5]{0}", "f32[1,2]{1,0}"
BOUNDS = ["low = f32[] constant(-1)", "high = f32[] constant(1)", f"r = {TWO} clamp(%low, %s, %high)"]
BIAS = f"b = {TWO} broadcast(%p1), dimensions={{1}}"
PRODUCTS = {
    "first": (3, 5, False, True),
    "second": (5, 2, True, False),
    "largest": (LARGEST // 64, 64, False, False),
    "larger": (LARGEST // 64 + 1, 64, False, False),
}
FINISHES = kernels(
    {
        "relu": ([ROW], ["z = f32[] constant(0)", f"r = {ROW} maximum(%p0, %z)"], ROW),
        "bias": ([TWO, "f32[2]{0}"], [BIAS, f"s = {TWO} add(%p0, %b)", *BOUNDS], TWO),
        "sum": ([TWO] * 2, [f"s = {TWO} add(%p0, %p1)", *BOUNDS], TWO),
        "both": (
            [TWO, "f32[2]{0}", TWO],
            [BIAS, f"a = {TWO} add(%p0, %b)", f"s = {TWO} add(%a, %p2)", *BOUNDS],
            TWO,
        ),
        "two": (
            [TWO, TWO, "f32[2]{0}"],
            [BIAS.replace("p1", "p2"), f"a = {TWO} add(%p1, %b)", f"s = {TWO} add(%p0, %a)", *BOUNDS],
            TWO,
        ),
    }
)
HLO = with_products(with_products(FINISHES, PRODUCTS), {"batch": (3, 5, False, False)}, 2)


def kernel(symbol: str, *places: tuple[Slice, int]) -> Kernel:
    """Returns a kernel, given its arguments and their numbers of floats."""
    args = tuple((at, 4 * count) for at, count in places)
    return Kernel(f"m_{symbol}", args, (1, 1, 1), single=symbol != "unknown")


FIRST = kernel("first", (X, 3), (W, 15), (B, 5), (H, 5))
RELU_OF_FIRST = kernel("relu", (H, 5), (H, 5))
SECOND = kernel("second", (H, 5), (V, 10), (Y, 2))
FIRST_LAYER = Dot(
    "float", 1, H, W, X, (5, 15, 3), 5, 1, 3, False, False, Epilogue(None, B, None, H, -math.inf, math.inf)
)
RELU_LAYER = dataclasses.replace(FIRST_LAYER, epilogue=Epilogue(None, B, None, H, 0.0, math.inf))
SECOND_LAYER = Dot("float", 1, Y, V, H, (2, 10, 5), 2, 1, 5, True, False)


class JoinTest(unittest.TestCase):
    """The pass on thunks."""

    def joined(self, *given: Thunk) -> tuple[Thunk, ...]:
        """Returns what the pass makes of thunks."""
        buffers = tuple(Buffer(1 << 20, "temp", None, None) for _ in range(8))
        return thunks(mlp_fusion, HLO, CompiledFunction(buffers, (), (), (), (), given))

    def test_net(self) -> None:
        """Protects nets: products, their bias, and their ReLU are the layers of one net, also in a loop."""
        net = DenseNet((RELU_LAYER, SECOND_LAYER))
        self.assertEqual(self.joined(FIRST, RELU_OF_FIRST, SECOND), (net,))
        self.assertEqual(self.joined(For(3, (FIRST, RELU_OF_FIRST, SECOND))), (For(3, (net,)),))

    def test_apart(self) -> None:
        """Protects the order: layers are nets of their own if one doesn't read the other, or if something is in between."""
        other = dataclasses.replace(SECOND_LAYER, rhs=X)
        self.assertEqual(
            self.joined(FIRST, kernel("second", (X, 5), (V, 10), (Y, 2))),
            (DenseNet((FIRST_LAYER,)), DenseNet((other,))),
        )
        copy = Copy(OTHER, H, 20)
        self.assertEqual(self.joined(FIRST, copy, SECOND), (DenseNet((FIRST_LAYER,)), copy, DenseNet((SECOND_LAYER,))))

    def test_finish_elsewhere(self) -> None:
        """Protects sums that something may read: a kernel that writes to another place stays, and so does one of other values."""
        for finish in (
            kernel("relu", (H, 5), (OTHER, 5)),
            kernel("relu", (OTHER, 5), (OTHER, 5)),
            kernel("relu", (H, 4), (H, 4)),
            kernel("unknown", (H, 5), (H, 5)),
        ):
            self.assertEqual(self.joined(FIRST, finish), (DenseNet((FIRST_LAYER,)), finish))
        self.assertEqual(self.joined(FIRST, RELU_OF_FIRST, RELU_OF_FIRST), (DenseNet((RELU_LAYER,)), RELU_OF_FIRST))

    def test_bias_of_finish(self) -> None:
        """Protects layers whose bias comes with their bounds, unless they have one, or the sums may overwrite it."""
        with_bias = dataclasses.replace(SECOND_LAYER, epilogue=Epilogue(None, C, None, Y, -1.0, 1.0))
        for symbol in ("bias", "sum"):
            self.assertEqual(self.joined(SECOND, kernel(symbol, (Y, 2), (C, 2), (Y, 2))), (DenseNet((with_bias,)),))
        biased = dataclasses.replace(SECOND_LAYER, epilogue=Epilogue(None, C, None, Y, -math.inf, math.inf))
        for before, finish in (
            (SECOND_LAYER, kernel("bias", (Y, 2), (C, 1), (Y, 2))),
            (SECOND_LAYER, kernel("bias", (Y, 2), (Y, 2), (Y, 2))),
            (SECOND_LAYER, kernel("both", (Y, 2), (C, 2), (B, 2), (Y, 2))),
            (SECOND_LAYER, kernel("two", (Y, 2), (C, 2), (B, 2), (Y, 2))),
            (biased, kernel("bias", (Y, 2), (B, 2), (Y, 2))),
        ):
            self.assertEqual(self.joined(DenseNet((before,)), finish), (DenseNet((before,)), finish), finish.symbol)

    def test_sizes(self) -> None:
        """Protects large matrices and batches, which other code multiplies faster, and results in place of a row."""
        depth = LARGEST // 64
        self.assertIsInstance(self.joined(kernel("largest", (X, depth), (W, depth * 64), (Y, 64)))[0], DenseNet)
        for thunk in (
            kernel("larger", (X, depth + 1), (W, depth * 64 + 64), (Y, 64)),
            kernel("batch", (X, 6), (W, 30), (Y, 10)),
            kernel("second", (H, 5), (V, 10), (H, 2)),  # over the row
            kernel("first", (X, 4), (W, 15), (B, 5), (H, 5)),
        ):
            self.assertEqual(self.joined(thunk), (thunk,))


if __name__ == "__main__":
    unittest.main()
