"""Plots as SVG: memory over a run, a roofline, bars. Pure.

They have shapes only, and take whatever width the page has. Text stands beside them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

_SIZE = 1000
"""The width and the height, in units of its own, that are stretched to the page's."""


@dataclasses.dataclass
class Value:
    """What is in a place of working memory, from the step that writes it to the last one that needs it."""

    start: int
    end: int
    """The place, in bytes."""
    first: int
    last: int
    """The steps."""
    kernel: str
    """What writes it."""


def values(program: Mapping[str, Any]) -> list[Value]:
    """Returns what is in working memory during a run, given what the compile stage wrote about it. No two share a byte."""
    made: list[Value] = []
    steps = program["steps"]

    def live(places: Iterable[Mapping[str, Any]]) -> list[Value]:
        ranges = [(place["offset"], place["offset"] + place["bytes"]) for place in places if place["of"] == "memory"]
        return [value for value in held if any(value.start < end and start < value.end for start, end in ranges)]

    held: list[Value] = []
    for now, step in enumerate(steps):
        for value in live(step["reads"]):
            value.last = now
        for place in step["writes"]:
            for value in live([place]):
                value.last = min(value.last, now - 1)  # a result can take the place of an operand
                held.remove(value)
            if place["of"] == "memory":
                held.append(Value(place["offset"], place["offset"] + place["bytes"], now, now, step["kernel"]))
                made.append(held[-1])
    for value in live(program["results"]):
        value.last = len(steps) - 1
    for first, last in program["loops"]:  # the next round needs what this one finds
        for value in made:
            if value.first < first <= value.last:
                later = (other.first - 1 for other in made if other.first > value.last and _overlap(other, value))
                value.last = max(value.last, min([last, *later]))
    return [value for value in made if value.last >= value.first]


def _overlap(one: Value, other: Value) -> bool:
    return one.start < other.end and other.start < one.end


def live_bytes(values: Sequence[Value], length: int) -> list[int]:
    """Returns the bytes that are in use in each step."""
    return [
        sum(value.end - value.start for value in values if value.first <= now <= value.last) for now in range(length)
    ]


def memory(values: Sequence[Value], size: int, length: int) -> str:
    """Returns a plot of working memory: steps from left to right, and addresses from bottom to top."""
    x, y = _SIZE / length, _SIZE / size
    shapes = []
    for index, value in enumerate(values):
        text = (
            f"{value.kernel}: {value.end - value.start:,} bytes at {value.start:,}, steps {value.first} to {value.last}"
        )
        width, height = x * (value.last + 1 - value.first), max(2.0, y * (value.end - value.start))
        place = f'x="{x * value.first:.1f}" y="{_SIZE - y * value.end:.1f}" width="{width:.1f}" height="{height:.1f}"'
        shapes.append(f'<rect class="value{index % 4}" {place}><title>{escape(text)}</title></rect>')
    return _svg("Working memory over a run", shapes)


@dataclasses.dataclass(frozen=True)
class Point:
    """A kernel in the roofline."""

    name: str
    operations: float
    """In a run."""
    bytes: float
    """Read and written in a run."""
    microseconds: float

    @property
    def rate(self) -> float:
        """Operations in a second."""
        return self.operations / self.microseconds * 1e6


def roofline(points: Sequence[Point], peaks: Mapping[str, float]) -> tuple[str, str]:
    """Returns a plot with logarithmic axes, and what it shows: operations per byte to the right, and per second upwards.

    Args:
      points: kernels whose operations and bytes are known.
      peaks: the machine's rates in a second: `flops`, and bytes of `memory` and `cache`.
    """
    flops = peaks["flops"]
    intensities = [point.operations / point.bytes for point in points]
    left, right = min([*intensities, 0.1]), max([*intensities, flops / peaks["memory"], 10])
    rates = [*(point.rate for point in points), flops, left * peaks["memory"]]
    bottom, top = min(rates) / 1.5, 1.5 * max(rates)

    def at(intensity: float, rate: float) -> str:
        x, y = math.log(intensity / left) / math.log(right / left), math.log(top / rate) / math.log(top / bottom)
        return f"{_SIZE * x:.1f},{_SIZE * y:.1f}"

    shapes = []
    for kind in ("cache", "memory"):
        line = f"M{at(left, left * peaks[kind])} L{at(flops / peaks[kind], flops)} L{at(right, flops)}"
        shapes.append(f'<path class="roof" d="{line}"><title>copies in {kind}</title></path>')
    total = sum(point.microseconds for point in points) or 1.0
    for point, intensity in zip(points, intensities, strict=True):
        text = f"{point.name}: {point.rate / 1e9:.2f} GFLOP/s, {intensity:.2f} operations per byte, {point.microseconds:.2f} µs"
        width, place = 6 + 32 * math.sqrt(point.microseconds / total), at(intensity, point.rate)
        shapes.append(
            f'<path class="point" stroke-width="{width:.1f}" d="M{place} h0"><title>{escape(text)}</title></path>'
        )
    caption = (
        f"From left to right, {left:.2g} to {right:.3g} operations per byte. From bottom to top, {bottom / 1e9:.2g} to "
        f"{top / 1e9:.3g} GFLOP/s. Both axes are logarithmic. The roof is at {flops / 1e9:.0f} GFLOP/s, and before that at "
        f"{peaks['cache'] / 1e9:.0f} GB/s in the cache and {peaks['memory'] / 1e9:.0f} GB/s in memory."
    )
    return _svg("Roofline", shapes), caption


def bar(share: float) -> str:
    """Returns a bar whose length is a share from 0 to 1, for a table's cell."""
    width = 100 * min(1.0, max(0.0, share))
    kind = "over" if share > 1 else "bar"
    return (
        '<svg class="inline" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="{kind}" width="{width:.1f}" height="10"/></svg>'
    )


def _svg(title: str, shapes: Sequence[str]) -> str:
    return (
        f'<svg class="plot" role="img" viewBox="0 0 {_SIZE} {_SIZE}" preserveAspectRatio="none"><title>{title}</title>\n'
        + "\n".join(shapes)
        + "</svg>"
    )
