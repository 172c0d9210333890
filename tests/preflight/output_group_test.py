"""The output group `report` of a model that doesn't build."""

from __future__ import annotations

import json
import sys
import unittest
from pathlib import Path

REPORTS = {Path(path).suffix: Path(path) for path in sys.argv[1:]}


class OutputGroupTest(unittest.TestCase):
    """What Bazel builds for `--output_groups=report`."""

    def test_report(self) -> None:
        """Protects users of targets that don't build: the report comes out in all forms, with the lines of their code."""
        data = json.loads(REPORTS[".json"].read_text(encoding="utf-8"))
        self.assertFalse(data["compiles"])
        (entry,) = data["entry_points"]
        by_kind_and_op = {(finding["kind"], finding["op"]): finding for finding in entry["findings"]}
        for key in (("edge_dtype", ""), ("unbounded_loop", "EmptyTensorList"), ("unsupported_op", "AsString")):
            self.assertIn(key, by_kind_and_op)
        (place, _) = by_kind_and_op["unsupported_op", "AsString"]["places"]
        self.assertEqual(place["source"], "tests/preflight/words.py:11")
        text = REPORTS[".txt"].read_text(encoding="utf-8")
        self.assertIn("tests/preflight/words.py: does not compile", text)
        self.assertIn("<h1>Preflight</h1>", REPORTS[".html"].read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
