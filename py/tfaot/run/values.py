"""Values of tensors: which tensor a name means, and which values a tensor takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tfaot.core.errors import TfaotError
from tfaot.run.library import Tensor

Array = npt.NDArray[Any]

ALIGNMENT = 64
"""What the address of an input or an output must be a multiple of."""


def aligned_empty(shape: int | tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> Array:
    """Returns an array whose memory a model can use as an input or an output. Its values aren't initialized."""
    shape = (shape,) if isinstance(shape, int) else shape
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def find(tensors: tuple[Tensor, ...], name: str, entry_point: str = "") -> Tensor | None:
    """Returns the tensor of this name: TensorFlow's, or else the member's, or else either of them shortened."""
    ways: tuple[Callable[[Tensor], bool], ...] = (
        lambda tensor: tensor.name == name,
        lambda tensor: tensor.member == name,
        lambda tensor: tensor.name == f"{name}:0",
        lambda tensor: tensor.member == f"{entry_point}_{name}",
    )
    return next((tensor for matches in ways for tensor in tensors if matches(tensor)), None)


def converted(tensor: Tensor, value: npt.ArrayLike, shape: tuple[int, ...]) -> Array:
    """Returns values of a tensor's dtype and shape. A batch can have fewer rows, and open sizes can be smaller.

    Raises:
      TfaotError: they have another shape, or a dtype whose values the tensor's can't hold.
    """
    dtype = tensor.numpy()
    array = np.asarray(value)
    plain = not isinstance(value, np.ndarray | np.generic)
    if not _fits(array, dtype, plain=plain):
        raise TfaotError(
            f"{tensor.member!r} can't be {array.dtype}{list(array.shape)}",
            exists=f"it is {tensor}",
            do=f'convert the values if you want this: value.astype("{tensor.dtype}")',
        )
    expected = array.ndim == len(shape) and all(
        size == length or (tensor.batched and not axis) or (axis in tensor.open_dims and 1 <= size <= length)
        for axis, (size, length) in enumerate(zip(array.shape, shape, strict=True))
    )
    if not expected:
        raise TfaotError(
            f"{tensor.member!r} can't have the shape {list(array.shape)}",
            exists=f"it is {tensor}",
            do="pass an array of this shape",
        )
    return array.astype(dtype, copy=False)


def _fits(array: Array, dtype: np.dtype[Any], *, plain: bool) -> bool:
    """Whether a tensor of this dtype takes these values. Floats may round, and nothing else may lose anything.

    Python's own integers have no dtype that the caller chose, so their values decide.
    """
    if np.can_cast(array.dtype, dtype, "safe"):
        return True
    if plain and array.dtype.kind in "iu":
        return dtype.kind != "b" and (dtype.kind not in "iu" or bool((array.astype(dtype) == array).all()))
    return (array.dtype.kind in "fV" and dtype.kind in "fcV") or array.dtype.kind == dtype.kind == "c"
