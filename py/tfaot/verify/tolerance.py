"""The rule for what to expect of each value, and how far a compiler may deviate. docs/internals/numerics.md explains it.

Three facts about each value are known: `result`, which TensorFlow computes; `exact`, which a float64 reference computes; and
`deviation`, the standard deviation of what float32 arithmetic can compute, from runs with noise (`tfaot.verify.noise`).
"""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np

from tfaot.core import dtypes
from tfaot.verify import digest
from tfaot.verify.digest import Array, reals

FACTOR = 8.0
"""How many standard deviations a compiler may be off. The deviation itself is an estimate from 12 runs. Of Student's t with 12
degrees of freedom, 4 values in a million are beyond 8, and compilers' errors are smaller than those assumed here."""
SAMPLES = 8
"""How many runs have noise the size of rounding errors."""
EXCURSIONS, EXCESS = 4, 8.0
"""How many runs have noise this many times as large. They find values so close to a decision, such as the zero of a ReLU's
gradient, that rounding can change it. What they move is accepted as it is. Where there is no decision, they move values this many
times as far, and so count among the 12."""
FLOOR_ULP = 2.0
"""Always accepted, in units in the last place of the expected value, because both sides are rounded."""


@dataclasses.dataclass
class Spread:
    """How far runs with noise are from a reference, for each value in a part of a result."""

    squares: Array
    """Sum of squares over all runs."""
    largest: Array
    """Largest absolute distance in runs with noise the size of rounding errors."""
    excursion: Array
    """Largest absolute distance in runs with `EXCESS`."""
    runs: int = 0

    @classmethod
    def of(cls, reference: Array) -> Spread:
        """Returns the spread of no runs."""
        return cls(np.zeros(reference.shape), np.zeros(reference.shape), np.zeros(reference.shape))

    def add(self, value: Array, reference: Array, *, times: float = 1.0) -> None:
        """Adds a run whose noise was `times` as large as that of others."""
        off = distance(value, reference)
        most = self.excursion if times > 1 else self.largest
        np.maximum(most, off, out=most)
        self.runs += 1
        with np.errstate(over="ignore"):
            self.squares += np.square(off / times)

    def merge(self, other: Spread) -> None:
        """Adds another spread's runs around the same reference."""
        np.maximum(self.largest, other.largest, out=self.largest)
        np.maximum(self.excursion, other.excursion, out=self.excursion)
        self.squares += other.squares
        self.runs += other.runs

    def deviation(self) -> Array:
        """The standard deviation. Infinite where a run produced no number."""
        root: Array = np.sqrt(self.squares / max(self.runs, 1))
        return root


def distance(a: Array, b: Array) -> Array:
    """Returns how far apart values are, float64: 0 between equal infinities or NaNs, infinite if only one side is one."""
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
    """float32 with the value's shape. Infinite where rounding decides whether there is a number at all."""


def expected(result: Array, exact: Array, spread: Spread, unit: Array, *, dtype: str, noise: float) -> Expected:
    """Applies the rule to a part of a result.

    Args:
      result: TensorFlow's values.
      exact: the reference's values.
      spread: the spread of runs with noise around the reference.
      unit: one unit in the last place of each value, from `units`.
      dtype: the whole result's dtype, a name from `tfaot.core.dtypes`.
      noise: how many times larger than rounding errors the noise was.
    """
    off = distance(result, exact)
    if not dtypes.BY_NAME[dtype].floating:
        # Rounding can decide an integer, such as an argmax or a floor. Accept what the runs gave.
        return Expected(result, rounded_up(np.maximum(off, spread.largest)))
    with np.errstate(invalid="ignore"):
        allowed = np.maximum(FACTOR * spread.deviation() / noise, spread.excursion) + FLOOR_ULP * unit
        # Where TensorFlow is less exact, both its value and the reference's are right.
        apart = (off > allowed) & np.isfinite(off)
        middle = np.where(apart, (result.astype(np.float64) + exact.astype(np.float64)) / 2, exact.astype(np.float64))
        value = np.where(np.isfinite(result.astype(np.float64)) & np.isfinite(off), middle, result).astype(result.dtype)
    # Whatever is within the tolerance of either is accepted.
    allowed = np.where(np.isfinite(off), allowed + np.where(apart, off / 2, off), allowed)
    # Infinities and NaNs are expected as they are.
    settled = ~np.isfinite(result.astype(np.float64)) & np.isfinite(spread.largest)
    return Expected(value, rounded_up(np.where(settled, 0.0, allowed)))


def units(value: Array, dtype: str) -> Array:
    """Returns one unit in the last place of each value, at least the smallest normal number, as denormals can be flushed."""
    if not dtypes.BY_NAME[dtype].floating:
        return np.zeros(value.shape)
    info = ml_dtypes.finfo(value.dtype)
    magnitude = np.abs(reals(value)).astype(np.float64)
    largest = np.where(np.isfinite(magnitude), magnitude, 0.0)
    _, exponent = np.frexp(np.maximum(largest, float(info.smallest_normal)))
    unit = np.ldexp(float(info.eps), exponent - 1)
    least: Array = np.maximum(unit, float(info.smallest_normal))
    return least


def digest_units(value: Array, dtype: str) -> dict[str, Array]:
    """Returns `units` for each part that `digest` keeps. For a block sum, it is the root of the sum of squares."""
    unit = units(value, dtype)
    if unit.size <= digest.FULL:
        return {"": unit}
    flat = unit.reshape(-1)
    blocks = -(-flat.size // digest.BLOCK)
    padded = np.zeros(blocks * digest.BLOCK)
    padded[: flat.size] = flat
    samples = flat[(np.arange(digest.SAMPLES) * flat.size) // digest.SAMPLES]
    return {"": samples, digest.BLOCKS: np.sqrt(np.square(padded.reshape(blocks, digest.BLOCK)).sum(axis=1))}


def rounded_up(tolerance: Array) -> Array:
    """Rounds up to four significant bits, float32, so goldens don't depend on the last bits of a machine's library."""
    with np.errstate(invalid="ignore"):
        mantissa, exponent = np.frexp(tolerance.astype(np.float64))
        with np.errstate(over="ignore"):
            up = np.ldexp(np.ceil(mantissa * 16) / 16, exponent)
            result: Array = np.where(np.isfinite(tolerance), up, np.inf).astype(np.float32)
            return result
