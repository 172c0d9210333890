"""Pieces of pages that programs write: numbers, tables, and the places for them. It uses only the standard library."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Sequence


def number(value: float) -> str:
    """Formats three digits, without an exponent."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns a Markdown table."""
    return [
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ]


def put(page: pathlib.Path, name: str, text: str) -> None:
    """Replaces what a page has between the comments `begin: NAME` and `end: NAME`.

    Raises:
      ValueError: the page has no such comments.
    """
    begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->\n"
    before, begins, rest = page.read_text(encoding="utf-8").partition(begin)
    _, ends, after = rest.partition(end)
    if not begins or not ends:
        raise ValueError(f"{page} has no lines {begin.strip()} and {end.strip()}; add them where the text belongs")
    page.write_text("".join([before, begin, text.strip("\n"), "\n", end, after]), encoding="utf-8")
