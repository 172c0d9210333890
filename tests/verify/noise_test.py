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
        (changed,) = [each for each in noisy(graph, precise=False).graph.library.function if each.signature.name == "f"]
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
            results = [_run(each, tensor) for each in (first, first, other_stream(first))]
            self.assertTrue(np.array_equal(results[0], results[1]))
            self.assertTrue(np.all(results[0] != results[2]))


def _run(noisy_: Noisy, tensor: str) -> Any:
    """Returns a tensor's noisy values."""
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(noisy_.graph, name="")
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float64, shape=[], shared_name=AMPLITUDE)
        assign = tf.raw_ops.AssignVariableOp(resource=handle, value=tf.constant(1.0, tf.float64))
    with tf.compat.v1.Session(graph=graph, config=session_config()) as session:
        session.run(assign)
        return session.run(noisy_.tensor(tensor), {"x:0": np.linspace(0.1, 1.0, 64)})


if __name__ == "__main__":
    unittest.main()
