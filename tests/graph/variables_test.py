"""What a run does with each variable, on handwritten protos."""

from __future__ import annotations

import unittest

from tfaot.core import environment

environment.prepare()

from tests.graph.protos import function, node, parse, variable  # noqa: E402
from tfaot.graph.variables import name_variables, variable_uses  # noqa: E402


def written(text: str) -> dict[str, bool]:
    """Returns the analysis's verdict on each variable."""
    return {use.shared_name: use.written for use in variable_uses(parse(text))}


class VariableUsesTest(unittest.TestCase):
    def test_shape_and_dtype(self) -> None:
        """Protects errors about shapes: unknown rank and unknown dimensions are distinguished from scalars."""
        text = variable("a") + variable("b", shape="unknown_rank: true") + variable("c", shape="dim { size: -1 }")
        uses = variable_uses(parse(text + variable("d", shape="")))
        self.assertEqual([use.shape for use in uses], [(2,), None, (-1,), ()])
        self.assertEqual([use.dtype for use in uses], [1, 1, 1, 1])

    def test_unknown_op_counts_as_a_write(self) -> None:
        """Protects results: for an unknown op, the compiler decides whether a read-only flag is wrong."""
        self.assertEqual(written(variable("a") + node("w", "SomeNewResourceOp", "a")), {"a": True})

    def test_control_inputs_carry_no_handle(self) -> None:
        """Protects against flags from ordering: running after a variable's handle doesn't use it."""
        self.assertEqual(written(variable("a") + node("w", "SomeNewResourceOp", "^a")), {"a": False})

    def test_function_outputs_hand_variables_on(self) -> None:
        """Protects functions that return a handle that the caller writes."""
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
        """Protects loops with swapped operands: one iteration reads what the next one writes."""
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
        """Protects against an endless traversal: a function can call itself."""
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
        """Protects tfcompile, which finds variables by `shared_name`: an empty one becomes the node's name, made unique."""
        graph = parse(variable("a", shared="") + variable("b", shared="a") + variable("c", shared="c"))
        name_variables(graph)
        self.assertEqual([n.attr["shared_name"].s for n in graph.node], [b"a_", b"a", b"c"])

    def test_results_of_a_function_that_is_an_op(self) -> None:
        """Protects functions that are called as ops: each of their results has its own name, and so a port."""
        swap = (
            'library { function { signature { name: "swap" '
            + " ".join(f'input_arg {{ name: "{arg}" type: DT_RESOURCE }}' for arg in "pq")
            + " ".join(f' output_arg {{ name: "{arg}" type: DT_RESOURCE }}' for arg in "rs")
            + ' } ret { key: "r" value: "q" } ret { key: "s" value: "p" } } }\n'
        )
        outer = function("outer", "p q", node("both", "swap", "p", "q"), returns="both:s:0", result="r")
        call = node("call", "PartitionedCall", "a", "b", f='func { name: "outer" }')
        text = variable("a") + variable("b") + call + node("w", "SomeNewResourceOp", "call") + swap + outer
        self.assertEqual(written(text), {"a": True, "b": False})

    def test_operands_before_those_of_the_function(self) -> None:
        """Protects from reading operands as the wrong arguments: some calls take a place or a predicate first."""
        write = function("write", "p", node("w", "SomeNewResourceOp", "p"))
        for call in (
            node("call", "RemoteCall", "place", "a", f='func { name: "write" }'),
            node(
                "call", "If", "place", "a", then_branch='func { name: "write" }', else_branch='func { name: "write" }'
            ),
        ):
            self.assertEqual(written(variable("a") + node("place", "Placeholder") + call + write), {"a": True})


if __name__ == "__main__":
    unittest.main()
