"""The search for the node that crashes the compiler."""

from __future__ import annotations

import tempfile
import unittest
from typing import Any

from tests.stages.harness import StageTest
from tfaot.core import isolate
from tfaot.core.errors import TfaotError


class _Died(TfaotError):
    """The compiler crashed."""


def shared_body() -> Any:
    """Returns a graph that crashes TensorFlow 2.21's compiler: two calls of a function whose loop reads a variable."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [4], "x")
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[4], shared_name="v", name="v")

        @tf.function
        def inner(value: Any, handle: Any) -> Any:
            for _ in tf.range(3):
                value += tf.gather(tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32), [1, 0, 3, 2])
            return value

        with tf.name_scope("first"):
            first = inner(x, handle)
        with tf.name_scope("second"):
            second = inner(x * 2.0, handle)
        tf.identity(tf.tanh(first + second), "out")
    return graph.as_graph_def()


def config_of(*fetches: str) -> Any:
    """Returns a config with `x` and the variable `v`, with 4 floats each."""
    from google.protobuf import text_format
    from tensorflow.compiler.tf2xla import tf2xla_pb2

    shape = "shape { dim { size: 4 } } type: DT_FLOAT"
    feed = f'feed {{ id {{ node_name: "x" }} name: "feed" {shape} }}'
    variable = f'variable {{ node_name: "v" name: "variable" {shape} readonly: true }}'
    fetched = "".join(f'fetch {{ id {{ node_name: "{name}" }} name: "{name}" shape {{}} }}' for name in fetches)
    return text_format.Parse(feed + variable + fetched, tf2xla_pb2.Config())


class FindTest(StageTest):
    """The search by bisection."""

    def find(self, graph: Any, config: Any, fatal: str = "", **limits: Any) -> Any:
        """Searches with the real compiler, or with one that crashes on a node with the given name."""
        from tfaot.export import verdict
        from tfaot.tfcompile import search

        def dies(part: Any, asked: Any) -> bool:
            if fatal:
                return any(node.name == fatal for node in part.node)
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                try:
                    isolate.run_isolated(
                        lambda: verdict.complaint(folder, part.SerializeToString(), asked),
                        what="compiling",
                        crashed=lambda how, log: _Died(how, do=log),
                    )
                except _Died:
                    return True
            return False

        return search.find(graph, config, dies, **limits)

    def test_real(self) -> None:
        """A real crash is found: of two calls, each of which compiles alone, the second one is named."""
        graph = isolate.run_isolated(shared_body, what="building")
        node = self.find(graph, config_of("out"))
        self.assertIsNotNone(node)
        self.assertEqual((node.node, node.others), ("second/StatefulPartitionedCall", ()))
        self.assertLessEqual(node.tries, 6)
        self.assertIsNone(self.find(graph, config_of("first/StatefulPartitionedCall")))

    def test_bounds(self) -> None:
        """When time or tries run out, the remaining nodes are named. 200 nodes take about 8 tries."""
        from tensorflow.core.framework import graph_pb2, types_pb2

        graph = graph_pb2.GraphDef()
        graph.node.add(name="x", op="Placeholder").attr["dtype"].type = types_pb2.DT_FLOAT
        for index in range(200):
            node = graph.node.add(name=f"n{index}", op="Tanh", input=[f"n{index - 1}" if index else "x"])
            node.attr["T"].type = types_pb2.DT_FLOAT
        for index in range(0, 200, 67):
            found = self.find(graph, config_of("n199"), fatal=f"n{index}")
            self.assertEqual((found.node, found.others), (f"n{index}", ()))
            self.assertLessEqual(found.tries, 10)
        found = self.find(graph, config_of("n199"), fatal="n70", tries=4)
        self.assertEqual((found.tries, found.node, found.others[0], len(found.others)), (4, "n99", "n50", 49))
        found = self.find(graph, config_of("n199"), fatal="n70", seconds=0)
        self.assertEqual((found.tries, found.node, len(found.others)), (2, "n199", 199))


if __name__ == "__main__":
    unittest.main()
