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
_SAMPLE = (np.zeros([128, 128, 3], np.uint8), np.zeros([64], np.float32), np.zeros([64], np.float32))
"""What the classifier's cluster takes: a sample of an image."""
_BILINEAR = 5
"""Says that the op takes the sample itself, for a resize that reads from the middle of pixels."""


class OpTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        tf.load_op_library(str(ROOT / "examples/clusters/libclassifier.so"))

    def _refused(self, cluster: int, *values: np.ndarray, outputs: int = 1, samples: tuple[int, ...] = ()) -> str:
        """Returns the error of running a cluster of the image classifier."""
        graph = graph_pb2.GraphDef()
        node = graph.node.add(name="call", op=_OP)
        node.attr["cluster"].i = cluster
        node.attr["Tin"].CopyFrom(types_attribute([tf.as_dtype(value.dtype).as_datatype_enum for value in values]))
        node.attr["Tout"].CopyFrom(types_attribute([_FLOAT] * outputs))
        node.attr["samples"].list.i.extend(samples)
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
        text = self._refused(7, *_SAMPLE)
        self.assertIn("examples::Classifier has no cluster 7\n  found: 1 clusters\n  to do: load the library", text)

    def test_another_shape(self) -> None:
        """An input of another shape or dtype is an error, and isn't read."""
        text = self._refused(0, _SAMPLE[0], _SAMPLE[1], np.zeros([8], np.float32))
        self.assertIn("examples::Classifier got float32[8] for", text)
        self.assertIn("found: it takes float32[64]", text)
        self.assertIn("got float64[64]", self._refused(0, _SAMPLE[0], _SAMPLE[1], np.zeros([64])))

    def test_another_image(self) -> None:
        """An image without pixels, or of another rank, dtype, or number of channels, is an error, and isn't read."""
        for shape, dtype in (
            ([0, 5, 3], "uint8"),
            ([5, 0, 3], "uint8"),
            ([1, 5, 5, 3], "uint8"),
            ([5, 5, 4], "uint8"),
            ([5, 5, 3], "float32"),
        ):
            with self.subTest(shape=shape, dtype=dtype):
                text = self._refused(0, np.zeros(shape, dtype), samples=(_BILINEAR,))
                self.assertIn(f"examples::Classifier got {dtype}[{', '.join(map(str, shape))}] for the image of", text)
                self.assertIn("found: it takes uint8[?, ?, 3], and neither size is zero\n  to do: feed an image", text)

    def test_another_number_of_inputs(self) -> None:
        """Another number of inputs or outputs is an error."""
        text = self._refused(0, *[np.zeros([1], np.float32)] * 2)
        self.assertIn("examples::Classifier::cluster_0 got 2 inputs for 1 outputs\n  found: it takes 3 for 1", text)
        self.assertIn("got 3 inputs for 2 outputs", self._refused(0, *_SAMPLE, outputs=2))

    def test_no_library(self) -> None:
        """A file that isn't a library of ops is an error that names it."""
        path = str(Path(__file__))
        with self.assertRaises(TfaotError) as raised:
            Loaded(Files(path, "", "", "", ""))
        self.assertIn(f"can't load {path}", raised.exception.asked)


if __name__ == "__main__":
    unittest.main()
