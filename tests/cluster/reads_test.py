"""Tests of reads of what was just written: they keep the graph's order and join the cluster of the write."""

import unittest

import numpy as np
import tensorflow as tf

from tests.cluster.cutting import Made, both, made

v1 = tf.compat.v1
_X = np.array([0.5, -1.0, 2.0, 0.25], np.float32)


def _variable(name: str) -> tf.Variable:
    return v1.get_variable(name, initializer=np.ones(4, np.float32), use_resource=True)


class ReadsTest(unittest.TestCase):
    def _same(self, cut: Made) -> None:
        names = {node.attr["shared_name"].s.decode() for node in cut.nodes.uncut.node if node.op == "VarHandleOp"}
        theirs, ours = both(cut, {name: np.ones(4, np.float32) for name in names})
        for values in ([_X], [_X * 2]):
            for expected, found in zip(theirs.step(values), ours.step(values), strict=True):
                np.testing.assert_allclose(expected, found, rtol=1e-5)
            for name, expected in theirs.variables().items():
                np.testing.assert_allclose(expected, ours.variables()[name], rtol=1e-5, err_msg=name)

    def _writes(self, cut: Made) -> int:
        return sum(node.op == "AssignVariableOp" for node in cut.cut.graph.node)

    def test_written_then_read(self) -> None:
        """What is computed from a value that was just written shares a cluster with what computes it."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [4], "x")
            w = _variable("w")
            with tf.control_dependencies([w.assign(tf.sin(x) * w)]):
                cut = made(graph, [x], [tf.tanh(w.read_value()) + 1.0], least=2)
        self.assertEqual(len(cut.found.clusters), 1)
        self.assertEqual(self._writes(cut), 1)
        self._same(cut)

    def test_unread_write(self) -> None:
        """Of two writes with nothing but a read of the first between them, TensorFlow makes the second."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [4], "x")
            w = _variable("w")
            with tf.control_dependencies([w.assign(tf.sin(x) * w)]):
                first = w.read_value()
            with tf.control_dependencies([w.assign(tf.cos(first) + x)]):
                cut = made(graph, [x], [tf.identity(first)], least=2)
        self.assertEqual(self._writes(cut), 1)
        self._same(cut)

    def test_write_that_something_else_reads(self) -> None:
        """A write stays if an op of TensorFlow uses the variable before the next write."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [4], "x")
            w = _variable("w")
            with tf.control_dependencies([w.assign(tf.sin(x) * w)]):
                rows = tf.raw_ops.ResourceGather(resource=w.handle, indices=[1, 2], dtype=tf.float32)
            with tf.control_dependencies([rows]):
                second = w.assign(tf.cos(x) + x)
            with tf.control_dependencies([second]):
                cut = made(graph, [x], [rows * 1.0], least=2)
        self.assertEqual(self._writes(cut), 2)
        self._same(cut)

    def test_update_in_place(self) -> None:
        """A read behind an update that TensorFlow makes in place reads the variable, not the value written before."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [4], "x")
            w = _variable("w")
            with tf.control_dependencies([w.assign(tf.sin(x) * w)]):
                update = tf.raw_ops.ResourceScatterAdd(resource=w.handle, indices=[1], updates=[5.0])
            with tf.control_dependencies([update]):
                cut = made(graph, [x], [tf.tanh(w.read_value()) + 1.0], least=2)
        self.assertIn("ReadVariableOp", {node.op for node in cut.cut.graph.node})
        self._same(cut)

    def test_effects_wait(self) -> None:
        """An output behind a read that was forwarded still waits for the write, so a run of only that output makes it."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [4], "x")
            w = _variable("w")
            with tf.control_dependencies([w.assign(tf.sin(x) * w)]):
                cut = made(graph, [x], [w.read_value()], least=2)
        self.assertEqual(self._writes(cut), 1)
        self._same(cut)


if __name__ == "__main__":
    unittest.main()
