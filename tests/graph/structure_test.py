"""What identifies a graph, on handwritten protos: names don't, and everything else does."""

from __future__ import annotations

import unittest

from tfaot.core import environment

environment.prepare()


from tests.graph.protos import function, node, parse, variable  # noqa: E402
from tfaot.graph.structure import Structure, structure  # noqa: E402


def of(*texts: str, feeds: str = "x", fetches: str = "y:0", variables: str = "") -> Structure:
    """Returns the structure of a graph with one entry point, or with several that `|` separates."""
    runs = [(one.split(), other.split()) for one, other in zip(feeds.split("|"), fetches.split("|"), strict=True)]
    return structure(parse(*texts), runs, variables.split())


X = node("x", "Placeholder")


class StructureTest(unittest.TestCase):
    """Pairs of graphs that are the same, and pairs that aren't."""

    def assert_same(self, one: Structure, two: Structure) -> None:
        """Compares all digests."""
        self.assertEqual((one.graph, one.shapes, one.constants), (two.graph, two.shapes, two.constants))

    def assert_differs(self, one: Structure, two: Structure, component: str = "graph") -> None:
        """Checks that exactly one digest differs."""
        for name in ("graph", "shapes", "constants"):
            (self.assertNotEqual if name == component else self.assertEqual)(
                getattr(one, name), getattr(two, name), name
            )

    def test_names_and_order_of_nodes(self) -> None:
        """Nodes can have any name and any order, also where others only wait for them, which TensorFlow sorts by name."""

        def graph(a: str, b: str, end: str, *, reverse: bool = False) -> Structure:
            waits = sorted((f"^{a}", f"^{b}"))
            nodes = [
                X,
                node(a, "Print", "x"),
                node(b, "Assert", "x"),
                node("both", "Add", f"{a}:0", b, *waits),
                node(end, "Identity", "both", *waits),
            ]
            return of(*(reversed(nodes) if reverse else nodes), fetches=f"{end}:0")

        first = graph("a", "b", "y")
        self.assert_same(first, graph("b", "a", "y"))
        self.assert_same(first, graph("p", "q", "z", reverse=True))
        self.assertEqual([n.name for n in first.nodes], ["a", "b", "both", "y"])

    def test_edges(self) -> None:
        """Operands count with their order and their output, and so does what a node waits for."""
        a = node("a", "Split", "x") + node("b", "Neg", "x")
        calls = [
            of(X, a, node("y", "Sub", *operands))
            for operands in (("a", "b"), ("b", "a"), ("a:1", "b"), ("a", "b", "^x"), ("a", "a"))
        ]
        for index, one in enumerate(calls):
            for other in calls[:index]:
                self.assert_differs(one, other)
        self.assert_same(calls[0], of(X, a, node("y", "Sub", "a:0", "b:0")))

    def test_shared_nodes(self) -> None:
        """One node with two users isn't two nodes: an op with effects would run twice."""
        one = of(X, node("a", "Count", "x"), node("y", "Add", "a", "a"))
        two = of(X, node("a", "Count", "x"), node("b", "Count", "x"), node("y", "Add", "a", "b"))
        self.assert_differs(one, two)

    def test_inputs_and_outputs(self) -> None:
        """Which input a node reads counts, in which entry point, and which output it is."""
        nodes = X + node("z", "Placeholder") + node("y", "Sub", "x", "z") + node("w", "Neg", "y")
        first = of(nodes, feeds="x z", fetches="y:0 w:0")
        self.assert_differs(first, of(nodes, feeds="z x", fetches="y:0 w:0"))
        self.assert_differs(first, of(nodes, feeds="x z", fetches="w:0 y:0"))
        self.assert_differs(
            of(nodes, feeds="x|z", fetches="y:0|w:0"), of(nodes, feeds="z|x", fetches="y:0|w:0"), "graph"
        )

    def test_attributes(self) -> None:
        """Attributes count in their component, and hints and names in none."""
        plain = {"T": "type: DT_FLOAT", "shape": "shape { dim { size: 2 } }", "value": "tensor { float_val: 1 }"}

        def graph(**changes: str) -> Structure:
            return of(X, node("y", "Op", "x", **plain | changes))

        first = graph()
        self.assert_differs(first, graph(T="type: DT_HALF"))
        self.assert_differs(first, graph(N="i: 1"))
        self.assert_differs(first, graph(shape="shape { dim { size: 3 } }"), "shapes")
        self.assert_differs(first, graph(shape="shape { unknown_rank: true }"), "shapes")
        self.assert_differs(first, graph(value="tensor { float_val: 2 }"), "constants")
        self.assert_same(first, graph(shared_name='s: "a"', _hint="i: 1", config_proto='s: "b"'))
        many = graph(shapes="list { shape { dim { size: 1 } } shape { } }")
        self.assert_differs(
            many, graph(shapes="list { shape { dim { size: 1 } } shape { dim { size: 1 } } }"), "shapes"
        )

    def test_variables(self) -> None:
        """A variable is its position among the caller's, and two handles of it are one."""
        nodes = node("y", "Add", "a", "b")
        first = of(variable("a"), variable("b"), nodes, feeds="", variables="a b")
        self.assert_same(first, of(variable("a", "one"), variable("b", "two"), nodes, feeds="", variables="one two"))
        self.assert_differs(first, of(variable("a"), variable("b"), nodes, feeds="", variables="b a"))
        self.assert_differs(first, of(variable("a"), variable("b", "a"), nodes, feeds="", variables="a b"))

    def test_functions(self) -> None:
        """A function is its body, under any name: called by an attribute, by a list of them, as an op, or as a gradient."""
        for called in ("attribute", "list", "op", "gradient"):
            with self.subTest(called):

                def graph(name: str, inner: str, op: str = "Neg", value: str = "1", called: str = called) -> Structure:
                    constant = node(inner + "c", "Const", value=f"tensor {{ float_val: {value} }}")
                    body = node(inner, op, "a", f"{inner}c:output:0")
                    named = f'func {{ name: "{name}" }}'
                    attributes = {"f": f"list {{ {named} }}" if called == "list" else named}
                    parts = [function(name, "a", constant + body, f"{inner}:y:0", "r")]
                    if called == "gradient":
                        attributes = {"f": 'func { name: "plain" }'}
                        parts.append(function("plain", "a", ""))
                        parts.append(f'library {{ gradient {{ function_name: "plain" gradient_func: "{name}" }} }}\n')
                    call = node("y", name, "x") if called == "op" else node("y", "Call", "x", **attributes)
                    return of(X, call, *parts)

                first = graph("f", "n")
                self.assert_same(first, graph("another", "m"))
                self.assert_differs(first, graph("f", "n", op="Abs"))
                self.assert_differs(first, graph("f", "n", value="2"), "constants")
                self.assertIn("f/n", [n.name for n in first.nodes])

    def test_unused_nodes_of_functions(self) -> None:
        """XLA compiles what a function's results don't need, so that counts, whatever its order."""
        call = node("y", "Call", "x", f='func { name: "f" }')
        effects = [node("b", "Save", "a"), node("c", "Load", "a")]
        first = of(X, call, function("f", "a", "".join(effects)))
        self.assert_same(first, of(X, call, function("f", "a", "".join(reversed(effects)))))
        self.assert_differs(first, of(X, call, function("f", "a", effects[0])))

    def test_loops(self) -> None:
        """TensorFlow 1's loops, which are cycles, and a function that calls itself have an end."""

        def loop(name: str, op: str = "Neg", back: str = "next") -> Structure:
            return of(
                X,
                node(name, "Merge", "x", back),
                node("body", op, name),
                node("next", "NextIteration", "body"),
                node("y", "Exit", name),
            )

        self.assert_same(loop("m"), loop("z"))
        self.assert_differs(loop("m"), loop("m", op="Abs"))
        self.assert_differs(loop("m"), loop("m", back="body"))
        again = node("n", "Call", "a", f='func { name: "f" }')
        of(X, node("y", "Call", "x", f='func { name: "f" }'), function("f", "a", again, "n:y:0", "r"))

    def test_long_chains(self) -> None:
        """Protects deep models from Python's limit on recursion."""
        nodes = [X, *(node(f"n{i}", "Neg", f"n{i - 1}" if i else "x") for i in range(3000)), node("y", "Neg", "n2999")]
        self.assertEqual(len(of(*nodes).nodes), 3001)


if __name__ == "__main__":
    unittest.main()
