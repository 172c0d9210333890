"""Which Bazel versions fit .bazelversion."""

from __future__ import annotations

import re

_NUMBERS = re.compile(r"(?:bazel )?(\d+)\.(\d+)\.(\d+)")


def parse(text: str) -> tuple[int, int, int] | None:
    """Returns the numbers in `bazel --version` output or a plain version, or None if it isn't a released version."""
    match = _NUMBERS.fullmatch(text.strip())
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def fits(offered: str, wanted: str) -> bool:
    """Returns whether `offered` can replace `wanted`. Only their patch numbers can differ."""
    one, other = parse(offered), parse(wanted)
    return one is not None and other is not None and one[:2] == other[:2]
