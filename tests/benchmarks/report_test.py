"""The page that is written from a run."""

import pathlib
import tempfile
import unittest

from benchmarks import pages, report
from benchmarks.catalog import ROOT


class ReportTest(unittest.TestCase):
    """From runs to the page."""

    def test_measured_pages(self) -> None:
        """The page in docs, and the table in README.md, are those of the runs, which have one thread or two."""
        runs = report.runs_in(report.RUNS)
        for path, text in ((report.PAGE, report.page(runs)), (ROOT / "README.md", report.overview(runs))):
            self.assertTrue(text in path.read_text(encoding="utf-8"), f"{path}: to do: python3 -m benchmarks.report")

    def test_put(self) -> None:
        """A measurement replaces the previous one, and nothing else on its page; a page without a place for it is an error."""
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder, "page.md")
            page.write_text("# A\n\n<!-- begin: x -->\nold\n<!-- end: x -->\n\nText.\n", encoding="utf-8")
            pages.put(page, "x", "new\n\n")
            self.assertEqual(
                page.read_text(encoding="utf-8"), "# A\n\n<!-- begin: x -->\nnew\n<!-- end: x -->\n\nText.\n"
            )
            with self.assertRaisesRegex(
                ValueError, "page.md has no lines <!-- begin: y --> and <!-- end: y -->; add them"
            ):
                pages.put(page, "y", "new")

    def test_number(self) -> None:
        """Numbers have three digits, whatever their size."""
        self.assertEqual(
            [pages.number(v) for v in (0.108, 5.634, 573.4, 19287.4, 0.0)], ["0.108", "5.63", "573", "19,287", "0"]
        )


if __name__ == "__main__":
    unittest.main()
