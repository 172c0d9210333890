"""Lines of user code that operations of MLIR come from, as JAX and others write them into a program's locations."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence

from tfaot.export.sources import debug_info, mlir

_ALIAS = re.compile(r"(#loc\d*) = (loc\(.*\))$")
"""A line that names a location."""
_FRAME = re.compile(rf'({mlir.STRING}):(\d+):\d+|#loc\d*\b|"([^"]+\.\w+):(\d+)"(?!:)')
"""A frame, another location, or a name from `named`."""
_NO_FILE = '"dummy_file_name"'
"""What TensorFlow has in the place of a file, for operations of its own."""
_NESTING = 100
"""How deep locations can refer to each other."""


def aliases(lines: Sequence[str]) -> dict[str, str]:
    """Returns the locations that a module names, `#loc1` to its text."""
    return {match[1]: match[2] for line in lines if line.startswith("#loc") and (match := _ALIAS.match(line))}


def split(text: str) -> tuple[list[str], list[str]]:
    """Returns the lines of a module without its locations, and the location at the end of each line, or nothing."""
    pairs = [_split(line) for line in text.splitlines() if not line.startswith("#loc")]
    return [bare for bare, _ in pairs], [location for _, location in pairs]


def _split(line: str) -> tuple[str, str]:
    bare, end, location = "", 0, ""
    while (start := line.find(" loc(", end)) >= 0:
        if (line.count('"', 0, start) - line.count('\\"', 0, start)) % 2:  # in a string
            bare, end = bare + line[end : start + 1], start + 1
            continue
        bare += line[end:start]
        end = mlir.closing(line, start + 4) + 1
        location = line[start:end]
    return bare + line[end:], location if end == len(line) else ""


def places(text: str, ends: Sequence[str], path: str) -> list[str]:
    """Returns `file:line` of user code for locations from `split`, or nothing.

    Locations are calls within calls, the innermost first. The innermost file outside of installed packages counts.

    Args:
      text: the module, printed with locations.
      ends: the locations.
      path: the program's file, which operations without a location of their own are from.
    """
    named = aliases(text.splitlines())
    place = functools.cache(lambda location: _place(location, named, path, _NESTING))
    return [place(location) for location in ends]


def named(text: str, path: str) -> str:
    """Returns a module whose locations are names, `file:line` of user code. XLA keeps names, and drops frames."""
    lines, ends = split(text)
    return "\n".join(
        line + (f' loc("{place}")' if place else "")
        for line, place in zip(lines, places(text, ends, path), strict=True)
    )


def _place(location: str, named: Mapping[str, str], path: str, nesting: int) -> str:
    for frame in _FRAME.finditer(location):
        if frame[3]:
            place = f"{frame[3]}:{frame[4]}"
        elif frame[1] is None:
            place = _place(named.get(frame[0], ""), named, path, nesting - 1) if nesting else ""
        else:
            shown = path if frame[1] == '"-"' else debug_info.shown(frame[1][1:-1])
            place = f"{shown}:{frame[2]}" if shown else ""
        if place and frame[1] != _NO_FILE:
            return place
    return ""
