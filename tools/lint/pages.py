"""Checks that pages are true to the tree: what they link to, name, and show exists, and the map of the docs is complete.

A page shows a part of a file between `<!-- begin: FILE -->` and `<!-- end: FILE -->`, and the file marks that part with the
comments `# begin: install` and `# end: install`. With --fix, copies these parts into the pages. In Starlark, rules of C++ and
Python have their loads.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^`([\w./]+)`:\n```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PART = re.compile(
    r"(?<=<!-- begin: )([\w./-]+)( -->\n```\w*\n)(.*?)(?=```\n<!-- end: \1 -->$)", re.MULTILINE | re.DOTALL
)
_INSTALL = re.compile(r"^# begin: install\n(.*?)^# end: install$", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_STARLARK = re.compile(r"^( *)```starlark\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_RULE = re.compile(r"^ *((?:cc|py)_\w+)\($", re.MULTILINE)
_LOAD = re.compile(r"load\(([^)]*)\)")
_INLINE_CODE = re.compile(r"`[^`\n]+`")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
_TARGET = re.compile(r"(?<!\w)//((?:examples|tests|tools)/[a-z0-9_/]+)(?::([\w./-]*\w))?")
_PATH = re.compile(r"`((?:benchmarks|docs|examples|py|rules|runtime|tests|tools)/[\w./-]+)`")
_NAMED_PAGE = re.compile(r"(?<![\w/.-])docs/[\w/]+\.md")
_WAY_IN = re.compile(r"\]\((\w+\.md)\) \|")
_OF_A_LIBRARY = ("_benchmark", "_bundle", "_config_test", "_report", "_shared", "_stub", "_taps_test")
_INDEX = "docs/guide/models.md"
_MAP = "docs/README.md"


def main() -> None:
    """Prints what is wrong, and exits with status 1 if anything is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fix", action="store_true", help="first copy parts of files into the pages that show them")
    fix = parser.parse_args().fix
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=_ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
    if fix:
        for page in (_ROOT / name for name in names if name.endswith(".md")):
            text = page.read_text(encoding="utf-8")
            if (renewed := with_parts(_ROOT, text)) != text:
                page.write_text(renewed, encoding="utf-8")
    wrong = faults(_ROOT, [name for name in names if name and (_ROOT / name).is_file()])
    for line in wrong:
        print(f"pages: {line}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


def faults(root: Path, files: Iterable[str]) -> list[str]:
    """Returns what is wrong with the pages among these files, and with what other files say about pages.

    Args:
      root: the repository's root
      files: paths of all files to check, relative to the root
    """
    texts: dict[str, str] = {}
    for name in files:
        try:
            texts[name] = (root / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # not text, so it names no page
    pages = {name: text for name, text in texts.items() if name.endswith(".md")}
    wrong = [f"{name}: {fault}" for name, text in pages.items() for fault in _page(root, name, text, pages)]
    wrong += [f"{name}: {fault}" for name, text in texts.items() for fault in _named_pages(root, text)]
    return wrong + list(_map(pages)) + list(_ways_in(pages))


def with_parts(root: Path, text: str) -> str:
    """Returns a page whose parts of files are as they are in those files."""

    def copy(shown: re.Match[str]) -> str:
        part = _part(root / shown[1])
        return shown[0] if part is None else shown[1] + shown[2] + part

    return _PART.sub(copy, text)


def _part(file: Path) -> str | None:
    """Returns the part of a file that its comments mark, or None if there is none."""
    match = _INSTALL.search(file.read_text(encoding="utf-8")) if file.exists() else None
    return match[1] if match else None


def anchors(text: str) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub and most Markdown viewers derive them."""
    seen: Counter[str] = Counter()
    names = set()
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        names.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return names


def _page(root: Path, name: str, text: str, pages: dict[str, str]) -> Iterator[str]:
    for file, block in _BLOCK.findall(text):
        if not (root / file).exists() or block not in (root / file).read_text(encoding="utf-8"):
            yield f"a block under {file} isn't in that file; copy it from there"
    for file, _, _ in _PART.findall(text):
        if _part(root / file) is None:
            yield f"shows a part of {file}, which marks none"
    if with_parts(root, text) != text:
        yield "shows parts of files as they were; run tools/lint/run --fix"
    said = _loaded(_FENCE.sub("", text))
    for _, block in _STARLARK.findall(text):
        for rule in sorted({*_RULE.findall(block)} - _loaded(block) - said):
            yield f"shows {rule} without a load, which Bazel 9 needs; add it to the block, or to the page's text"
    for link, anchor in _LINK.findall(_INLINE_CODE.sub("", _FENCE.sub("", text))):
        target = ((root / name).parent / link).resolve() if link else root / name
        if not target.exists():
            yield f"links to {link}, which doesn't exist"
        elif anchor and anchor not in anchors(pages.get(str(target.relative_to(root)), "")):
            yield f"links to {link}#{anchor}, but that page has no such heading"
    for path in _PATH.findall(_FENCE.sub("", text)):
        if not any(part.isupper() for part in Path(path).with_suffix("").parts) and not (root / path).exists():
            yield f"names {path}, which doesn't exist"
    for package, label in _TARGET.findall(text):
        build = root / package.rstrip("/") / "BUILD"
        if not build.exists():
            yield f"names //{package}, which isn't a package"
        elif label and not (build.parent / label).exists() and not _declared(label, build):
            yield f"names //{package}:{label}, which isn't in its BUILD"


def _loaded(text: str) -> set[str]:
    """Returns the names that the `load` calls in a text name."""
    return {name for load in _LOAD.findall(text) for name in re.findall(r'"(\w+)"', load)}


def _named_pages(root: Path, text: str) -> Iterator[str]:
    for page in sorted(set(_NAMED_PAGE.findall(text))):
        if not (root / page).exists():
            yield f"names {page}, which doesn't exist"


def _map(pages: dict[str, str]) -> Iterator[str]:
    """Yields the pages of docs/ that the map doesn't link to."""
    linked = {link for link, _ in _LINK.findall(pages.get(_MAP, ""))}
    for name in pages:
        if name.startswith("docs/") and name != _MAP and name.removeprefix("docs/") not in linked:
            yield f"{_MAP}: doesn't link to {name}; add it to the map"


def _ways_in(pages: dict[str, str]) -> Iterator[str]:
    """Yields the ways in whose pages show no target that exists."""
    for name in _WAY_IN.findall(pages.get(_INDEX, "").partition("What holds for all")[0]):
        if not _BLOCK.search(pages.get(str(Path(_INDEX).parent / name), "")):
            yield f"{_INDEX}: {name} shows no target of a file, after a line with the file's name"


def _declared(label: str, build: Path) -> bool:
    """Returns whether a BUILD file declares a target, itself, by a macro of the rules, or in a comprehension."""
    text = build.read_text(encoding="utf-8")
    # Strings are names of targets, and what comprehensions make names of: `("x", …)`, `x + "_end"`, and `"{}_{}".format`.
    strings = set(re.findall(r'"([\w./-]+)"', text))
    ends = {"", "_test", *_OF_A_LIBRARY, *(string for string in strings if string.startswith("_"))}
    formats = [pattern.replace("{}", r"[\w.-]+") for pattern in re.findall(r'name = "([\w{}]*\{\}[\w{}]*)"', text)]
    return any(label.startswith(string) and label[len(string) :] in ends for string in strings) or any(
        re.fullmatch(pattern, label) for pattern in formats
    )


if __name__ == "__main__":
    main()
