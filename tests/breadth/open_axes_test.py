"""Small models with open dimensions: results are TensorFlow's for inputs of each size, or the build names the op and its line."""

from __future__ import annotations

import unittest

from tests.breadth import breadth, engine, recipes, structures
from tests.stages import harness

SHARE = 12
"""One of how many ops and structures the test takes. The command takes all: `breadth -- --open --together 12`."""


class OpenAxesTest(unittest.TestCase):
    maxDiff = None

    def test_random(self) -> None:
        """No case gives wrong values, ends a stage, or shows XLA's own words; an error has the op, its line, and what to do."""
        harness.warm()
        ops = [*recipes.RECIPES, *structures.STRUCTURES][::SHARE]
        cases = breadth.opened(list(breadth.cases(0, ops)), 0)
        outcomes: list[engine.Outcome] = []
        breadth.run(cases, outcomes.append, together=SHARE)
        wrong = [
            f"{breadth.kind(outcome)}: {outcome.case.text}\n{outcome.details[-1000:]}"
            for outcome in outcomes
            if breadth.kind(outcome) not in breadth.COLUMNS
        ]
        self.assertEqual("\n\n".join(wrong), "")
        self.assertGreater(len(outcomes), len(ops) / 3)
        refused = [outcome for outcome in outcomes if outcome.kind == engine.REFUSED]
        self.assertLess(len(refused), len(outcomes) / 4)
        for outcome in refused:
            self.assertRegex(outcome.details, r"model\.py:\d+(.|\n)*\n  to do: ")


if __name__ == "__main__":
    unittest.main()
