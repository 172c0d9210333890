"""Joining entry points into one graph, on handwritten protos."""

from __future__ import annotations

import unittest

from tfaot.core import environment

environment.prepare()

from tests.graph.protos import function, node, parse, variable  # noqa: E402
from tfaot.export.assemble import Whole, assemble  # noqa: E402
from tfaot.export.traced import Edge, Function  # noqa: E402
from tfaot.graph.variables import variable_uses  # noqa: E402


class AssembleTest(unittest.TestCase):
    """Several entry points in one graph."""

    def entry(self, name: str, *nodes: str, shape: tuple[int | None, ...] = (None, 2)) -> Function:
        """Returns an entry point that adds variable `v` to its input `x` and has these nodes. `f` is its function."""
        text = (
            node("x", "Placeholder", shape="shape { unknown_rank: true }", _output_shapes="list { }")
            + variable("w", shared="v")
            + node("unused", "NoOp")
            + node("effect", "NoOp", "^x")
            + node("y", "f", "x", "w:0", "^effect")
            + "".join(nodes)
            + function("f", "p", node("inside", "NoOp"))
        )
        return Function(
            name,
            parse(text),
            (Edge("x:0", "x", 1, shape),),
            (Edge("y:0", "y", 1, (None, 2), "model.py:7"),),
            {
                "y": f"model.py:{len(name)}",
                "f/inside": "model.py:9",
                "unused": "model.py:1",
                "other/inside": "model.py:2",
            },
        )

    def names(self, whole: Whole) -> list[str]:
        """Returns the names of all nodes."""
        return [n.name for n in whole.graph.node]

    def test_one_keeps_its_names(self) -> None:
        """Protects models with one function: nodes keep the user's names, and nodes that no fetch needs are dropped."""
        whole = assemble([self.entry("Run")])
        self.assertEqual(self.names(whole), ["x", "w", "effect", "y"])
        self.assertEqual((whole.entries[0].feeds, whole.entries[0].fetches), (["x"], ["y"]))
        self.assertIs(whole.of(whole.entries[0]), whole.graph)
        self.assertEqual(whole.sources, {"y": "model.py:3", "f/inside": "model.py:9"})

    def test_several_do_not_meet(self) -> None:
        """Protects against merging nodes of two entry points, and keeps the variables and functions that they share."""
        whole = assemble([self.entry("One"), self.entry("Other")])
        self.assertEqual(
            self.names(whole), [f"{entry}/{n}" for entry in ("One", "Other") for n in ("x", "w", "effect", "y")]
        )
        nodes = {n.name: n for n in whole.graph.node}
        self.assertEqual(list(nodes["Other/y"].input), ["Other/x", "Other/w:0", "^Other/effect"])
        self.assertEqual([f.signature.name for f in whole.graph.library.function], ["f"])
        self.assertEqual({use.shared_name for use in variable_uses(whole.graph)}, {"v"})
        self.assertEqual(
            [(e.feeds, e.fetches) for e in whole.entries], [(["One/x"], ["One/y"]), (["Other/x"], ["Other/y"])]
        )
        self.assertEqual(
            [n.name for n in whole.of(whole.entries[1]).node], ["Other/x", "Other/w", "Other/effect", "Other/y"]
        )
        self.assertEqual(whole.sources, {"One/y": "model.py:3", "Other/y": "model.py:5", "f/inside": "model.py:9"})

    def test_shapes_of_inputs(self) -> None:
        """Protects what dims fixed: placeholders have the shape, an open batch stays open, and older inferences go."""
        (one,) = [n for n in assemble([self.entry("Run", shape=(None, 3))]).graph.node if n.name == "x"]
        self.assertEqual([dim.size for dim in one.attr["shape"].shape.dim], [-1, 3])
        self.assertFalse(one.attr["shape"].shape.unknown_rank)
        self.assertNotIn("_output_shapes", one.attr)


if __name__ == "__main__":
    unittest.main()
