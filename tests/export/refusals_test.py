"""Each bad model, or attribute, ends in one error that says what was asked, what exists, and what to do.

`refusals.txt` has the models, other fields of the request, and the complete messages as users read them. Behind a message,
`--- REQUEST` and other lines say what changes if one follows its advice, which tests/preflight/advice_test.py does.
"""

from __future__ import annotations

import ast
import unittest
from pathlib import Path

from tests.stages import cases
from tests.stages.harness import PREAMBLE, StageTest


class RefusalsTest(StageTest):
    """The cases of the file."""

    def check(self, case: cases.Case) -> None:
        """Exports and compiles a model, one of which must fail with exactly this message."""
        request = ast.literal_eval(case.extra or "{}")
        message = case.wanted.partition("\n---")[0]
        self.assertEqual(self.error_of(lambda: self.compile(self.export(case.text, **request))), message)


cases.declare(RefusalsTest, Path(__file__).with_name("refusals.txt"), RefusalsTest.check, starts={"PREAMBLE": PREAMBLE})

if __name__ == "__main__":
    unittest.main()
