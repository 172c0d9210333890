"""The graph that passes see and change."""

from __future__ import annotations

import unittest
from typing import Any

import numpy as np

from tests.compile.passes.graphs import config_of, run
from tfaot.core import environment

environment.prepare()


class ProgramTest(unittest.TestCase):
    """The graph that passes see."""

    def program(self, graph: Any, config: Any) -> Any:
        """Returns what an entry point needs from a graph."""
        from tfaot.graph.program import Program

        return Program.of(graph.as_graph_def(), config)

    def test_edges_stay(self) -> None:
        """Unread inputs, variables that only another entry point reads, and outputs keep their nodes."""
        import tensorflow as tf

        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, [2], "x")
            tf.compat.v1.placeholder(tf.float32, [3], "unread")
            tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="v", name="v")
            tf.identity(tf.tanh(x), "y")
            tf.exp(x, "elsewhere")
        config = config_of(["x:0", "unread:0"], [np.ones(2, "float32"), np.ones(3, "float32")], ["y:0"])
        program = self.program(graph, config)
        self.assertEqual({*program.nodes()}, {"x", "unread", "v", "Tanh", "y"})
        self.assertEqual(program.kept(), {"x", "unread", "y"})

    def test_shapes_in_functions(self) -> None:
        """Protects loops that collectives changed: an edited function keeps no shapes, and has those that its arguments give."""
        import tensorflow as tf

        from tfaot.graph.functions import EditableFunction
        from tfaot.graph.splice import shapes_in

        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, [2, 3], "x")
            tf.identity(tf.function(lambda x: tf.reduce_sum(tf.sin(x), 0))(x), "y")
        program = self.program(graph, config_of(["x:0"], [np.ones((2, 3), "float32")], ["y:0"]))
        (function,) = program.graph.library.function
        edited = EditableFunction(function, {function.signature.name: function}).function("edited")
        self.assertEqual(shapes_in(program, edited, [(5, 7)])("Sum:0"), (7,))

    def test_order_of_effects(self) -> None:
        """What waits for a variable's update still does, and what waits only for values no longer does."""
        import tensorflow as tf

        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, [2], "x")
            handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="v", name="v")
            read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32, name="read")
            with tf.control_dependencies([read]):
                assign = tf.raw_ops.AssignAddVariableOp(resource=handle, value=x, name="assign")
            with tf.control_dependencies([assign, tf.constant([1.0], name="weights"), tf.tanh(x, "tanh")]):
                tf.identity(read, "y")
        program = self.program(graph, config_of(["x:0"], [np.ones(2, "float32")], ["y:0"]))
        self.assertEqual([*program.nodes()["y"].input], ["read", "^assign"])
        self.assertEqual([*program.nodes()["assign"].input], ["v", "x", "^read"])
        self.assertNotIn("tanh", program.nodes())

    def test_shapes(self) -> None:
        """Shapes follow from the feeds, including the batch size, whatever the graph leaves open."""
        import tensorflow as tf

        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, [None, 3], "x")
            y = tf.identity(tf.reshape(tf.matmul(x, tf.ones([3, 4])), [tf.shape(x)[0], 2, 2]), "y")
        self.assertEqual(y.shape.as_list(), [None, 2, 2])
        program = self.program(graph, config_of(["x:0"], [np.ones([5, 3], "float32")], ["y:0"]))
        self.assertEqual(program.tensors()["y:0"].shape, (5, 2, 2))
        self.assertEqual(program.tensors()["x:0"].shape, (5, 3))

    def test_changes(self) -> None:
        """New nodes have unique names and an origin. A node that becomes another keeps its users and control inputs."""
        import tensorflow as tf

        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, [2], "x0")
            with tf.control_dependencies(
                [tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="v", name="v")]
            ):
                y = tf.tanh(x, "y")
            tf.exp(y, "z")
        ones = np.ones(2, "float32")
        program = self.program(graph, config_of(["x0:0"], [ones], ["z:0", "y:0"]))
        first = program.constant("y/part", ones, origin="y")
        second = program.constant("y/part", ones, origin=first.name)
        self.assertEqual((first.name, second.name), ("y/part", "y/part_1"))
        self.assertEqual(program.origins, {"y/part": "y", "y/part_1": "y"})
        program.become(program.nodes()["y"], "AddV2", ["x0", second.name], T=np.dtype("float32"))
        self.assertEqual([*program.nodes()["y"].input], ["x0", "y/part_1", "^v"])
        program.prune()
        self.assertNotIn("y/part", program.nodes())
        z, y = run(program.graph, ["z:0", "y:0"], [ones])
        np.testing.assert_array_equal(y, ones + 1)
        np.testing.assert_allclose(z, np.exp(ones + 1), rtol=1e-6)


if __name__ == "__main__":
    unittest.main()
