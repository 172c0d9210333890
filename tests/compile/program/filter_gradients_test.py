"""Which convolutions of copies become gradients that read the originals."""

from __future__ import annotations

import dataclasses
import unittest

from tests.compile.program.changed import thunks
from tfaot.compile.program.passes.filter_gradients import filter_gradients
from tfaot.compile.program.thunks.kinds import (
    Buffer,
    CompiledFunction,
    Convolution,
    FilterGradient,
    For,
    Kernel,
    Slice,
    Thunk,
)

HLO = """\
HloModule m, is_scheduled=true

%images (p: f32[5,9,8,3]) -> f32[3,9,8,5] {
  %p = f32[5,9,8,3]{3,2,1,0} parameter(0)
  %transpose.1 = f32[3,9,8,5]{0,2,1,3} transpose(%p), dimensions={3,1,2,0}
  ROOT %copy.1 = f32[3,9,8,5]{3,2,1,0} copy(%transpose.1)
}

%gradients (q: f32[5,4,7,16]) -> f32[4,7,5,16] {
  %q = f32[5,4,7,16]{3,2,1,0} parameter(0)
  %transpose.2 = f32[4,7,5,16]{3,1,0,2} transpose(%q), dimensions={1,2,0,3}
  ROOT %copy.2 = f32[4,7,5,16]{3,2,1,0} copy(%transpose.2)
}

ENTRY %main (x: f32[5,9,8,3], g: f32[5,4,7,16]) -> f32[3,3,2,16] {
  %x = f32[5,9,8,3]{3,2,1,0} parameter(0)
  %g = f32[5,4,7,16]{3,2,1,0} parameter(1)
  %a = f32[3,9,8,5]{3,2,1,0} fusion(%x), kind=kLoop, calls=%images
  %b = f32[4,7,5,16]{3,2,1,0} fusion(%g), kind=kLoop, calls=%gradients
  ROOT %c = f32[3,3,2,16]{3,2,1,0} convolution(%a, %b), window={size=4x7 rhs_dilate=2x1}, dim_labels=b01f_01io->b01f
}
"""
INPUT, GRADIENT, OUT = (4 * count for count in (5 * 9 * 8 * 3, 5 * 4 * 7 * 16, 3 * 3 * 2 * 16))
X, G, A, B, C, OTHER = (Slice(index, 0) for index in range(6))


def kernel(symbol: str, *places: tuple[Slice, int]) -> Kernel:
    """Returns a kernel, given its arguments and their bytes."""
    return Kernel(symbol, tuple(places), (1, 1, 1), single=symbol != "unknown")


INPUT_COPY = kernel("m_a", (X, INPUT), (A, INPUT))
GRADIENT_COPY = kernel("m_b", (G, GRADIENT), (B, GRADIENT))
CONVOLUTION = Convolution(
    dtype="float",
    out=C,
    input=A,
    kernel=B,
    batch=3,
    input_size=(9, 8),
    input_channels=5,
    kernel_size=(4, 7),
    kernel_channels=5,
    filters=16,
    output_size=(3, 2),
    stride=(1, 1),
    padding_before=(0, 1),
    padding_after=(0, 0),
    input_dilation=(1, 1),
    kernel_dilation=(2, 1),
    groups=1,
)
FOUND = FilterGradient(
    out=C,
    input=X,
    gradient=G,
    batch=5,
    input_size=(9, 8),
    channels=3,
    kernel_size=(3, 2),
    filters=16,
    output_size=(4, 7),
    stride=(2, 1),
    padding=(0, 1),
)


class ReplaceTest(unittest.TestCase):
    """The pass on thunks."""

    def replaced(self, *given: Thunk) -> tuple[Thunk, ...]:
        """Returns what the pass makes of thunks."""
        buffers = tuple(Buffer(1 << 16, "temp", None, None) for _ in range(6))
        return thunks(filter_gradients, HLO, CompiledFunction(buffers, (), (), (), (), given))

    def test_gradient(self) -> None:
        """Protects the numbers: the gradient has the sizes of the convolution that it belongs to, and the copies are gone."""
        self.assertEqual(self.replaced(INPUT_COPY, GRADIENT_COPY, CONVOLUTION), (FOUND,))

    def test_two_of_one_copy(self) -> None:
        """Protects layers that share an input: a copy for two gradients is gone, too."""
        other = dataclasses.replace(CONVOLUTION, out=OTHER)
        self.assertEqual(
            self.replaced(INPUT_COPY, GRADIENT_COPY, CONVOLUTION, other),
            (FOUND, dataclasses.replace(FOUND, out=OTHER)),
        )

    def test_other_convolutions(self) -> None:
        """Protects convolutions that the runtime's gradients can't compute, and loops, whose next step may read a copy."""
        for change in (
            {"dtype": "double"},
            {"groups": 3},
            {"packing": "panels"},
            {"stride": (2, 1)},
            {"stride": (1, 2)},
            {"input_dilation": (1, 2)},
            {"filters": 12},
            {"filters": 4, "batch": 8},
        ):
            with self.subTest(change):
                given = (INPUT_COPY, GRADIENT_COPY, dataclasses.replace(CONVOLUTION, **change))
                self.assertEqual(self.replaced(*given), given)
        loop = For(2, (INPUT_COPY, GRADIENT_COPY, CONVOLUTION))
        self.assertEqual(self.replaced(loop), (loop,))


if __name__ == "__main__":
    unittest.main()
