"""Names of tensors, and names that nothing has yet."""

from __future__ import annotations

import unittest

from tfaot.graph import names


class NamesTest(unittest.TestCase):
    def test_operands(self) -> None:
        """Protects every walk: an operand names a node and a port, in a graph's notation or in a function's."""
        self.assertEqual([names.tensor_name(each) for each in ("x", "x:2", "^x")], [("x", 0), ("x", 2), ("x", -1)])
        self.assertEqual([names.canonical(each) for each in ("x", "x:0", "x:2")], ["x:0", "x:0", "x:2"])
        self.assertEqual([names.producer(each) for each in ("x", "x:2", "^x", "x:output:0")], ["x"] * 4)

    def test_unused(self) -> None:
        """Protects exported graphs, whose names must not move: the first that is free, and the name itself if it is."""
        self.assertEqual(names.unused("x", {"y"}), "x")
        self.assertEqual(names.unused("x", {"x", "x_1", "x_3"}), "x_2")
        self.assertEqual(names.unused("v", {"v", "v_"}, names.underscored), "v__")
        self.assertEqual(names.first_unused(names.numbered("n", 4), {"n_4"}), "n_5")

    def test_take(self) -> None:
        """Protects from giving a name twice: what is taken counts as taken."""
        taken = {"x"}
        self.assertEqual([names.take("x", taken), names.take("x", taken), names.take("y", taken)], ["x_1", "x_2", "y"])
        self.assertEqual(taken, {"x", "x_1", "x_2", "y"})


if __name__ == "__main__":
    unittest.main()
