"""Pruning, walking, and joining graphs: what real graphs do not show, on protos made by hand."""

from __future__ import annotations

import unittest

from tfaot.core import environment

environment.prepare()

from google.protobuf import text_format  # noqa: E402
from tensorflow.core.framework import graph_pb2  # noqa: E402

from tfaot.export.assemble import Whole, assemble  # noqa: E402
from tfaot.export.traced import Edge, Function  # noqa: E402
from tfaot.graph.prune import prune  # noqa: E402
from tfaot.graph.variables import name_variables, variable_uses  # noqa: E402


def parse(*texts: str) -> graph_pb2.GraphDef:
    """Reads nodes, and parts of a library, which the text format wants in one piece."""
    graph = graph_pb2.GraphDef()
    for text in "".join(texts).splitlines():
        text_format.Merge(text, graph)
    return graph


def node(name: str, op: str, *inputs: str, **attributes: str) -> str:
    """A node in text format; attributes are given as text of their values."""
    lines = [f'name: "{name}" op: "{op}"', *(f'input: "{operand}"' for operand in inputs)]
    lines += [f'attr {{ key: "{key}" value {{ {value} }} }}' for key, value in attributes.items()]
    return "node { " + " ".join(lines) + " }\n"


def variable(name: str, shared: str | None = None, shape: str = "dim { size: 2 }") -> str:
    """A variable's handle."""
    shared_name = f's: "{name if shared is None else shared}"'
    return node(name, "VarHandleOp", shared_name=shared_name, dtype="type: DT_FLOAT", shape=f"shape {{ {shape} }}")


def function(name: str, args: str, nodes: str, returns: str = "", result: str = "") -> str:
    """A function of resource arguments, and perhaps one result."""
    inputs = " ".join(f'input_arg {{ name: "{arg}" type: DT_RESOURCE }}' for arg in args.split())
    output = f'output_arg {{ name: "{result}" type: DT_RESOURCE }}' if result else ""
    ret = f'ret {{ key: "{result}" value: "{returns}" }}' if result else ""
    body = nodes.replace("node {", "node_def {").replace("\n", " ")
    return f'library {{ function {{ signature {{ name: "{name}" {inputs} {output} }} {body} {ret} }} }}\n'


def written(text: str) -> dict[str, bool]:
    """What the walk says of each variable."""
    return {use.shared_name: use.written for use in variable_uses(parse(text))}


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
        """Protects Case, whose functions are a list, functions that are called as an op, and gradients of functions."""
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
        """Protects the interface: an input that nothing reads stays, and what computes a feed goes."""
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
        """Protects graphs of hundreds of thousands of nodes: a long chain is neither recursion nor quadratic."""
        graph = parse(variable("v") + node("n0", "Identity", "v"))
        for index in range(1, 30_000):
            graph.node.add(name=f"n{index}", op="Identity", input=[f"n{index - 1}"])
        graph.node.add(name="w", op="AssignVariableOp", input=["n29999", "x"])
        graph.node.add(name="x", op="Placeholder")
        pruned = prune(graph, ["w"])
        self.assertEqual(len(pruned.node), 30_003)
        self.assertTrue(variable_uses(pruned)[0].written)


class VariableUsesTest(unittest.TestCase):
    def test_shape_and_dtype(self) -> None:
        """Protects the errors about shapes: unknown rank and unknown dimensions are told from scalars."""
        text = variable("a") + variable("b", shape="unknown_rank: true") + variable("c", shape="dim { size: -1 }")
        uses = variable_uses(parse(text + variable("d", shape="")))
        self.assertEqual([use.shape for use in uses], [(2,), None, (-1,), ()])
        self.assertEqual([use.dtype for use in uses], [1, 1, 1, 1])

    def test_unknown_op_counts_as_a_write(self) -> None:
        """Protects results: of an op that nobody knows, the compiler is asked whether a read-only flag is wrong."""
        self.assertEqual(written(variable("a") + node("w", "SomeNewResourceOp", "a")), {"a": True})

    def test_control_inputs_carry_no_handle(self) -> None:
        """Protects from flags by order: running after a variable's handle is no use of it."""
        self.assertEqual(written(variable("a") + node("w", "SomeNewResourceOp", "^a")), {"a": False})

    def test_function_outputs_hand_variables_on(self) -> None:
        """Protects functions that return a handle which the caller writes."""
        text = (
            variable("a")
            + variable("b")
            + node("pick", "PartitionedCall", "a", "b", f='func { name: "second" }')
            + node("w", "AssignVariableOp", "pick", "x")
            + node("x", "Placeholder")
            + function("second", "p q", node("id", "Identity", "q"), returns="id:output:0", result="r")
        )
        self.assertEqual(written(text), {"a": False, "b": True})

    def test_loop_that_swaps_handles(self) -> None:
        """Protects loops whose operands change places: what one round reads the next one writes."""
        swap = 'library { function { signature { name: "swap" input_arg { name: "p" type: DT_RESOURCE } ' + (
            'input_arg { name: "q" type: DT_RESOURCE } output_arg { name: "r" type: DT_RESOURCE } '
            'output_arg { name: "s" type: DT_RESOURCE } } '
            'node_def { name: "w" op: "AssignVariableOp" input: "p" input: "c:output:0" } '
            'node_def { name: "c" op: "Const" } '
            'ret { key: "r" value: "q" } ret { key: "s" value: "p" } } }\n'
        )
        loop = node("loop", "While", "a", "b", cond='func { name: "go" }', body='func { name: "swap" }')
        self.assertEqual(
            written(variable("a") + variable("b") + loop + swap + function("go", "p q", "")), {"a": True, "b": True}
        )

    def test_recursive_function_ends(self) -> None:
        """Protects from an endless walk: a function may call itself."""
        text = (
            variable("a")
            + node("call", "PartitionedCall", "a", f='func { name: "again" }')
            + function(
                "again",
                "p",
                node("r", "ReadVariableOp", "p") + node("c", "PartitionedCall", "p", f='func { name: "again" }'),
            )
        )
        self.assertEqual(written(text), {"a": False})

    def test_unnamed_variables_get_a_name(self) -> None:
        """Protects tfcompile, which finds variables by `shared_name`: an empty one gets the node's, made unique."""
        graph = parse(variable("a", shared="") + variable("b", shared="a") + variable("c", shared="c"))
        name_variables(graph)
        self.assertEqual([n.attr["shared_name"].s for n in graph.node], [b"a_", b"a", b"c"])


class AssembleTest(unittest.TestCase):
    """Several entry points in one graph."""

    def entry(self, name: str, *nodes: str, shape: tuple[int | None, ...] = (None, 2)) -> Function:
        """An entry point that adds the variable `v` to its input `x`, and does what `nodes` do; `f` is its function."""
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
        """Names of all nodes."""
        return [n.name for n in whole.graph.node]

    def test_one_keeps_its_names(self) -> None:
        """Protects models of one function: nodes are called as the user called them, and what no fetch needs goes."""
        whole = assemble([self.entry("Run")])
        self.assertEqual(self.names(whole), ["x", "w", "effect", "y"])
        self.assertEqual((whole.entries[0].feeds, whole.entries[0].fetches), (["x"], ["y"]))
        self.assertIs(whole.of(whole.entries[0]), whole.graph)
        self.assertEqual(whole.sources, {"y": "model.py:3", "f/inside": "model.py:9"})

    def test_several_do_not_meet(self) -> None:
        """Protects from two entry points' nodes becoming one, and keeps variables and functions that they share."""
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
        """Protects what dims fixed: placeholders say it, an open batch stays open, and older inferences go."""
        (one,) = [n for n in assemble([self.entry("Run", shape=(None, 3))]).graph.node if n.name == "x"]
        self.assertEqual([dim.size for dim in one.attr["shape"].shape.dim], [-1, 3])
        self.assertFalse(one.attr["shape"].shape.unknown_rank)
        self.assertNotIn("_output_shapes", one.attr)


if __name__ == "__main__":
    unittest.main()
