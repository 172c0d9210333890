"""The page about the C interface of shared libraries, from its header."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from tools.dev.reference.markdown import notice

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
    """Returns the page for a header: each comment as prose, and what it is about as code.

    Raises:
      Unreadable: a part has no name.
    """
    first, *parts = header.split("\n\n")
    lines = ["# The C interface\n"]
    first = first.partition("#ifndef")[0].strip()
    lines += [
        f"`{HEADER}` is the whole interface of a shared library, `NAME_shared`. "
        "[Embed a model](../guide/embedding.md#a-shared-library) says how to build and use one.\n",
        _prose(_COMMENT.sub(r"\1", first)),
    ]
    inside = False
    for part in (text.strip("\n") for text in parts):
        ends = part.endswith("} tfaot_api;")
        text = textwrap.dedent(part.removesuffix("} tfaot_api;")).strip()
        if not text or text.startswith(_SKIPPED) or text == "}":
            continue
        if text.startswith("typedef struct tfaot_api {"):
            inside = True
            lines += ["## tfaot_api\n", "The table of functions. It starts with:\n", _code(text)]
            continue
        comment, declaration = "", text
        if found := _COMMENT.match(text):
            comment, declaration = found[1], text[found.end() :].strip()
        lines += [f"{'###' if inside else '##'} {_title(declaration)}\n", _prose(comment), _code(declaration)]
        inside = inside and not ends
    return notice(HEADER) + "\n".join(line for line in lines if line)


def _title(declaration: str) -> str:
    """Returns the names that a part of the header declares."""
    if found := re.search(r"^#define (\w+)|^\} (\w+);|^typedef struct (\w+) \w+;", declaration, re.MULTILINE):
        names = [name for name in found.groups() if name]
    elif declaration.startswith(("typedef int32_t", "enum")):
        names = re.findall(r"typedef int32_t (\w+);", declaration) or ["Flags of a tensor"]
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
            shown.append(_code(textwrap.dedent(block)))
        elif block.strip():
            shown.append(" ".join(block.split()).replace("*model", "\\*model").replace("<", "\\<") + "\n")
    return "\n".join(shown)


def _code(text: str) -> str:
    return f"```c\n{text}\n```\n" if text else ""
