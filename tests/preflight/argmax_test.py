"""What the check says about the example whose axis is an argument."""

from __future__ import annotations

import textwrap
import unittest

from tests.stages.harness import ROOT


class ArgmaxTest(unittest.TestCase):
    """The report of //examples/argmax:any_axis_aot."""

    def test_page(self) -> None:
        """Protects readers of the examples' page: it shows what the check says about the example's own file."""
        report = (ROOT / "examples/argmax/any_axis_aot.report.txt").read_text(encoding="utf-8")
        self.assertIn("its argument dimension must be known at build time", report)
        self.assertIn("it depends on the input 'axis'", report)
        page = (ROOT / "docs/guide/examples.md").read_text(encoding="utf-8")
        self.assertIn(f"```\n{textwrap.dedent(report).strip()}\n```", page)


if __name__ == "__main__":
    unittest.main()
