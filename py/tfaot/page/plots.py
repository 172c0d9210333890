"""Plots as SVG, whose colors the page's style sheet chooses: memory over a run, a roofline, bars. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from html import escape

MOST_VALUES = 1500
"""The most values of memory to draw, the largest first."""

_WIDTH, _HEIGHT, _LEFT, _BELOW = 900, 360, 86, 40


@dataclasses.dataclass(frozen=True)
class Value:
    """A value in the working memory."""

    name: str
    shape: str
    bytes: int
    offset: int
    first: int
    """The index of the instruction that computes it."""
    last: int
    """The index of the last instruction that needs it."""


@dataclasses.dataclass(frozen=True)
class Point:
    """A kernel in the roofline."""

    name: str
    flops: float
    """In a run."""
    bytes: float
    """Read and written in a run."""
    microseconds: float


def live(values: Sequence[Value], length: int) -> list[int]:
    """Returns the bytes that are in use at each instruction."""
    changes = [0] * (length + 2)
    for value in values:
        changes[value.first] += value.bytes
        changes[min(value.last, length) + 1] -= value.bytes
    result, total = [], 0
    for change in changes[: length + 1]:
        total += change
        result.append(total)
    return result


def memory(values: Sequence[Value], size: int, length: int) -> str:
    """Returns a plot of the working memory: instructions from left to right, and addresses from bottom to top."""
    drawn = sorted(values, key=lambda value: -value.bytes)[:MOST_VALUES]
    x = (_WIDTH - _LEFT - 20) / max(1, length)
    y = (_HEIGHT - _BELOW) / max(1, size)
    lines = _frame("Working memory over a run", "instruction, in the order of the program", "address, in bytes")
    for index, value in enumerate(drawn):
        left, right = _LEFT + x * value.first, _LEFT + x * (value.last + 1)
        top = _HEIGHT - _BELOW - y * (value.offset + value.bytes)
        tooltip = (
            f"{value.name}: {value.shape}, {value.bytes:,} bytes at {value.offset:,}, "
            f"instructions {value.first} to {value.last}"
        )
        lines.append(
            f'<rect class="value{index % 4}" x="{left:.1f}" y="{top:.1f}" width="{max(0.8, right - left):.1f}" '
            f'height="{max(0.8, y * value.bytes):.1f}"><title>{escape(tooltip)}</title></rect>'
        )
    lines += [_tick(_LEFT - 6, _HEIGHT - _BELOW - y * part, _amount(part), "end") for part in (0, size // 2, size)]
    lines += [_tick(_LEFT + x * part, _HEIGHT - _BELOW + 15, str(part), "middle") for part in (0, length // 2, length)]
    return _svg(lines)


def roofline(points: Sequence[Point], peaks: dict[str, float]) -> str:
    """Returns a plot with logarithmic axes: operations per byte to the right, and operations per second upwards.

    Args:
      points: kernels whose operations and bytes are known.
      peaks: the machine's rates in a second: `flops`, and bytes of `memory` and `cache`.
    """
    rates = [point.flops / point.microseconds * 1e6 for point in points]
    intensities = [point.flops / point.bytes for point in points]
    left = math.floor(math.log10(min([*intensities, 0.1])))
    right = math.ceil(math.log10(max([*intensities, peaks["flops"] / peaks["memory"], 10])))
    top = math.ceil(math.log10(max([*rates, peaks["flops"]])) + 0.05)
    bottom = math.floor(max(math.log10(min([*rates, peaks["memory"] * 10**left])), top - 6))

    def x(intensity: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 20) * (math.log10(intensity) - left) / (right - left)

    def y(rate: float) -> float:
        return (_HEIGHT - _BELOW) * (1 - (max(math.log10(rate), bottom) - bottom) / (top - bottom))

    lines = _frame("Roofline", "operations per byte", "operations per second")
    for kind, name in (("cache", "copies in the cache"), ("memory", "copies in memory")):
        meets = peaks["flops"] / peaks[kind]
        start = max(10.0**left, 10.0**bottom / peaks[kind])
        lines.append(
            f'<path class="roof" d="M{x(start):.1f},{y(start * peaks[kind]):.1f} L{x(meets):.1f},{y(peaks["flops"]):.1f} '
            f'L{x(10.0**right):.1f},{y(peaks["flops"]):.1f}"><title>{name}: {peaks[kind] / 1e9:.1f} GB/s</title></path>'
        )
        middle = math.sqrt(start * meets)
        above = kind == "cache"
        text = f"{name} {peaks[kind] / 1e9:.0f} GB/s"
        lines.append(
            _tick(
                x(middle) + (-8 if above else 8),
                y(middle * peaks[kind]) + (-6 if above else 16),
                text,
                "end" if above else "start",
            )
        )
    lines.append(_tick(_WIDTH - 14, y(peaks["flops"]) - 6, f"{peaks['flops'] / 1e9:.0f} GFLOP/s", "end"))
    total = sum(point.microseconds for point in points) or 1.0
    taken: list[tuple[float, float]] = []
    for point, rate, intensity in sorted(
        zip(points, rates, intensities, strict=True), key=lambda each: -each[0].microseconds
    ):
        at = x(intensity), y(rate)
        radius = 3 + 16 * math.sqrt(point.microseconds / total)
        tooltip = (
            f"{point.name}: {rate / 1e9:.2f} GFLOP/s, {intensity:.2f} operations per byte, {point.microseconds:.2f} µs"
        )
        lines.append(
            f'<circle class="point" cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{radius:.1f}"><title>{escape(tooltip)}</title></circle>'
        )
        if len(taken) < 6 and all(abs(at[0] - other[0]) > 150 or abs(at[1] - other[1]) > 14 for other in taken):
            taken.append(at)
            end = at[0] > _WIDTH - 220
            place = at[0] - radius - 3 if end else at[0] + radius + 3
            lines.append(_tick(place, at[1] + 4, _cut(point.name), "end" if end else "start"))
    lines += [_tick(x(10.0**power), _HEIGHT - _BELOW + 15, _power(power), "middle") for power in range(left, right + 1)]
    lines += [_tick(_LEFT - 6, y(10.0**power) + 4, _power(power), "end") for power in range(bottom, top + 1)]
    return _svg(lines)


def bar(share: float) -> str:
    """Returns a bar whose length is a share from 0 to 1, for a table's cell."""
    width = 100 * min(1.0, max(0.0, share))
    kind = "over" if share > 1 else "bar"
    return (
        '<svg class="inline" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="{kind}" width="{width:.1f}" height="10"/></svg>'
    )


def _frame(title: str, below: str, beside: str) -> list[str]:
    middle = (_LEFT + _WIDTH) / 2
    return [
        f"<title>{escape(title)}</title>",
        f'<path class="axis" d="M{_LEFT},0 V{_HEIGHT - _BELOW} H{_WIDTH}"/>',
        f'<text x="{middle:.0f}" y="{_HEIGHT - 6}" text-anchor="middle">{escape(below)}</text>',
        f'<text transform="translate(12,{(_HEIGHT - _BELOW) / 2:.0f}) rotate(-90)" text-anchor="middle">{escape(beside)}</text>',
    ]


def _svg(lines: Sequence[str]) -> str:
    return (
        f'<svg class="plot" role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}">'
        + "\n".join(lines)
        + "</svg>"
    )


def _tick(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{min(max(y, 11), _HEIGHT):.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _cut(name: str) -> str:
    return name if len(name) <= 28 else name[:27] + "…"


def _power(power: int) -> str:
    names = {9: "1 G", 10: "10 G", 11: "100 G", 12: "1 T", 13: "10 T", 6: "1 M", 7: "10 M", 8: "100 M"}
    return names.get(power, f"{10.0**power:g}")


def _amount(size: int) -> str:
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size}"
