"""docs/reference/differences.md is accurate: TensorFlow and compiled code both compute each example."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sys
import tempfile
import unittest
from collections.abc import Sequence
from pathlib import Path

from tests.breadth import differences, engine
from tests.stages import harness

PAGE = engine.ROOT / "docs" / "reference" / "differences.md"


Shown = list[tuple[str, str]]
"""For each example of an entry: TensorFlow's value or error, and our value."""


def differing(runner: engine.Engine, entries: Sequence[differences.Entry]) -> list[Shown]:
    """Returns the results of entries whose examples have two values."""
    outcomes = iter(runner.outcomes([example for entry in entries for example in entry.examples]))
    result = []
    for entry in entries:
        shown = []
        for outcome in itertools.islice(outcomes, len(entry.examples)):
            if outcome.kind != engine.DIFFERS or not entry.covers(outcome.case, outcome.differences[0]).all():
                raise AssertionError(f"{entry.title}: {outcome.case.text}: {outcome.kind} {outcome.details}")
            ((theirs, ours),) = outcome.results
            shown.append((differences.text(theirs), differences.text(ours)))
        result.append(shown)
    return result


def raising(runner: engine.Engine, entries: Sequence[differences.Entry]) -> list[Shown]:
    """Returns the results of entries for whose examples TensorFlow raises an error."""
    examples = [example for entry in entries for example in entry.examples]
    shown = []
    for example, value in zip(examples, runner.compiled(examples), strict=True):
        (outcome,) = runner.outcomes([example])
        errors = re.findall(r"errors_impl\.(\w+)", outcome.details)
        theirs = errors[-1] if errors and outcome.kind == engine.NO_REFERENCE else outcome.kind
        shown.append((theirs, differences.text(value)))
    rest = iter(shown)
    return [list(itertools.islice(rest, len(entry.examples))) for entry in entries]


class DifferencesTest(unittest.TestCase):
    maxDiff = None

    def test_page(self) -> None:
        """Every documented difference is still there, with these values."""
        harness.warm()
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        runner = engine.Engine(folder, flags=("-O0",))
        entries = differences.ENTRIES
        two = iter(differing(runner, [entry for entry in entries if not entry.raises]))
        one = iter(raising(runner, [entry for entry in entries if entry.raises]))
        text = differences.page([next(one if entry.raises else two) for entry in entries])
        if "--write" in sys.argv:
            root = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", engine.ROOT))
            (root / "docs" / "reference" / "differences.md").write_text(text)
            return
        self.assertEqual(text, PAGE.read_text(), f"to do: {differences.RENEW}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
