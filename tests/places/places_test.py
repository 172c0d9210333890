"""The passes apply where they did, and no kernel of XLA's is back: compares models with the table in places.bzl."""

from __future__ import annotations

import sys
import unittest
from pathlib import Path

from tools.dev import places

HERE = Path(__file__).parent
TIER, *FILES = sys.argv[1:]


class PlacesTest(unittest.TestCase):
    """What Bazel compiled for a tier."""

    def test_table(self) -> None:
        """Protects speed: a pass that no longer finds its place changes no number, so no other test would see it."""
        table = places.parsed((HERE / "places.bzl").read_text(encoding="utf-8"))[TIER]
        listed = places.read(HERE.parents[1], FILES, places.labels(table))
        worse, better = places.differences(table, listed)
        if worse:
            self.fail("\n  ".join([f"worse; if you want this, run {places.RENEW}:", *worse, *better]))
        if better:
            self.fail("\n  ".join([f"better; to keep it so, run {places.RENEW}:", *better]))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
