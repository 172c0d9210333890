"""Vectorizes sums and means over the pixels of images."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from tensorflow.core.framework import node_def_pb2

from tfaot.graph.attributes import FLOATS, attribute, complete, constant_of, numpy_dtype
from tfaot.graph.names import tensor_name
from tfaot.graph.program import Program

_FEW = 8
"""With fewer pixels or channels, there is little to gain."""
_SHORT = 16
"""The longest sum that isn't split."""
_ROWS = 8
"""The most rows that a longer sum is split into."""


def image_means(program: Program) -> int:
    """Writes sums over axes between the first and the last as products with rows of ones.

    XLA adds up the pixels of one channel after another, or of windows of pixels, one value at a time. A product of one row
    adds vectors of channels. Long sums are sums of sums: first the rows of a matrix with few, long rows, and then the
    pixels that are left. So few roundings follow one another.

    Returns:
      The number of sums and means.
    """
    nodes, tensors = program.nodes(), None
    count = 0
    for node in nodes.values():
        if node.op not in ("Mean", "Sum") or node.attr["T"].type not in FLOATS:
            continue
        axes = constant_of(nodes, node.input[1], program.feeds)
        if axes is None:
            continue
        tensors = tensors or program.tensors()
        name, port = tensor_name(node.input[0])
        shape, out = complete(tensors[f"{name}:{port}"].shape), complete(tensors[f"{node.name}:0"].shape)
        if shape is not None and out is not None and _applies(shape, axes.flatten().tolist()):
            _write(program, node, shape, out)
            count += 1
    return count


def _applies(shape: tuple[int, ...], axes: list[int]) -> bool:
    rank = len(shape)
    if sorted(axis % rank for axis in axes) != list(range(1, rank - 1)) or shape[0] == 0:
        return False
    channels, pixels = shape[-1], math.prod(shape[1:-1])
    # XLA computes places in memory for each value if there are 2ⁿ channels, because it doesn't see that they follow one another.
    return min(channels, pixels) >= _FEW and channels & (channels - 1) != 0


def _write(program: Program, node: node_def_pb2.NodeDef, shape: tuple[int, ...], out: tuple[int, ...]) -> None:
    images, *_, channels = shape
    pixels = math.prod(shape[1:-1])
    dtype, tensor_dtype = node.attr["T"], numpy_dtype(node.attr["T"].type)

    def constant(value: npt.ArrayLike, kind: npt.DTypeLike = np.int32) -> str:
        added: str = program.constant(f"{node.name}/constant", np.array(value, kind), origin=node.name).name
        return added

    def add(op: str, *operands: str, **attributes: object) -> str:
        added: str = program.add(op, f"{node.name}/{op}", operands, origin=node.name, T=dtype, **attributes).name
        return added

    def total(x: str, rows: int, columns: int) -> str:
        """Adds up the rows of each image's matrix."""
        matrices = add("Reshape", x, constant((images, rows, columns)), Tshape=np.dtype("int32"))
        return add("BatchMatMulV2", constant(np.ones((images, 1, rows)), tensor_dtype), matrices)

    x, left = node.input[0], pixels
    while left > _SHORT:
        rows = max(each for each in range(1, _ROWS + 1) if left % each == 0)
        if rows == 1:
            break
        left //= rows
        x = total(x, rows, left * channels)
    x = total(x, left, channels)
    if node.op == "Mean":
        x = add("RealDiv", x, constant(pixels, tensor_dtype))
    program.become(node, "Reshape", (x, constant(out)), T=attribute(dtype), Tshape=np.dtype("int32"))
