"""The pass `winograd`: transforms kernels of 3x3 convolutions for Winograd's minimal filtering F(2x2, 3x3).

A. Lavin and S. Gray, "Fast Algorithms for Convolutional Neural Networks", 2015, section 4.1: the outputs of a 2x2 tile are A^T
[(G g G^T) * (B^T d B)] A, with 16 multiplications instead of the usual 36. For a constant g, the pass computes G g G^T in
float64, and rounds it once. Kernels take 16/9 of the memory. `runtime/tfaot/kernels/winograd.h` transforms inputs and sums.

Applies to float32, stride 1, no dilation, one group, a constant kernel that is finite and stays so, and at least 32 channels,
16 filters, and 9 tiles of 2 × 2 outputs that are not mostly outside the image.

Results round differently, and as much: on ResNet-18's layers, the mean error against float64 is 0.8 to 1.2 times the direct
convolution's. Values that aren't finite spoil more: inputs are subtracted from each other, so an infinity, a NaN, or a value
beyond a quarter of the largest float spoils all four outputs of each tile that meets it, and infinity minus infinity is NaN. If
activations of your model overflow and it goes on from there, compile it with `passes = ["*", "!winograd"]`. F(4x4, 3x3), with
36 multiplications instead of 144, would magnify rounding errors.

ResNet-18 takes 26 instead of 40 ms, and its constants 76 instead of 47 MB (Zen 3, AVX2).
"""

from __future__ import annotations

import numpy as np

from tfaot.compile.program.packing import layouts as packing
from tfaot.compile.program.thunks.compiled import Compiled
from tfaot.compile.program.thunks.kinds import Convolution, Product

_G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])


def winograd(compiled: Compiled) -> int:
    """Runs the pass: transforms and packs constant kernels of convolutions, and returns how many."""

    def gains(product: Product) -> bool:
        return isinstance(product, Convolution) and applies(product)

    def packed(values: memoryview, product: Product) -> bytes | None:
        assert isinstance(product, Convolution)
        contents = transformed(values, product)
        return contents if np.isfinite(np.frombuffer(contents, np.float32)).all() else None

    return packing.pack(compiled, "winograd", gains, packed)


def applies(convolution: Convolution) -> bool:
    """Returns whether F(2x2, 3x3) can compute a convolution, and is faster.

    Found by `./bazelw run //tests/runtime/kernels:winograd_benchmark -- --grid` (docs/internals/kernels.md).
    Transforming inputs pays off with enough filters, and transforming outputs with enough channels. With few tiles,
    reading the kernel, which is larger, doesn't pay off. Where tiles extend past the edge of a small image, work is
    wasted.
    """
    c = convolution
    x, y = c.output_size
    across = -(-x // 2) * -(-y // 2)
    tiles = c.batch * across
    return (
        c.dtype == "float"
        and c.kernel_size == (3, 3)
        and c.stride == c.input_dilation == c.kernel_dilation == (1, 1)
        and c.groups == 1
        and c.input_channels >= 32
        and c.filters >= 16
        and tiles >= 9
        and 3 * x * y >= 8 * across  # at most two thirds of the multiplications
    )


def transformed(kernel: memoryview, convolution: Convolution) -> bytes:
    """Returns G g G^T for every channel and filter, packed: blocks of filters, each with 16 matrices in panels of filters."""
    channels, filters = convolution.kernel_channels, convolution.filters
    g = np.frombuffer(kernel, np.float32).reshape(3, 3, channels, filters).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        points = np.einsum("ix,jy,xycf->ijcf", _G, _G, g).astype(np.float32).reshape(16, channels, filters)
    panel = packing.PANEL_BYTES // points.itemsize
    points = np.pad(points, ((0, 0), (0, 0), (0, -filters % panel)))
    blocks = (points[..., at : at + packing.BLOCK] for at in range(0, points.shape[-1], packing.BLOCK))
    return b"".join(block.reshape(16, channels, -1, panel).transpose(0, 2, 1, 3).tobytes() for block in blocks)
