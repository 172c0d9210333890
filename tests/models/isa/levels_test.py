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
        (features,) = (
            node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_FEATURES"
        )
        table = (RUNTIME / "tfaot" / "isa.cc").read_text().partition("constexpr Level kLevels[] = {\n")[2]
        self.assertEqual(tuple(ast.literal_eval(features)), isa.CPU_LEVELS)
        self.assertEqual(tuple(re.findall(r'\{"([^"]+)"', table.partition("\n};")[0])), isa.CPU_LEVELS)


if __name__ == "__main__":
    unittest.main()
