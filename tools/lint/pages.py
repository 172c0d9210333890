"""Checks that what pages show is what runs: each block under a file's name is in that file, and links and targets exist."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^`([\w./]+)`:\n```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
_TARGET = re.compile(r"//((?:examples|tests|tools)/[a-z0-9_/]+)(?::([\w./-]*\w))?")
_WAY_IN = re.compile(r"\]\((\w+\.md)\) \|")
_INDEX = "docs/models.md"


def main() -> None:
    """Prints what is wrong, and exits with status 1 if anything is."""
    pages = {path: path.read_text(encoding="utf-8") for path in [*_ROOT.glob("*.md"), *_ROOT.glob("docs/*.md")]}
    wrong = [f"{page.relative_to(_ROOT)}: {fault}" for page, text in pages.items() for fault in _faults(page, text)]
    index = pages[_ROOT / _INDEX].partition("What holds for all")[0]
    for name in _WAY_IN.findall(index):
        if not _BLOCK.search(pages.get(_ROOT / "docs" / name, "")):
            wrong.append(f"{_INDEX}: {name} shows no target of a file, after a line with the file's name")
    for line in wrong:
        print(f"pages: {line}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


def _faults(page: Path, text: str) -> Iterator[str]:
    for name, block in _BLOCK.findall(text):
        file = _ROOT / name
        if not file.exists() or block not in file.read_text(encoding="utf-8"):
            yield f"a block under {name} is not in that file; copy it from there"
    for link in _LINK.findall(text):
        if not (page.parent / link).resolve().exists():
            yield f"links to {link}, which does not exist"
    for package, target in _TARGET.findall(text):
        build = _ROOT / package.rstrip("/") / "BUILD"
        if not build.exists():
            yield f"names //{package}, which is no package"
        elif target and not (build.parent / target).exists() and not any(map(target.startswith, _names(build))):
            yield f"names //{package}:{target}, which is not in its BUILD"


def _names(build: Path) -> set[str]:
    """Names of targets, and of what comprehensions loop over: `name = "x"` and `("x", …)`."""
    return set(re.findall(r'"([\w./-]+)', build.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
