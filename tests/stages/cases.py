"""Tests as tables: a text file has a block for each case, and each case becomes a method of a test class.

    === NAME: what the case protects
    @START, if the text begins with one
    a text, such as a model
    --- what comes with it
    what is wanted

A block `=== @START` has the first lines of the texts that name it.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import unittest
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True)
class Case:
    """A block of the file."""

    text: str
    extra: str
    """The rest of the line that ends the text."""
    wanted: str
    """Without its last line break."""


def read(file: Path, starts: Mapping[str, str] | None = None) -> Iterator[tuple[str, str, Case]]:
    """Yields each case's name, what it protects, and the case.

    Args:
      file: the table.
      starts: more first lines that texts can name.
    """
    all_starts = {"": "", **(starts or {})}
    for block in re.split(r"^=== ", file.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        title, _, body = block.partition("\n")
        if title.startswith("@"):
            all_starts[title[1:]] = body
            continue
        match = re.fullmatch(r"(?:@(\w+)\n)?((?:.*\n)*?)--- ?(.*)\n((?:.*\n)*)", body)
        assert match is not None, f"{file}: {title} has no line that starts with ---"
        name, _, protects = title.partition(": ")
        yield name, protects, Case(all_starts[match[1] or ""] + match[2], match[3], match[4].rstrip("\n"))


def declare(
    test_class: type[unittest.TestCase],
    file: Path,
    run: Callable[[Any, Case], None],
    starts: Mapping[str, str] | None = None,
    *,
    where: Callable[[Case], object] = lambda case: True,
) -> None:
    """Adds a method to a class for each case of a file, which calls `run` with the test and the case.

    Args:
      test_class: the class.
      file: the table.
      run: checks a case.
      starts: as in `read`.
      where: chooses among the cases.
    """
    for name, protects, case in read(file, starts):
        if not where(case):
            continue

        def test(self: unittest.TestCase, case: Case = case) -> None:
            run(self, case)

        test.__doc__ = protects
        assert not hasattr(test_class, f"test_{name}"), f"{file}: {name} is there twice"
        setattr(test_class, f"test_{name}", test)


def check_facts(test: unittest.TestCase, facts: str, scope: dict[str, Any]) -> None:
    """Checks expressions, one per line, which must be true. Of `a == b`, both sides are shown if they differ.

    Lines can also be assignments.
    """
    for fact in facts.splitlines():
        statement = ast.parse(fact).body[0]
        if not isinstance(statement, ast.Expr):
            exec(fact, scope)
            continue
        value = statement.value
        if isinstance(value, ast.Compare) and isinstance(value.ops[0], ast.Eq) and len(value.ops) == 1:
            sides = (ast.Expression(side) for side in (value.left, value.comparators[0]))
            left, right = (eval(compile(side, fact, "eval"), scope) for side in sides)
            test.assertEqual(left, right, fact)
        else:
            test.assertTrue(eval(fact, scope), fact)
