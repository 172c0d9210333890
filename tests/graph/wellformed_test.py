"""Graphs that no TensorFlow writes are recognized, whatever else is in the file."""

from __future__ import annotations

import unittest
from collections.abc import Callable

from google.protobuf import text_format
from tensorflow.core.framework import graph_pb2

from tfaot.graph import wellformed

GRAPH = """
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
node { name: "c" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "value" value { tensor {
  dtype: DT_FLOAT tensor_shape { dim { size: 3 } } float_val: 1 } } } }
node { name: "call" op: "PartitionedCall" input: "x" input: "^c"
  attr { key: "Tin" value { list { type: DT_FLOAT } } } attr { key: "Tout" value { list { type: DT_FLOAT } } }
  attr { key: "f" value { func { name: "f" } } } }
library { function {
  signature { name: "f" input_arg { name: "a" type: DT_FLOAT } output_arg { name: "r" type: DT_FLOAT } }
  node_def { name: "n" op: "Neg" input: "a" attr { key: "T" value { type: DT_FLOAT } } }
  ret { key: "r" value: "n:y:0" }
} }
"""


class WellformedTest(unittest.TestCase):
    """A graph that is as it should be, and changes to it."""

    def problems(self, change: Callable[[graph_pb2.GraphDef], object]) -> str:
        """Returns the problems of a changed graph."""
        graph = text_format.Parse(GRAPH, graph_pb2.GraphDef())
        change(graph)
        return "; ".join(wellformed.problems(graph))

    def test_unchanged(self) -> None:
        """A graph with a function, a control input, and a constant of one repeated value has no problem."""
        self.assertEqual(self.problems(lambda graph: None), "")

    def test_operands(self) -> None:
        """Operands that have no form, or name nothing, are found, also in functions and in what these return."""
        self.assertIn("takes 'x:', which isn't", self.problems(lambda g: g.node[2].input.__setitem__(0, "x:")))
        self.assertIn("takes 'z', which doesn't exist", self.problems(lambda g: g.node[2].input.__setitem__(0, "z")))
        for damaged in ("n:out0", "n:y:", "^n"):
            self.assertIn(
                f"the result 'r' of the function f is {damaged!r}, which isn't a tensor's name",
                self.problems(lambda g, damaged=damaged: g.library.function[0].ret.__setitem__("r", damaged)),
            )
        body = "library.function[0]"
        self.assertIn(
            "takes 'q', which doesn't exist",
            self.problems(lambda g: g.library.function[0].node_def[0].input.__setitem__(0, "q")),
        )
        self.assertIn(
            "the result 'r' of the function f is 'n:z:0', which Neg doesn't have",
            self.problems(lambda g: g.library.function[0].ret.__setitem__("r", "n:z:0")),
            body,
        )
        self.assertIn(
            "the result 'r' of the function f has no value", self.problems(lambda g: g.library.function[0].ret.clear())
        )

    def test_cycles(self) -> None:
        """A node that waits for itself is found, in the graph and in a function. A loop of TensorFlow 1 is none."""

        def loop(graph: graph_pb2.GraphDef) -> None:
            graph.node.add(name="next", op="NextIteration", input=["merge"]).attr["T"].type = 1
            merge = graph.node.add(name="merge", op="Merge", input=["x", "next"])
            merge.attr["T"].type, merge.attr["N"].i = 1, 2

        self.assertEqual(self.problems(loop), "")
        self.assertIn("waits for itself", self.problems(lambda g: g.node[0].input.append("^call")))
        self.assertIn(
            "of the function f waits for itself",
            self.problems(lambda g: g.library.function[0].node_def[0].input.append("^n")),
        )

    def test_attributes(self) -> None:
        """Missing attributes, unknown dtypes, and the wrong number of operands are found."""
        self.assertIn("lacks the attribute 'dtype' of Placeholder", self.problems(lambda g: g.node[0].attr.clear()))
        self.assertIn("is the dtype 999", self.problems(lambda g: setattr(g.node[0].attr["dtype"], "type", 999)))
        self.assertIn(
            "takes 2 tensors, and PartitionedCall takes 1", self.problems(lambda g: g.node[2].input.insert(0, "c"))
        )

    def test_constants(self) -> None:
        """Constants whose values don't fit their shapes are found, and none is expanded to look."""

        def shape(size: int) -> Callable[[graph_pb2.GraphDef], object]:
            return lambda g: setattr(g.node[1].attr["value"].tensor.tensor_shape.dim[0], "size", size)

        self.assertIn("bytes in its shape [4611686018427387904]", self.problems(shape(2**62)))
        self.assertIn("has 0 values in its shape [0], and 1 in its value", self.problems(shape(0)))
        self.assertIn("has no shape", self.problems(shape(-2)))
        self.assertIn(
            "bytes in its shape [3], and 5",
            self.problems(lambda g: setattr(g.node[1].attr["value"].tensor, "tensor_content", b"12345")),
        )

    def test_names(self) -> None:
        """Two nodes of one name, and names that operands can't have, are found."""
        self.assertIn("two nodes are named 'x'", self.problems(lambda g: setattr(g.node[1], "name", "x")))
        graph = graph_pb2.GraphDef()
        graph.node.add(name="a:b", op="NoOp")
        self.assertEqual(wellformed.unreadable_operands(graph), ["a node is named 'a:b'"])


if __name__ == "__main__":
    unittest.main()
