"""Names of tensors, and unused names."""

from __future__ import annotations

import unittest

from tfaot.graph import names


class NamesTest(unittest.TestCase):
    def test_operands(self) -> None:
        """Protects every traversal: an operand names a node and a port, in the notation of a graph or of a function."""
        self.assertEqual([names.tensor_name(name) for name in ("x", "x:2", "^x")], [("x", 0), ("x", 2), ("x", -1)])
        self.assertEqual([names.canonical(name) for name in ("x", "x:0", "x:2")], ["x:0", "x:0", "x:2"])
        self.assertEqual([names.producer(name) for name in ("x", "x:2", "^x", "x:output:0")], ["x"] * 4)

    def test_unused(self) -> None:
        """Protects exported graphs, whose names must not change: the first free name, or the name itself if it is free."""
        self.assertEqual(names.unused("x", {"y"}), "x")
        self.assertEqual(names.unused("x", {"x", "x_1", "x_3"}), "x_2")
        self.assertEqual(names.unused("v", {"v", "v_"}, names.underscored), "v__")
        self.assertEqual(names.first_unused(names.numbered("n", 4), {"n_4"}), "n_5")

    def test_take(self) -> None:
        """Protects against using a name twice: a name that is taken counts as used."""
        taken = {"x"}
        self.assertEqual([names.take("x", taken), names.take("x", taken), names.take("y", taken)], ["x_1", "x_2", "y"])
        self.assertEqual(taken, {"x", "x_1", "x_2", "y"})


if __name__ == "__main__":
    unittest.main()
