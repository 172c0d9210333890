"""Values that the generated test feeds where the model has none: inputs, and variables that callers set.

The verify stage and the generated test draw the same values, so goldens don't need to hold them. runtime/tfaot/drawn.h has the
same formulas.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tfaot.core import dtypes
from tfaot.core.manifest import Call, Input, Manifest, Tensor

Array = npt.NDArray[Any]

DRAWN = "/drawn"
"""Suffix of what goldens have before a tensor that the test feeds: a seed and a limit, uint64. The seed 0 stands for values that
follow."""
CHUNK = 1 << 16
"""How many values are drawn at a time, so that they stay in the CPU's cache."""
_MIDDLE, _DEVIATION = 131070, 37837.22
"""Mean and standard deviation of the sum of four numbers from 0 to 65535."""


@dataclasses.dataclass(frozen=True)
class Range:
    """Integers from `low` to `high` - 1."""

    low: int
    high: int


BITS = Range(0, 2)
"""Integers that suit every use."""


@dataclasses.dataclass(frozen=True)
class Draw:
    """How to draw the values of a tensor."""

    seed: int
    """Not 0."""
    limit: int = 2
    """How many integers there are to draw from."""
    low: int = 0
    """The least of them."""


def draws(
    manifest: Manifest, stored: Mapping[str, Array], ranges: Mapping[str, Range] | None = None
) -> dict[str, Draw]:
    """Returns how to draw the inputs of every call, by `step{N}/{C++ name}`, except those of the user.

    A single integer is drawn, then the largest one, then the least one, and so on, because one draw is few.

    Args:
      manifest: the model's manifest.
      stored: the user's own inputs, by these names.
      ranges: the integers to draw from, by the inputs' TensorFlow names; by default, zeros and ones.
    """
    by_name: dict[str, Draw] = {}
    single: Counter[str] = Counter()
    for step, call in enumerate(manifest.calls):
        for index, tensor in enumerate(manifest.entry_point(call.entry_point).inputs):
            name = f"step{step}/{tensor.cpp_name}"
            if name not in stored and manifest.entry_point(call.entry_point).open_size(tensor) is None:
                span = BITS if tensor.dtype == "bool" else (ranges or {}).get(tensor.name, BITS)
                if span != BITS and math.prod(_shape(call, tensor)) == 1:
                    turn = single[tensor.name] % 3
                    single[tensor.name] += 1
                    span = (span, Range(span.high - 1, span.high), Range(span.low, span.low + 1))[turn]
                by_name[name] = Draw((step + 1) << 32 | index, span.high - span.low, span.low)
    return by_name


def variables(manifest: Manifest) -> dict[str, Draw]:
    """Returns how to draw the unset variables, by name. Zeros would hide many faults."""
    return {variable.name: Draw(1 << 63 | index) for index, variable in enumerate(manifest.variables) if variable.unset}


def inputs(
    manifest: Manifest, stored: Mapping[str, Array], ranges: Mapping[str, Range] | None = None
) -> dict[str, Array]:
    """Returns the inputs of every call: those of the user, and drawn ones. The arguments are those of `draws`."""
    by_name = draws(manifest, stored, ranges)
    result: dict[str, Array] = {}
    for step, call in enumerate(manifest.calls):
        entry = manifest.entry_point(call.entry_point)
        for tensor in entry.inputs:
            name = f"step{step}/{tensor.cpp_name}"
            if (index := entry.open_size(tensor)) is not None:
                result[name] = np.array(call.sizes[index], np.int32)
            else:
                result[name] = stored[name] if name in stored else _values(call, tensor, by_name[name])
    return result


def filled(manifest: Manifest, goldens: Mapping[str, Array]) -> dict[str, Array]:
    """Returns goldens with the values of all inputs and variables, so that readers needn't draw any."""
    result: dict[str, Array] = {}
    feeds: dict[str, tuple[Call, Tensor]] = {}
    for step, call in enumerate(manifest.calls):
        feeds |= {
            f"step{step}/{tensor.cpp_name}": (call, tensor) for tensor in manifest.entry_point(call.entry_point).inputs
        }
        feeds |= {f"step{step}/{variable.cpp_name}/before": (call, variable) for variable in manifest.variables}
    for name, value in goldens.items():
        fed = name.removesuffix(DRAWN)
        if fed == name:
            result[name] = value
        elif value[0]:
            result[fed] = _values(*feeds[fed], Draw(int(value[0]), int(value[1])))
    return result


def _values(call: Call, tensor: Tensor, draw: Draw) -> Array:
    return values(tensor.dtype, _shape(call, tensor), draw)


def _shape(call: Call, tensor: Tensor) -> tuple[int, ...]:
    return tensor.at(call.batch, call.sizes) if isinstance(tensor, Input) else tensor.shape


def values(dtype: str, shape: Sequence[int], draw: Draw) -> Array:
    """Draws floats with mean 0 and variance 1, nearly normal and at most 3.5, or integers."""
    kind = dtypes.BY_NAME[dtype]
    pairs = dtype.startswith("complex")
    result = np.empty(math.prod(shape) * (2 if pairs else 1), kind.numpy().type(0).real.dtype)
    for start, bits in _bits(draw.seed, result.size):
        if kind.floating:
            result[start : start + bits.size] = _floats(bits, result.dtype)
        else:
            drawn = bits if draw.limit >> 64 else bits % np.uint64(draw.limit)
            result[start : start + bits.size] = (drawn + np.uint64(draw.low % (1 << 64))).astype(result.dtype)
    typed: Array = result.view(kind.numpy())
    return typed.reshape(shape)


def _floats(bits: Array, dtype: np.dtype[Any]) -> Array:
    """Returns a float for each 64 bits: the sum of four 16-bit numbers, centered and scaled with a single rounding."""
    sums = np.full(bits.size, -_MIDDLE, np.int64)
    for shift in (0, 16, 32, 48):
        sums += (bits >> np.uint64(shift) & np.uint64(0xFFFF)).view(np.int64)
    wide: type[np.floating[Any]] = np.float64 if dtype == np.float64 else np.float32
    floats: Array = (sums.astype(wide) * wide(1 / _DEVIATION)).astype(dtype)
    return floats


def _bits(seed: int, size: int) -> Iterator[tuple[int, Array]]:
    """Yields flat indices, and random bits for the values from there on.

    Value i has the output i of SplitMix64 (G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom number generators",
    OOPSLA 2014), which starts from the seed's own output.
    """
    gamma = np.uint64(0x9E3779B97F4A7C15)
    (state,) = _mixed(np.array([seed], np.uint64) + gamma)
    for start in range(0, size, CHUNK):
        yield start, _mixed(state + gamma * np.arange(start + 1, min(start + CHUNK, size) + 1, dtype=np.uint64))


def _mixed(state: Array) -> Array:
    state = (state ^ state >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ state >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    mixed: Array = state ^ state >> np.uint64(31)
    return mixed
