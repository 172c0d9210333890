"""Pieces of Markdown."""

from __future__ import annotations

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
