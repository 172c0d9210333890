"""A sample of what docs/guide/diagnostics.md counts: the check and the compiler agree."""

from __future__ import annotations

import unittest
from collections.abc import Sequence
from typing import Any

from tests.breadth import recipes
from tests.stages import harness

EVERY = 30
"""Of the ops without a recipe, the test takes one in so many."""

OPS = ("Add", "Conv3D", "FFT", "MatrixDiagPartV3", "Round", "Slice", "StridedSlice", "TopKV2")
"""Ops whose recipes the test runs: each of them needs something that the registry of kernels doesn't say."""


class CorpusTest(unittest.TestCase):
    """The check's verdict, and tfcompile's."""

    @classmethod
    def setUpClass(cls) -> None:
        harness.warm()

    def agree(self, instances: Sequence[Any], *, at_least: int) -> None:
        """Asserts that both give the same answers, and enough of each."""
        from tests.preflight import corpus

        answers = list(corpus.answers(instances))
        wrong = [f"{a.op} ({a.variant}): check {a.blockers}, tfcompile {a.refused}" for a in answers if not a.agree]
        self.assertEqual("\n\n".join(wrong), "")
        self.assertGreaterEqual(sum(bool(a.refused) for a in answers), at_least)
        self.assertGreaterEqual(sum(not a.refused for a in answers), 1)

    def test_definitions(self) -> None:
        """Protects the registry as a source: ops without kernels are refused, and others compile."""
        from tests.preflight import corpus

        some = [op for op in corpus.every_op() if op not in recipes.RECIPES][::EVERY]
        self.agree(corpus.of_definitions([*some, "XlaSelfAdjointEig"]), at_least=20)

    def test_recipes(self) -> None:
        """Protects the tables: dtypes and constants on which the registry is wrong or silent."""
        from tests.preflight import corpus

        self.agree(list(corpus.of_recipes(OPS)), at_least=20)

    def test_cases(self) -> None:
        """Protects the analysis of constants, loops, lists, and branches."""
        from tests.preflight import cases

        self.agree([instance for instance in cases.instances() if instance.variant == "a model"], at_least=15)

    def test_a_wrong_answer_shows(self) -> None:
        """The comparison notices if either side is wrong."""
        from tests.preflight import corpus

        self.assertFalse(corpus.Answer("Add", "", "refused", ()).agree)
        self.assertFalse(corpus.Answer("Add", "", "", (("unsupported_op", "Add"),)).agree)
        self.assertTrue(corpus.Answer("Add", "", "", ()).agree)


if __name__ == "__main__":
    unittest.main()
