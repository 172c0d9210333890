"""Summarizes raw times (minimum, median, spread, ratios) and compares outputs. Pure: numbers in, numbers out."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence


@dataclasses.dataclass(frozen=True)
class Times:
    """Microseconds per call, over all rounds."""

    minimum: float
    """Minimum of all batches: what the machine can do when nothing disturbs it."""
    median: float
    """Median of the rounds' medians."""
    variation: float
    """Spread of the rounds' minima: (largest - smallest) / smallest."""
    rounds: int


def times(rounds: Sequence[Sequence[float]]) -> Times:
    """Summarizes rounds of batches, each in microseconds per call.

    Raises:
      ValueError: there is no round, or a round is empty.
    """
    if not rounds or not all(rounds):
        raise ValueError("there is nothing to summarize: a round without a batch")
    minima = [min(batches) for batches in rounds]
    return Times(
        minimum=min(minima),
        median=statistics.median(statistics.median(batches) for batches in rounds),
        variation=(max(minima) - min(minima)) / min(minima) if min(minima) else 0.0,
        rounds=len(rounds),
    )


@dataclasses.dataclass(frozen=True)
class Ratio:
    """The best peer compared with ours. Above 1, ours is faster."""

    peer: str
    value: float
    """Ratio of the minima."""
    low: float
    high: float
    """Smallest and largest ratio of the two within a round."""


def best_ratio(ours: Sequence[Sequence[float]], peers: Mapping[str, Sequence[Sequence[float]]]) -> Ratio | None:
    """Returns the ratio to the peer with the smallest minimum, or None if there is no peer.

    Rounds of both are paired, because they ran one after the other: a slow phase of the machine affects both.
    """
    if not peers:
        return None
    best = min(peers, key=lambda name: times(peers[name]).minimum)
    paired = [min(theirs) / min(own) for theirs, own in zip(peers[best], ours, strict=True)]
    return Ratio(best, times(peers[best]).minimum / times(ours).minimum, min(paired), max(paired))


def calls_for(nanoseconds: float, target: float = 10e6) -> int:
    """Returns how many calls make a batch of about `target` nanoseconds, at least one."""
    return max(1, math.ceil(target / max(nanoseconds, 1.0)))


@dataclasses.dataclass(frozen=True)
class Difference:
    """How far outputs are from the reference's."""

    largest: float
    """Largest absolute difference, as a fraction of the reference's largest magnitude."""
    tolerance: float
    """In the same unit."""

    @property
    def tolerated(self) -> bool:
        """Whether the difference is within the tolerance. NaN never is."""
        return self.largest <= self.tolerance


def difference(got: Sequence[float], want: Sequence[float], tolerance: float) -> Difference:
    """Compares values one by one. A different count, or any value that isn't finite, is infinitely far off."""
    scale = max((abs(value) for value in want), default=0.0)
    if len(got) != len(want) or not all(map(math.isfinite, got)) or not math.isfinite(scale):
        return Difference(math.inf, tolerance)
    largest = max((abs(a - b) for a, b in zip(got, want, strict=True)), default=0.0)
    return Difference(largest / scale if scale else largest, tolerance)


def geometric_mean(values: Sequence[float]) -> float:
    """Returns the geometric mean of ratios, or 1 if there are none."""
    return math.exp(statistics.fmean(map(math.log, values))) if values else 1.0
