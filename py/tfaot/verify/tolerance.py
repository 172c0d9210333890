"""What is expected of each value, and how far a compiler may miss it: the rule. docs/internals/numerics.md explains it.

Three things are known of each value: what TensorFlow computes, `result`; what a float64 reference computes, `exact`; and the
standard deviation of what float32 arithmetic may compute, `deviation`, from runs with noise (`tfaot.verify.noise`).
"""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np

from tfaot.core import dtypes
from tfaot.verify import kept
from tfaot.verify.kept import Array, reals

FACTOR = 8.0
"""How many standard deviations a compiler may be off. The deviation itself is an estimate from 12 runs: of Student's t with
12 degrees of freedom, beyond 8 lie 4 values in a million, and compilers' errors are smaller than those that are assumed."""
SAMPLES = 8
"""How many runs with noise of rounding errors."""
EXCURSIONS, EXCESS = 4, 8.0
"""How many runs with noise this many times as large. They find values that lie so close to a decision, such as the zero of a ReLU's
gradient, that rounding may decide it; what they move is accepted as it is. Where nothing is decided, they move values this many
times as far, and so count among the 12."""
FLOOR_ULP = 2.0
"""Accepted in any case, in units in the last place of the expected value: both sides are rounded."""


@dataclasses.dataclass
class Spread:
    """How far runs with noise lie from a reference, for each value of a part of a result."""

    squares: Array
    """Sum of the squares, of all runs."""
    largest: Array
    """Absolute; of runs with noise of rounding errors."""
    excursion: Array
    """The largest of runs with `EXCESS`."""
    runs: int = 0

    @classmethod
    def of(cls, reference: Array) -> Spread:
        """The spread of no run."""
        return cls(np.zeros(reference.shape), np.zeros(reference.shape), np.zeros(reference.shape))

    def add(self, value: Array, reference: Array, *, times: float = 1.0) -> None:
        """Takes a run into account, whose noise was so many times as large as that of others."""
        off = distance(value, reference)
        most = self.excursion if times > 1 else self.largest
        np.maximum(most, off, out=most)
        self.runs += 1
        with np.errstate(over="ignore"):
            self.squares += np.square(off / times)

    def deviation(self) -> Array:
        """The standard deviation; infinite where a run gave something else than a number."""
        root: Array = np.sqrt(self.squares / max(self.runs, 1))
        return root


def distance(a: Array, b: Array) -> Array:
    """How far values are apart, float64: 0 between equal infinities and between NaNs, infinite if only one side is such."""
    if a.dtype == bool:
        different: Array = (a != b).astype(np.float64)
        return different
    with np.errstate(invalid="ignore", over="ignore"):
        x, y = a.astype(np.float64), b.astype(np.float64)
        off = np.abs(x - y)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    apart: Array = np.where(same, 0.0, np.where(np.isfinite(x) & np.isfinite(y), off, np.inf))
    return apart


@dataclasses.dataclass(frozen=True)
class Expected:
    """A part of a result: what the generated test compares with, and how far each value may be off."""

    value: Array
    tolerance: Array
    """float32 of the value's shape; infinite where rounding decides whether there is a number at all."""


def expected(result: Array, exact: Array, spread: Spread, unit: Array, *, dtype: str, noise: float) -> Expected:
    """Applies the rule to a part of a result.

    Args:
      result: TensorFlow's values.
      exact: the reference's.
      spread: of runs with noise around the reference.
      unit: one unit in the last place of each value, from `units`.
      dtype: of the whole result; a name of `tfaot.core.dtypes`.
      noise: how many times larger than rounding errors the noise was.
    """
    off = distance(result, exact)
    if not dtypes.BY_NAME[dtype].floating:
        # Rounding may decide a whole number: an index of the largest value, a floor. What runs gave is accepted.
        return Expected(result, rounded_up(np.maximum(off, spread.largest)))
    with np.errstate(invalid="ignore"):
        allowed = np.maximum(FACTOR * spread.deviation() / noise, spread.excursion) + FLOOR_ULP * unit
        # Where TensorFlow is the less exact, both its value and the reference's are right.
        apart = (off > allowed) & np.isfinite(off)
        middle = np.where(apart, (result.astype(np.float64) + exact.astype(np.float64)) / 2, exact.astype(np.float64))
        value = np.where(np.isfinite(result.astype(np.float64)) & np.isfinite(off), middle, result).astype(result.dtype)
    allowed = np.where(apart, allowed + off / 2, allowed)
    # Infinities and NaNs are expected as they are.
    settled = ~np.isfinite(result.astype(np.float64)) & np.isfinite(spread.largest)
    return Expected(value, rounded_up(np.where(settled, 0.0, allowed)))


def units(value: Array, dtype: str) -> Array:
    """One unit in the last place of each value; at least the smallest normal number, for denormals may be flushed."""
    if not dtypes.BY_NAME[dtype].floating:
        return np.zeros(value.shape)
    info = ml_dtypes.finfo(value.dtype)
    magnitude = np.abs(reals(value)).astype(np.float64)
    largest = np.where(np.isfinite(magnitude), magnitude, 0.0)
    with np.errstate(over="ignore"):
        unit = np.exp2(np.floor(np.log2(np.maximum(largest, float(info.smallest_normal))))) * float(info.eps)
    least: Array = np.maximum(unit, float(info.smallest_normal))
    return least


def kept_units(value: Array, dtype: str) -> dict[str, Array]:
    """`units` for each part that `kept` keeps: of a block sum, the root of the squares."""
    unit = units(value, dtype)
    if unit.size <= kept.FULL:
        return {"": unit}
    flat = unit.reshape(-1)
    blocks = -(-flat.size // kept.BLOCK)
    padded = np.zeros(blocks * kept.BLOCK)
    padded[: flat.size] = flat
    samples = flat[(np.arange(kept.SAMPLES) * flat.size) // kept.SAMPLES]
    return {"": samples, kept.BLOCKS: np.sqrt(np.square(padded.reshape(blocks, kept.BLOCK)).sum(axis=1))}


def rounded_up(tolerance: Array) -> Array:
    """Rounds up to four significant bits, float32, so that goldens do not depend on the last bits of a machine's library."""
    with np.errstate(invalid="ignore"):
        mantissa, exponent = np.frexp(tolerance.astype(np.float64))
        with np.errstate(over="ignore"):
            up = np.ldexp(np.ceil(mantissa * 16) / 16, exponent)
            result: Array = np.where(np.isfinite(tolerance), up, np.inf).astype(np.float32)
            return result
