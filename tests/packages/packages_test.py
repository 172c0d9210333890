"""The Python packages: their imports match their BUILD files, and ARCHITECTURE.md shows them."""

from __future__ import annotations

import ast
import os
import re
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path

import tfaot

PYTHON = Path(tfaot.__file__).parent
PAGE = "ARCHITECTURE.md"
UPDATE = "bazel run //tests/packages:packages_test -- --update"
_SECTION = re.compile(r"(?<=<!-- begin: packages -->\n)(.*?)(?=<!-- end: packages -->)", re.DOTALL)


def declared() -> dict[str, set[str]]:
    """Returns the packages that each package's BUILD file names, like `compile/passes`. Bazel itself rejects cycles."""
    query = (Path(__file__).parent / "graph").read_text(encoding="utf-8")
    by_package: dict[str, set[str]] = {}
    for before, after in re.findall(r'^  "//py/tfaot([^"]*)"(?: -> "//py/tfaot([^"]*)")?$', query, re.MULTILINE):
        by_package.setdefault(package_of(before), set())
        if after:
            by_package[package_of(before)].add(package_of(after))
    del by_package[""]
    return by_package


def package_of(label: str) -> str:
    """Maps `/compile/passes:passes` to `compile/passes`, and the top package's `:calibrate` to `calibrate`."""
    folder, _, name = label.partition(":")
    return folder.removeprefix("/") if folder else name.replace("tfaot", "")


def imported() -> dict[str, set[str]]:
    """Returns the packages that each package's files import, anywhere in the file."""
    packages = declared().keys()

    def owner(path: str) -> str:
        """Returns the package that contains a file or a module, by its path."""
        while path and path not in packages:
            path = path.rpartition("/")[0]
        return path

    by_package: dict[str, set[str]] = {}
    for file in sorted(PYTHON.rglob("*.py")):
        place = file.relative_to(PYTHON).with_suffix("").as_posix()
        users = by_package.setdefault(owner(place) or place.replace("__init__", "package"), set())
        for module in modules(ast.parse(file.read_text(encoding="utf-8"))):
            users.add(owner(module.replace(".", "/")) or module or "package")
    return {package: users - {package} for package, users in by_package.items()}


def modules(tree: ast.Module) -> Iterator[str]:
    """Yields our modules that a file imports, without the prefix `tfaot.`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name.removeprefix("tfaot").removeprefix(".") for name in names if name.split(".")[0] == "tfaot")


def diagram() -> str:
    """Returns the packages as ARCHITECTURE.md shows them: each below everything that it imports."""
    graph = {package: uses - {"package"} for package, uses in declared().items() if package != "package"}
    lines, shown = [], set[str]()
    while len(shown) < len(graph):
        ready = sorted(package for package in graph.keys() - shown if graph[package] <= shown)
        lines += [
            f"| `{package}` | {', '.join(f'`{use}`' for use in sorted(graph[package])) or '–'} |" for package in ready
        ]
        shown |= {*ready}
    return "\n".join(["| package of `py/tfaot/` | imports |", "|---|---|", *lines]) + "\n"


class PackagesTest(unittest.TestCase):
    """The folder tree is the architecture only as long as imports follow it."""

    def test_imports_are_declared(self) -> None:
        """Protects the direction of imports: a package imports exactly what its BUILD file names."""
        top = {"package"}  # contains every package
        self.assertEqual(
            {package: uses - top for package, uses in imported().items() if package not in top},
            {package: uses - top for package, uses in declared().items() if package not in top},
        )

    def test_no_relative_imports(self) -> None:
        """Protects the check itself, which reads full names."""
        for file in PYTHON.rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                self.assertFalse(isinstance(node, ast.ImportFrom) and node.level, file)

    def test_page(self) -> None:
        """Protects readers of ARCHITECTURE.md, whose table matches Bazel."""
        page = (Path(os.environ["TEST_SRCDIR"]) / os.environ["TEST_WORKSPACE"] / PAGE).read_text(encoding="utf-8")
        section = _SECTION.search(page)
        self.assertEqual(section[0] if section else "", diagram(), f"to do: {UPDATE}")


if __name__ == "__main__":
    if "--update" in sys.argv:
        page = Path(os.environ["BUILD_WORKSPACE_DIRECTORY"]) / PAGE
        page.write_text(_SECTION.sub(lambda _: diagram(), page.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        unittest.main()
