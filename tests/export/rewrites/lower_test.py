"""Ops that XLA lacks, in graphs that users write."""

from __future__ import annotations

import unittest
from pathlib import Path

from tests.stages.harness import StageTest
from tfaot.core.errors import TfaotError


class LowerTest(StageTest):
    """Models that TensorFlow runs, but that the compiler would refuse as they are."""

    def test_waiting_for_an_input(self) -> None:
        """An op with a control dependency on an input compiles, although tfcompile doesn't know such dependencies on feeds."""
        exported = self.export(
            """\
import tensorflow as tf


@tf.function(input_signature=[tf.TensorSpec([2], tf.float32, "x")])
def model(x):
    with tf.control_dependencies([x]):
        return tf.identity(tf.constant([1.0, 2.0])) + x
"""
        )
        self.compile(exported)

    def test_gather_nd_from_a_variable(self) -> None:
        """`tf.gather_nd` from a fed variable compiles, at top level and in a branch, though XLA has no such op on variables."""
        exported = self.export(
            """\
import tensorflow as tf

table = tf.Variable([[1.0, 2.0], [3.0, 4.0]])


@tf.function(input_signature=[tf.TensorSpec([3, 1], tf.int32, "at")])
def model(at):
    rows = tf.raw_ops.ResourceGatherNd(resource=table.handle, indices=at, dtype=tf.float32)
    more = tf.cond(
        at[0, 0] > 0,
        lambda: tf.raw_ops.ResourceGatherNd(resource=table.handle, indices=at, dtype=tf.float32),
        lambda: tf.zeros([3, 2]),
    )
    return rows + more
""",
            frozen=(),
        )
        self.compile(exported)
        self.assertEqual([variable.name for variable in exported.manifest.variables], ["Variable"])

    def test_spelled_out(self) -> None:
        """Ops that XLA computes wrongly are replaced wherever they are: at top level, in functions, and in loops."""
        from tensorflow.core.framework import graph_pb2

        exported = self.export(
            """\
import tensorflow as tf


@tf.function
def step(x):
    return tf.quantization.fake_quant_with_min_max_args(x, min=-1.3, max=2.1) + 1.0


@tf.function(input_signature=[tf.TensorSpec([3], tf.float32, "x"), tf.TensorSpec([], tf.int32, "n")])
def model(x, n):
    z = tf.complex(x, x + 1)
    (gradient,) = tf.gradients(tf.math.real(tf.sqrt(z) + tf.math.rsqrt(z) + tf.math.reciprocal(z)), [z])
    for _ in tf.range(n):
        x = step(x)
    return tf.quantization.fake_quant_with_min_max_vars(x, -1.7, 2.9), gradient
"""
        )
        graph = graph_pb2.GraphDef.FromString(Path(exported.path("graph")).read_bytes())
        ops = {node.op for nodes in [graph.node, *(f.node_def for f in graph.library.function)] for node in nodes}
        self.assertEqual([op for op in ops if op.startswith("FakeQuant") or op.endswith("Grad")], [])
        self.compile(exported)

    def test_softmax_of_products(self) -> None:
        """Products are limited to the largest, from which XLA would subtract them unrounded, and nothing else is."""
        from tensorflow.core.framework import graph_pb2

        exported = self.export(
            """\
import tensorflow as tf


@tf.function(input_signature=[tf.TensorSpec([3, 5], tf.float32, "x"), tf.TensorSpec([], tf.int32, "n")])
def model(x, n):
    for _ in tf.range(n):
        x = tf.nn.softmax(x * 0.3, name="loop")
    y = x * x
    less = tf.subtract(y, tf.stop_gradient(tf.reduce_max(y, -1, keepdims=True)), name="less")
    exact = tf.nn.softmax(x * 0.25, name="exact") + tf.nn.softmax(x + y, name="sum") - tf.reduce_max(x, -1, keepdims=True)
    loss = tf.nn.sparse_softmax_cross_entropy_with_logits([0, 1, 2], tf.reshape(x * n_(n), [3, 5]), name="loss")
    return less + exact, tf.nn.log_softmax(tf.transpose(tf.square(x)), axis=0, name="log"), loss


def n_(n):
    return tf.cast(n, tf.float32)
"""
        )
        graph = graph_pb2.GraphDef.FromString(Path(exported.path("graph")).read_bytes())
        nodes = [node for nodes in [graph.node, *(f.node_def for f in graph.library.function)] for node in nodes]
        self.assertEqual(sorted(node.name for node in nodes if node.op == "Softmax"), ["exact", "sum"])
        limited = {node.name.partition("/")[0] for node in nodes if node.op == "Minimum"}
        self.assertEqual(len(limited), 4)
        self.compile(exported)

    def test_bins(self) -> None:
        """Counts with as many bins at least as at most compile, at top level and in loops, and others are an error."""
        exported = self.export(
            """\
import tensorflow as tf


@tf.function(input_signature=[tf.TensorSpec([6], tf.int32, "x"), tf.TensorSpec([], tf.int32, "n")])
def model(x, n):
    counts = tf.math.bincount(x, minlength=5, maxlength=5)
    for _ in tf.range(n):
        counts += tf.math.bincount(x, minlength=9, maxlength=5)
    return counts
"""
        )
        self.compile(exported)
        with self.assertRaisesRegex(TfaotError, "determine the size of 1 output"):
            self.compile(
                self.export(
                    """\
import tensorflow as tf


@tf.function(input_signature=[tf.TensorSpec([6], tf.int32, "x")])
def model(x):
    return tf.math.bincount(x, minlength=4, maxlength=5)
"""
                )
            )

    def test_what_nothing_needs(self) -> None:
        """A loop over `tf.range` of an input compiles in a function, too. XLA would refuse the range, which nothing reads."""
        exported = self.export(
            """\
import tensorflow as tf


@tf.function
def inner(x, n):
    for _ in tf.range(n):
        x = tf.sin(x)
    return x


@tf.function(input_signature=[tf.TensorSpec([3], tf.float32, "x"), tf.TensorSpec([], tf.int32, "n")])
def model(x, n):
    return inner(x, n)
"""
        )
        self.compile(exported)

    def test_calls_to_keep(self) -> None:
        """A slice in a loop compiles at a place that a call computes, by linear algebra, though the call isn't to be inlined."""
        exported = self.export(
            """\
import tensorflow as tf


@tf.function(jit_compile=True)
def place(x, y):
    return tf.argmax(tf.linalg.eigvalsh(x), output_type=tf.int32), tf.reduce_sum(y)


@tf.function(input_signature=[tf.TensorSpec([8, 8], tf.float32, "x"), tf.TensorSpec([], tf.int32, "n")])
def model(x, n):
    y = x[0]
    for _ in tf.range(n):
        start, total = place(x, y)
        start -= 1
        y = tf.concat([tf.slice(y, [tf.where(start < 0, start + 1, start)], [2]) + total, y[2:]], 0)
    return y
"""
        )
        self.compile(exported)

    def test_disable_copy_on_read(self) -> None:
        """Settings in restored models for how variables are read don't stop the compiler."""
        exported = self.export(
            """\
import tensorflow as tf

scale = tf.Variable(2.0)


@tf.function(input_signature=[tf.TensorSpec([2], tf.float32, "x")])
def model(x):
    tf.raw_ops.DisableCopyOnRead(resource=scale.handle)
    return x * scale
""",
            frozen=(),
        )
        self.compile(exported)


if __name__ == "__main__":
    unittest.main()
