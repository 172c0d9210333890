"""Tests of clusters for batches: which ops join them, that results are TensorFlow's, and what is refused."""

import os
import subprocess
import sys
import unittest
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tests.cluster.cutting import both, made
from tests.stages.harness import ROOT
from tfaot.graph.attributes import types_attribute

v1 = tf.compat.v1


class BatchesTest(unittest.TestCase):
    def test_rows(self) -> None:
        """Ops on open rows are one cluster, with sizes that follow from the rows, and compute the same for any number."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [None, 4], "x")
            text = v1.placeholder(tf.string, [None], "text")
            wide = tf.reshape(tf.sin(x), [tf.shape(text)[0] * 2, 2])
            back = tf.reshape(tf.exp(wide), [-1, 4]) + tf.zeros([tf.size(x) // 4, 4])
            lengths = tf.cast(tf.strings.length(text), tf.float32)
            cut = made(graph, [x, text], [back * lengths[:, tf.newaxis]], batched=True)
        self.assertEqual([cluster.batch for cluster in cut.found.clusters], ["the inputs"])
        self.assertEqual(cut.reason("StringLength"), "it computes on string")
        (part,) = cut.cut.parts
        self.assertEqual([edge.shape for edge in part.function.inputs], [(None,), (None, 4)])
        self.assertEqual([edge.shape for edge in part.function.outputs], [(None, 4)])
        theirs, ours = both(cut)
        for rows in (1, 3, 0, 70):
            values = [np.arange(rows * 4, dtype=np.float32).reshape(rows, 4), np.array(["ab"] * rows, object)]
            np.testing.assert_array_equal(theirs.step(values)[0], ours.step(values)[0])

    def test_two_batches(self) -> None:
        """Rows whose number a value decides are another batch, and get another cluster."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.int32, [None], "x")
            different, _ = tf.unique(x)
            y = tf.exp(tf.sin(tf.cast(x, tf.float32)))
            z = tf.exp(tf.cos(tf.cast(different, tf.float32)))
            cut = made(graph, [x], [y, z], batched=True)
        self.assertEqual({cluster.batch for cluster in cut.found.clusters}, {"the inputs", "Unique:0"})
        theirs, ours = both(cut)
        for values in ([3, 3, 5], [1], []):
            for expected, got in zip(*(run.step([np.array(values, np.int32)]) for run in (theirs, ours)), strict=True):
                np.testing.assert_array_equal(expected, got)

    def test_sizes_that_only_values_relate(self) -> None:
        """Two numbers of rows that are the same, which no inference shows, aren't taken for two batches: they stay open."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.int32, [None], "x")
            once, twice = (tf.cast(tf.unique(value)[0], tf.float32) for value in (x, x * 2))
            cut = made(graph, [x], [tf.exp(once) + tf.exp(twice), tf.sin(tf.cast(x, tf.float32))], batched=True)
        self.assertEqual(cut.operations, [["Cast", "Sin"], ["Mul"]])
        self.assertEqual(cut.reason("Exp"), "sizes aren't known")

    def test_without_batches(self) -> None:
        """Without batch sizes, open rows stay with TensorFlow."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [None, 4], "x")
            cut = made(graph, [x], [tf.exp(tf.sin(x))])
        self.assertEqual(cut.found.clusters, ())
        self.assertEqual(cut.reason("Sin"), "sizes aren't known")


def _called(inputs: Sequence[tf.Tensor]) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Adds a graph that calls the cluster of `orders` to the default one. Returns its copies of the inputs, and its result."""
    graph = graph_pb2.GraphDef()
    graph.CopyFrom(v1.get_default_graph().as_graph_def())
    node = graph.node.add(name="call", op="TfaotM8examples6Orders", input=[tensor.op.name for tensor in inputs])
    node.attr["cluster"].i = 0
    node.attr["Tin"].CopyFrom(types_attribute([tensor.dtype.as_datatype_enum for tensor in inputs]))
    node.attr["Tout"].CopyFrom(types_attribute([int(tf.float32.as_datatype_enum)]))
    names = [tensor.name for tensor in inputs]
    *fed, result = tf.import_graph_def(graph, return_elements=[*names, "call:0"], name="again")
    return fed, result


def count_threads(library: str) -> None:
    """Prints how many threads runs of the cluster have started: after some with few rows, and after some with many."""
    tf.load_op_library(library)
    with tf.Graph().as_default(), v1.Session() as session:
        inputs, result = _called([v1.placeholder(dtype, [None]) for dtype in (tf.int32, tf.float32, tf.float32)])
        session.run(
            [tf.identity(each) for each in inputs], {each: np.ones(1, each.dtype.as_numpy_dtype) for each in inputs}
        )
        before = len(os.listdir("/proc/self/task"))
        for rows in (3, 1_000_000):
            for _ in range(6):
                session.run(result, {tensor: np.ones(rows, tensor.dtype.as_numpy_dtype) for tensor in inputs})
            print(len(os.listdir("/proc/self/task")) - before)


class OrdersTest(unittest.TestCase):
    def test_threads(self) -> None:
        """Runs that are shorter than waking up threads start none. TFAOT_THREADS sets the number for all runs."""
        count = "import sys; from tests.cluster import batches_test; batches_test.count_threads(sys.argv[1])"

        def started(**environment: str) -> list[int]:
            run = subprocess.run(
                [sys.executable, "-c", count, str(ROOT / "examples/clusters/liborders.so")],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
                stdout=subprocess.PIPE,
                check=True,
                text=True,
            )
            return [int(count) for count in run.stdout.split()]

        self.assertEqual(started(), [0, len(os.sched_getaffinity(0)) - 1])
        self.assertEqual(started(TFAOT_THREADS="4"), [3, 3])

    def test_rows_differ(self) -> None:
        """Inputs of one cluster with different numbers of rows are an error, and aren't read."""
        tf.load_op_library(str(ROOT / "examples/clusters/liborders.so"))
        values = [np.zeros(3, np.int32), np.zeros(2, np.float32), np.zeros(3, np.float32)]
        with tf.Graph().as_default(), v1.Session() as session:
            _, result = _called([tf.constant(value) for value in values])
            with self.assertRaises(tf.errors.InvalidArgumentError) as raised:
                session.run(result)
        self.assertIn("examples::Orders got float32[2] for", str(raised.exception))
        self.assertIn("with any number of rows that all inputs have: 3", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
