"""The page about the C interface of shared libraries, from its header."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from tools.dev.reference.markdown import code, notice, table

HEADER = "runtime/tfaot/c_api.h"
PAGE = "docs/reference/c_api.md"

_COMMENT = re.compile(r"\A/\*(.*?)\*/\s*", re.DOTALL)
_SKIPPED = ("#ifndef", "#ifdef", "#endif", "#include", "}  /*", "extern")


class Unreadable(Exception):
    """The header has a part that this page can't show."""


def pages(root: Path) -> dict[str, str]:
    """Returns the page's text by its path.

    Args:
      root: the repository's root
    """
    return {PAGE: page((root / HEADER).read_text(encoding="utf-8"))}


def page(header: str) -> str:
    """Returns the page for a header: its first comment as prose, and a table each of types and of functions.

    Raises:
      Unreadable: a part has no name.
    """
    first, *parts = header.split("\n\n")
    types: list[tuple[str, str]] = []
    functions: list[tuple[str, str]] = []
    rows = types
    for part in (text.strip("\n") for text in parts):
        text = textwrap.dedent(part.removesuffix("} tfaot_api;")).strip()
        if not text or text.startswith(_SKIPPED) or text == "}":
            continue
        comment, declaration = "", text
        if match := _COMMENT.match(text):
            comment, declaration = match[1], text[match.end() :].strip()
        if declaration.startswith("typedef struct tfaot_api {"):
            types.append(
                ("`tfaot_api`", "The table of functions. It starts with its `size` and the library's `version`.")
            )
            rows = functions
        elif rows is types:
            values = re.findall(r"TFAOT_\w+(?= =)", declaration)
            rows.append((code(_title(declaration)), " ".join([_prose(comment), ", ".join(map(code, values))])))
        else:
            shown = [code(" ".join(text.split()) + ";") for text in declaration.split(";")[:-1]]
            rows.append(("<br>".join(shown), _prose(comment)))
    return (
        notice(HEADER)
        + "# The C interface\n\n"
        + f"[`{HEADER}`](../../{HEADER}) is the whole interface of a shared library, `NAME_shared`. "
        + "[Embed a model](../guide/embedding.md#a-shared-library) says how to build and use one.\n\n"
        + _prose(_COMMENT.sub(r"\1", first.partition("#ifndef")[0].strip()))
        + "\n\n## Types\n\nThe header has their fields and values.\n\n"
        + table(["type", "what it is"], types)
        + "\n## Functions\n\nAll but the last two are in the table, `tfaot_api`.\n\n"
        + table(["function", "what it does"], functions)
    )


def _title(declaration: str) -> str:
    """Returns the names that a part of the header declares."""
    if match := re.search(r"^#define (\w+)|^\} (\w+);|^(?:typedef )?struct (\w+)(?: \w+)?;", declaration, re.MULTILINE):
        names = [name for name in match.groups() if name]
    elif declaration.startswith(("typedef int32_t", "enum")):
        names = re.findall(r"typedef int32_t (\w+);", declaration) or ["uint32_t flags"]
    else:
        names = re.findall(r"\(\*(\w+)\)\(|(?:\s|\*)(tfaot_\w+)\(uint32_t", declaration)
        names = [first or second for first, second in names]
    if not names:
        raise Unreadable(f"{HEADER} declares something without a name: {declaration}")
    return ", ".join(names)


def _prose(comment: str) -> str:
    """Returns a comment's text, with code where it is indented, and otherwise one line a paragraph."""
    text = re.sub(r"^ ?\* ?", "", comment.strip(), flags=re.MULTILINE)
    shown = []
    for block in text.split("\n\n"):
        if block.startswith("  "):
            shown.append(f"```c\n{textwrap.dedent(block)}\n```")
        elif block.strip():
            shown.append(
                " ".join(block.split())
                .replace("*model", "\\*model")
                .replace("*weights", "\\*weights")
                .replace("<", "\\<")
            )
    return "\n\n".join(shown)
