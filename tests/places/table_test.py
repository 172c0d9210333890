"""How the table of places is read, written, and compared."""

from __future__ import annotations

import json
import tempfile
import unittest
from pathlib import Path

from tools.dev import places


class TableTest(unittest.TestCase):
    """The functions behind the table."""

    def test_round_trip(self) -> None:
        """Protects renewal: what is written is read again, sorted."""
        tiers = {
            "DEFAULT": {"//b:b": {"x86-64-v3": 1}, "//a:a Train": {"row_fusion": 2, "x86-64-v3": 0}},
            "FULL": {},
            "MANUAL": {},
        }
        text = places.rendered(tiers)
        self.assertEqual(places.parsed(text), tiers)
        self.assertLess(text.index("//a:a Train"), text.index("//b:b"))

    def test_read(self) -> None:
        """Protects against rows of another library: files belong to the longest name, and folders have a file for each function."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            files = [
                "a/net.passes.json",
                "a/net.Train.passes.json",
                "a/net.Train.Run_b8.passes.json",
                "a/net.model.json",
            ]
            for index, name in enumerate([*files, "a/cut.descriptions/c0.passes.json"]):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                text = {"row_fusion": index, "erfc": 0, "prepack": None, "remaining": {"x86-64-v3": 7}, "missed": []}
                (root / name).write_text(json.dumps(text))
            rows = places.read(
                root, [*files, "a/cut.descriptions"], ["//a:net", "//a:net.Train", "//a:cut_library", "//b:net"]
            )
        left = {"x86-64-v3": 7}
        self.assertEqual(
            rows,
            {
                "//a:net": left,
                "//a:net.Train": {"row_fusion": 1, **left},
                "//a:net.Train Run_b8": {"row_fusion": 2, **left},
                "//a:cut_library c0": {"row_fusion": 4, **left},
            },
        )

    def test_differences(self) -> None:
        """Protects the direction: fewer places, more kernels, and a model that is gone are worse, and the opposite is better."""
        old = {"a": {"row_fusion": 2, "x86-64-v3": 5}, "b": {"erfc": 1}, "same": {"erfc": 1}}
        new = {"a": {"prepack": 1, "x86-64-v3": 6}, "c": {}, "same": {"erfc": 1}}
        worse = [
            "a: places of row_fusion: 2 -> 0",
            "a: kernels that remain at x86-64-v3: 5 -> 6",
            "b: compiled no more",
        ]
        better = ["a: places of prepack: 0 -> 1", "c: has no row"]
        self.assertEqual(places.differences(old, new), (worse, better))
        self.assertEqual(places.differences(new, old)[0][:2], ["a: places of prepack: 1 -> 0", "c: compiled no more"])

    def test_totals(self) -> None:
        """Protects the table of versions: rows add up."""
        self.assertEqual(places.totals([{"a": 1, "b": 2}, {"b": 3}]), {"a": 1, "b": 5})


if __name__ == "__main__":
    unittest.main()
