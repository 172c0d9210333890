"""The part of a graph that fetches need, on handwritten protos."""

from __future__ import annotations

import unittest

from tfaot.core import environment

environment.prepare()


from tests.graph.protos import function, node, parse, variable  # noqa: E402
from tfaot.graph.prune import prune, reached  # noqa: E402
from tfaot.graph.variables import variable_uses  # noqa: E402


class PruneTest(unittest.TestCase):
    def test_only_what_fetches_need_is_kept(self) -> None:
        """Protects compile time and the flags: nodes, control inputs, and functions stay if a fetch reaches them."""
        text = (
            node("unused", "NoOp")
            + node("effect", "NoOp")
            + node("x", "Placeholder")
            + node("call", "PartitionedCall", "x:0", "^effect", f='func { name: "f" }')
            + node("y", "Identity", "call:1")
            + function("f", "a", node("n", "StatefulPartitionedCall", "a", f='func { name: "g" }'))
            + function("g", "a", "")
            + function("h", "a", "")
        )
        pruned = prune(parse(text), ["y"])
        self.assertEqual([n.name for n in pruned.node], ["effect", "x", "call", "y"])
        self.assertEqual([f.signature.name for f in pruned.library.function], ["f", "g"])

    def test_functions_in_lists_and_as_ops_are_kept(self) -> None:
        """Protects Case, whose functions are a list, functions that are called as ops, and gradients of functions."""
        text = (
            node("x", "Placeholder")
            + node("case", "Case", "x", branches='list { func { name: "one" } func { name: "two" } }')
            + node("y", "direct", "case")
            + "".join(function(name, "a", "") for name in ("one", "two", "direct", "two_grad", "unused", "unused_grad"))
            + 'library { gradient { function_name: "two" gradient_func: "two_grad" } '
            + 'gradient { function_name: "unused" gradient_func: "unused_grad" } }'
        )
        pruned = prune(parse(text), ["y"])
        self.assertEqual({f.signature.name for f in pruned.library.function}, {"one", "two", "direct", "two_grad"})
        self.assertEqual([g.function_name for g in pruned.library.gradient], ["two"])

    def test_feeds_end_the_walk_and_stay(self) -> None:
        """Protects the interface: an unread input stays, and what computes a feed goes."""
        text = node("a", "Const") + node("x", "Identity", "a") + node("y", "Neg", "x") + node("z", "Placeholder")
        self.assertEqual([n.name for n in prune(parse(text), ["y"], ["x", "z"]).node], ["x", "y", "z"])

    def test_hints_are_dropped(self) -> None:
        """Protects caches and the compiler: devices, colocation, and debug information mean nothing to it."""
        text = (
            node("y", "NoOp", _class='list { s: "loc:@x" }', keep="i: 1").replace("op:", 'device: "/gpu:0" op:')
            + node("call", "f", "y")
            + function("f", "", node("n", "NoOp", _class='list { s: "loc:@x" }').replace("op:", 'device: "/gpu:0" op:'))
        )
        pruned = prune(parse(text), ["call"])
        self.assertEqual(list(pruned.node[0].attr), ["keep"])
        self.assertEqual(pruned.node[0].device, "")
        self.assertEqual(list(pruned.library.function[0].node_def[0].attr), [])
        self.assertEqual(pruned.library.function[0].node_def[0].device, "")

    def test_original_stays_as_it_is(self) -> None:
        """Protects the caller's graph, which still runs in a session."""
        graph = parse(node("y", "NoOp", _class='list { s: "loc:@x" }'))
        before = graph.SerializeToString(deterministic=True)
        prune(graph, ["y"])
        self.assertEqual(graph.SerializeToString(deterministic=True), before)

    def test_large_graphs_take_linear_time(self) -> None:
        """Protects graphs with hundreds of thousands of nodes: a long chain is neither recursive nor quadratic."""
        graph = parse(variable("v") + node("n0", "Identity", "v"))
        for index in range(1, 30_000):
            graph.node.add(name=f"n{index}", op="Identity", input=[f"n{index - 1}"])
        graph.node.add(name="w", op="AssignVariableOp", input=["n29999", "x"])
        graph.node.add(name="x", op="Placeholder")
        pruned = prune(graph, ["w"])
        self.assertEqual(len(pruned.node), 30_003)
        self.assertTrue(variable_uses(pruned)[0].written)

    def test_what_a_graph_lacks(self) -> None:
        """Protects against incomplete graphs: a needed node that is missing is an error, unless it is fed."""
        torn = parse(node("y", "Neg", "x"))
        with self.assertRaisesRegex(KeyError, "x"):
            prune(torn, ["y"])
        self.assertEqual([n.name for n in prune(torn, ["y"], ["x"]).node], ["y"])

    def test_reached(self) -> None:
        """Protects analyses of functions: arguments, outputs by name, and control inputs are followed in either notation."""
        nodes = {n.name: n for n in parse(node("a", "Neg", "x:output:0"), node("b", "Neg", "a:y:0", "^c")).node}
        self.assertEqual(reached(nodes, ["b"]), {"a", "b", "c", "x"})
        self.assertEqual(reached(nodes, ["b"], ends=["a"]), {"a", "b", "c"})


if __name__ == "__main__":
    unittest.main()
