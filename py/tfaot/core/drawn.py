"""Values that the generated test feeds where the model has none: inputs, and variables that callers set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tfaot.core import dtypes
from tfaot.core.manifest import Manifest

Array = npt.NDArray[Any]

SEED = 1
"""The same in every build."""


def inputs(manifest: Manifest, stored: Mapping[str, Array], *, wide: bool = False) -> dict[str, Array]:
    """Returns the inputs of every call, by `step{N}/{C++ name}`.

    Args:
      manifest: the model's manifest.
      stored: the user's own inputs, by these names. All others are drawn.
      wide: whether integers are from 0 to 99, which as indices are often out of range.
    """
    rng = np.random.default_rng(SEED)
    result: dict[str, Array] = {}
    for step, call in enumerate(manifest.calls):
        for tensor in manifest.entry_point(call.entry_point).inputs:
            name = f"step{step}/{tensor.cpp_name}"
            shape = (call.batch, *tensor.shape[1:]) if tensor.batched else tensor.shape
            result[name] = stored[name] if name in stored else values(tensor.dtype, shape, rng, wide=wide)
    return result


def values(dtype: str, shape: Sequence[int], rng: np.random.Generator, *, wide: bool = False) -> Array:
    """Draws normally distributed floats, or integers that are zero or one; if `wide`, integers from 0 to 99."""
    kind = dtypes.BY_NAME[dtype]
    if kind.name.startswith("complex"):
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(kind.numpy())
    if kind.floating:
        return np.asarray(rng.standard_normal(shape)).astype(kind.numpy())
    return np.asarray(rng.integers(0, 100 if wide and dtype != "bool" else 2, shape)).astype(kind.numpy())
