"""Pieces of Markdown."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence

COMMAND = "bazel run //tools/dev/reference"
"""Writes all pages again."""


def notice(sources: str) -> str:
    """Returns a comment that says how a page came to be."""
    return f"<!-- Made from {sources}. To renew it: {COMMAND} -->\n\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table, with cells on one line each."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(_cell(cell) for cell in line) + " |\n" for line in lines)


@dataclasses.dataclass(frozen=True)
class Group:
    """Rows of a table about one thing."""

    name: str
    meaning: str
    rows: Sequence[tuple[str, ...]]
    """Each begins with a name."""


Shown = dict[tuple[str, ...], str]
"""The rows that a page has, with what they are about."""


def once(head: Sequence[str], rows: Sequence[tuple[str, ...]], shown: Shown, here: str) -> str:
    """Returns a table without the rows that the page has already, and a line about the sections that have them.

    Args:
      head: the table's head
      rows: its rows, which begin with a name
      shown: gets the new rows
      here: a link to this section
    """
    new, same = _new(rows, shown, here)
    parts = [table(head, new)] if new else []
    if same:
        parts.append(same + "\n")
    return "\n".join(parts)


def grouped(head: Sequence[str], groups: Iterable[Group], shown: Shown) -> str:
    """Returns one table of several things: for each, a row with its name and its meaning, and its rows that are new."""
    rows: list[Sequence[str]] = []
    for group in groups:
        new, same = _new(group.rows, shown, group.name)
        rows += [(f"**{group.name}**", *[""] * (len(head) - 2), f"{group.meaning} {same}"), *new]
    return table(head, rows)


def _new(rows: Sequence[tuple[str, ...]], shown: Shown, here: str) -> tuple[list[tuple[str, ...]], str]:
    """Returns the rows that the page doesn't have, and sentences about the others."""
    new = [row for row in rows if row not in shown]
    same: dict[str, list[str]] = {}
    for row in (row for row in rows if row in shown):
        same.setdefault(shown[row], []).append(row[0])
    shown.update(dict.fromkeys(new, here))
    return new, " ".join(f"As in {section}: {', '.join(names)}." for section, names in same.items())


def code(text: str) -> str:
    """Returns text as code, or nothing for empty text."""
    return f"`{text}`" if text else ""


def sentence(text: str) -> str:
    """Returns a phrase as a sentence."""
    text = text.strip()
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?", ":")) else text + "."


def linked(text: str) -> str:
    """Turns names of pages, like `docs/guide/random.md#anchor`, into links from a page in docs/reference."""

    def link(match: re.Match[str]) -> str:
        folder = "" if match[1] == "reference" else f"../{match[1]}/"
        return f"[{match[2]}]({folder}{match[2]}.md{match[3] or ''})"

    return re.sub(r"docs/(\w+)/([\w-]+)\.md(#[\w-]+)?", link, text)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
