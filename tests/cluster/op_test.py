"""Tests of the op that runs clusters: what it says if a graph and a library don't belong together."""

import unittest
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tests.stages.harness import ROOT
from tfaot.cluster.compare import Files, Loaded
from tfaot.core.errors import TfaotError
from tfaot.graph.attributes import types_attribute

_OP = "TfaotM8examples10Classifier"
_FLOAT = int(tf.float32.as_datatype_enum)


class OpTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        tf.load_op_library(str(ROOT / "examples/clusters/libclassifier.so"))

    def _refused(self, cluster: int, *values: np.ndarray, outputs: int = 1) -> str:
        """Returns the error of running a cluster of the image classifier."""
        graph = graph_pb2.GraphDef()
        node = graph.node.add(name="call", op=_OP)
        node.attr["cluster"].i = cluster
        node.attr["Tin"].CopyFrom(types_attribute([tf.as_dtype(value.dtype).as_datatype_enum for value in values]))
        node.attr["Tout"].CopyFrom(types_attribute([_FLOAT] * outputs))
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            inputs = [tf.constant(value) for value in values]
            node.input.extend(tensor.op.name for tensor in inputs)
            full = graph_pb2.GraphDef()
            full.CopyFrom(tf.compat.v1.get_default_graph().as_graph_def())
            full.node.extend(graph.node)
            (called,) = tf.import_graph_def(full, return_elements=["call:0"], name="again")
            with self.assertRaises(tf.errors.OpError) as raised:
                session.run(called)
        return str(raised.exception)

    def test_another_cluster(self) -> None:
        """A cluster that the library doesn't have is an error."""
        text = self._refused(7, np.zeros([1, 64, 64, 3], np.float32))
        self.assertIn("examples::Classifier has no cluster 7\n  found: 1 clusters\n  to do: load the library", text)

    def test_another_shape(self) -> None:
        """An input of another shape or dtype is an error, and isn't read."""
        text = self._refused(0, np.zeros([1, 8, 8, 3], np.float32))
        self.assertIn("examples::Classifier got float32[1, 8, 8, 3] for", text)
        self.assertIn("found: it takes float32[1, 64, 64, 3]", text)
        self.assertIn("got float64[1, 64, 64, 3]", self._refused(0, np.zeros([1, 64, 64, 3])))

    def test_another_number_of_inputs(self) -> None:
        """Another number of inputs or outputs is an error."""
        text = self._refused(0, *[np.zeros([1], np.float32)] * 2)
        self.assertIn("examples::Classifier::cluster_0 got 2 inputs for 1 outputs\n  found: it takes 1 for 1", text)
        self.assertIn("got 1 inputs for 2 outputs", self._refused(0, np.zeros([1, 64, 64, 3], np.float32), outputs=2))

    def test_no_library(self) -> None:
        """A file that isn't a library of ops is an error that names it."""
        path = str(Path(__file__))
        with self.assertRaises(TfaotError) as raised:
            Loaded(Files(path, "", "", "", ""))
        self.assertIn(f"can't load {path}", raised.exception.asked)


if __name__ == "__main__":
    unittest.main()
