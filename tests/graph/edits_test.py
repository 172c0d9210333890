"""Changing nodes in graphs and functions, on handwritten protos."""

from __future__ import annotations

import unittest

from tfaot.core import environment

environment.prepare()

from tensorflow.core.framework import types_pb2  # noqa: E402

from tests.graph.protos import function, node, parse  # noqa: E402
from tfaot.graph.edits import Scope, become, replace, use_renamed  # noqa: E402
from tfaot.graph.ops import definition, results  # noqa: E402


class ScopeTest(unittest.TestCase):
    """A graph and a function, each with a node that has three results."""

    def setUp(self) -> None:
        split = node("s", "Split", "p", "x", num_split="i: 3", T="type: DT_FLOAT")
        self.graph = parse(
            split, node("x", "Placeholder"), function("f", "p x", split, returns="s:output:2", result="r")
        )
        self.body = self.graph.library.function[0]

    def test_names(self) -> None:
        """Protects against two nodes with the same name. Arguments of a function have names, too."""
        self.assertEqual([Scope.graph(self.graph).take(name) for name in ("p", "x", "s")], ["p", "x_1", "s_1"])
        scope = Scope.function(self.body)
        self.assertEqual([scope.take(name) for name in ("p", "x", "s", "s")], ["p_1", "x_1", "s_1", "s_2"])
        self.assertEqual(scope.number("s", 2), "s_3")

    def test_outputs(self) -> None:
        """Protects edges, which are ports in graphs and names of outputs in functions."""
        defined = definition("Split")
        assert defined is not None
        tensors = results(self.graph.node[0], defined)
        self.assertEqual([result.dtype for result in tensors], [types_pb2.DT_FLOAT] * 3)
        self.assertEqual(Scope.graph(self.graph).outputs(self.graph.node[0], tensors), ["s", "s:1", "s:2"])
        self.assertEqual(
            Scope.function(self.body).outputs(self.body.node_def[0], tensors),
            [f"s:output:{index}" for index in range(3)],
        )

    def test_waits(self) -> None:
        """Protects the compiler, which can't wait for feeds: nothing waits for a Placeholder or an argument."""
        self.assertEqual([Scope.graph(self.graph).wait_for(name) for name in ("x", "s:1")], [[], ["^s"]])
        self.assertEqual([Scope.function(self.body).wait_for(name) for name in ("x", "s:output:1")], [[], ["^s"]])

    def test_renamed_outputs(self) -> None:
        """Protects functions, in which a node's new op names and counts its outputs differently."""
        scope = Scope.function(self.body)
        scope.add("t", "Neg", ["s:output:1"], {"T": types_pb2.DT_FLOAT})
        scope.rename_output(self.body.node_def[0], "output", "parts", 3)
        use_renamed(self.body, scope.renamed)
        self.assertEqual([*self.body.node_def[1].input], ["s:parts:4"])
        self.assertEqual(dict(self.body.ret), {"r": "s:parts:5"})

    def test_every_result_is_renamed(self) -> None:
        """Protects functions of many results: a proto's map skips entries if it is written while it is iterated over."""
        for index in range(32):
            self.body.ret[f"result_{index}"] = "s:output:1"
        scope = Scope.function(self.body)
        scope.rename_output(self.body.node_def[0], "output", "a_longer_name")
        use_renamed(self.body, scope.renamed)
        self.assertEqual({value.split(":")[1] for value in self.body.ret.values()}, {"a_longer_name"})


class OpTest(unittest.TestCase):
    def test_replace(self) -> None:
        """Protects order and attributes: what a node waits for stays, and its old op's attributes go."""
        (changed,) = parse(node("n", "Cast", "a", "^b", SrcT="type: DT_FLOAT", _kept="i: 1")).node
        replace(changed, "Fill", ["c", "d"], {"T": changed.attr["SrcT"]})
        self.assertEqual((changed.op, [*changed.input]), ("Fill", ["c", "d", "^b"]))
        self.assertEqual({key: value.type for key, value in changed.attr.items()}, {"T": types_pb2.DT_FLOAT})

    def test_become(self) -> None:
        """Protects what belongs to no op, such as debug information: it survives a new op with the same inputs."""
        (changed,) = parse(node("n", "ReadVariableOp", "a", dtype="type: DT_FLOAT", _kept="i: 1")).node
        become(changed, "Identity", {"T": types_pb2.DT_FLOAT})
        self.assertEqual((changed.op, [*changed.input], sorted(changed.attr)), ("Identity", ["a"], ["T", "_kept"]))


if __name__ == "__main__":
    unittest.main()
