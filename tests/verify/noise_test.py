"""Graphs with noise, on protos made by hand."""

from __future__ import annotations

import unittest
from typing import Any

from tfaot.core import environment

environment.prepare()

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow.core.framework import graph_pb2, types_pb2  # noqa: E402

from tfaot.core.session import session_config  # noqa: E402
from tfaot.verify.helpers import AMPLITUDE  # noqa: E402
from tfaot.verify.noise import Noisy, noisy, other_stream  # noqa: E402


class NoiseTest(unittest.TestCase):
    def test_every_result_of_a_function(self) -> None:
        """Protects tolerances: a function of many results returns all of them with noise."""
        graph = graph_pb2.GraphDef()
        function = graph.library.function.add()
        function.signature.name = "f"
        function.signature.input_arg.add(name="x", type=types_pb2.DT_FLOAT)
        for index in range(32):
            function.node_def.add(name=f"exp_{index}", op="Exp", input=["x"]).attr["T"].type = types_pb2.DT_FLOAT
            function.signature.output_arg.add(name=f"result_{index}", type=types_pb2.DT_FLOAT)
            function.ret[f"result_{index}"] = f"exp_{index}:y:0"
        (changed,) = [
            function
            for function in noisy(graph, precise=False).graph.library.function
            if function.signature.name == "f"
        ]
        self.assertEqual({value.split("_")[:2] == ["tfaot", "noise"] for value in changed.ret.values()}, {True})

    def test_streams(self) -> None:
        """Protects tolerances: lanes draw other noise than each other, in function bodies too, and the same every time."""
        graph = graph_pb2.GraphDef()
        graph.node.add(name="x", op="Placeholder").attr["dtype"].type = types_pb2.DT_FLOAT
        graph.node.add(name="y", op="Exp", input=["x"]).attr["T"].type = types_pb2.DT_FLOAT
        function = graph.library.function.add()
        function.signature.name = "f"
        function.signature.input_arg.add(name="x", type=types_pb2.DT_FLOAT)
        function.signature.output_arg.add(name="y", type=types_pb2.DT_FLOAT)
        function.node_def.add(name="exp", op="Exp", input=["x"]).attr["T"].type = types_pb2.DT_FLOAT
        function.ret["y"] = "exp:y:0"
        call = graph.node.add(name="f", op="StatefulPartitionedCall", input=["x"])
        call.attr["f"].func.name = "f"
        call.attr["Tin"].list.type.append(types_pb2.DT_FLOAT)
        call.attr["Tout"].list.type.append(types_pb2.DT_FLOAT)
        first = noisy(graph, precise=True)
        for tensor in ("y:0", "f:0"):
            results = [_run(variant, tensor) for variant in (first, first, other_stream(first))]
            self.assertTrue(np.array_equal(results[0], results[1]))
            self.assertTrue(np.all(results[0] != results[2]))

    def test_updates(self) -> None:
        """Protects tolerances of loops: updates of variables, which have no result, round their new values, also in functions."""

        @tf.function(input_signature=[tf.TensorSpec([64]), tf.TensorSpec([], tf.resource)], autograph=False)
        def twice(x: Any, handle: Any) -> Any:
            for update in (tf.raw_ops.AssignAddVariableOp, tf.raw_ops.AssignSubVariableOp):
                update(resource=handle, value=x)
            return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)

        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, [64], "x")
            handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[64], shared_name="v")
            start = tf.raw_ops.AssignVariableOp(
                resource=handle, value=tf.constant(np.linspace(1.0, 2.0, 64, dtype=np.float32))
            )
            with tf.control_dependencies([start]):
                update = tf.raw_ops.AssignSubVariableOp(resource=handle, value=x)
            with tf.control_dependencies([update]):
                read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32, name="read")
                with tf.control_dependencies([read]):
                    tf.identity(twice(x, handle), name="called")
        for precise in (True, False):
            made = noisy(graph.as_graph_def(), precise=precise)
            for tensor, most in (("read:0", 1.0), ("called:0", 2.0)):
                exact, moved = (_run(made, tensor, amplitude) for amplitude in (0.0, 1024.0))
                np.testing.assert_allclose(exact, np.linspace(1.0, 2.0, 64) - np.linspace(0.1, 1.0, 64), rtol=1e-6)
                error = np.abs(moved - exact) / 2.0**-25 / 1024
                self.assertGreater(error.mean(), 0.3)
                self.assertLess(error.max(), 5 * most)

    def test_optimizers(self) -> None:
        """Protects tolerances of training: an optimizer's update, which has no result, rounds the new value and the change."""

        @tf.function(input_signature=[tf.TensorSpec([64]), tf.TensorSpec([], tf.resource)], autograph=False)
        def called(x: Any, handle: Any) -> Any:
            tf.raw_ops.ResourceApplyGradientDescent(var=handle, alpha=1.0, delta=x)
            return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)

        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, [64], "x")
            handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[64], shared_name="v")
            # What is left is much smaller than what is subtracted.
            start = np.linspace(0.1, 1.0, 64) * (1 + 1e-4)
            with tf.control_dependencies(
                [tf.raw_ops.AssignVariableOp(resource=handle, value=tf.constant(start, tf.float32))]
            ):
                update = tf.raw_ops.ResourceApplyGradientDescent(var=handle, alpha=1.0, delta=x)
            with tf.control_dependencies([update]):
                tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32, name="read")
            with tf.control_dependencies(
                [tf.raw_ops.AssignVariableOp(resource=handle, value=tf.constant(start, tf.float32))]
            ):
                tf.identity(called(x, handle), name="called")
        for precise in (True, False):
            for tensor in ("read:0", "called:0"):
                exact, moved = (
                    _run(noisy(graph.as_graph_def(), precise=precise), tensor, factor) for factor in (0.0, 1024.0)
                )
                np.testing.assert_allclose(exact, 1e-4 * np.linspace(0.1, 1.0, 64), rtol=2e-3)
                error = np.abs(moved - exact) / 2.0**-25 / 1024
                self.assertTrue(1.0 < error.mean() < 6.0, (precise, tensor, error.mean()))


def _run(noisy_: Noisy, tensor: str, amplitude: float = 1.0) -> Any:
    """Returns a tensor's noisy values."""
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(noisy_.graph, name="")
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float64, shape=[], shared_name=AMPLITUDE)
        assign = tf.raw_ops.AssignVariableOp(resource=handle, value=tf.constant(amplitude, tf.float64))
    with tf.compat.v1.Session(graph=graph, config=session_config()) as session:
        session.run(assign)
        return session.run(noisy_.tensor(tensor), {"x:0": np.linspace(0.1, 1.0, 64)})


if __name__ == "__main__":
    unittest.main()
