"""The list of CPU levels, which Starlark, Python, and C++ each have."""

from __future__ import annotations

import ast
import re
import unittest
from pathlib import Path

from tfaot.core import isa

RUNTIME = Path(__file__).absolute().parents[3] / "runtime"


class LevelsTest(unittest.TestCase):
    """The three lists compared with each other."""

    def test_same(self) -> None:
        """Protects models for a new level: the rules, the compiler, and programs all support it, or none does."""
        tree = ast.parse((RUNTIME / "copts.bzl").read_text())
        features = {
            ast.unparse(node.targets[0]): ast.literal_eval(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("_FEATURES", "_ARM_FEATURES")
        }
        tables = (RUNTIME / "tfaot" / "isa.cc").read_text().split("constexpr Level kLevels[] = {\n")[1:]
        names = [tuple(re.findall(r'\{"([^"]+)"', table.partition("\n};")[0])) for table in tables]
        self.assertEqual((*features["_FEATURES"], *features["_ARM_FEATURES"]), isa.CPU_LEVELS)
        self.assertEqual(names, [tuple(features["_FEATURES"]), tuple(features["_ARM_FEATURES"])])
        for level, wanted in features["_ARM_FEATURES"].items():
            self.assertEqual(isa.TARGETS[level].features, ",".join(f"+{feature}" for feature in wanted))


if __name__ == "__main__":
    unittest.main()
