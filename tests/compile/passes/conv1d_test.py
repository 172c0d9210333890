"""conv1d: which convolutions are rewritten, and their results."""

from __future__ import annotations

import unittest
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.compile.passes.graphs import Array, PassTest

NAME = "conv1d"
RNG = np.random.default_rng(23)


def normal(*shape: int, dtype: str = "float32") -> Array:
    """Returns values from a normal distribution."""
    return RNG.standard_normal(shape).astype(dtype)


def padded(x: Any, *amounts: Sequence[int]) -> Any:
    """Returns a tensor with zeros around some of its axes."""
    import tensorflow as tf

    return tf.pad(x, list(amounts))


def between(x: Any, block: int, around: Sequence[int], crops: Sequence[int], one: int = 1, **options: Any) -> Any:
    """Returns a Conv1D of three taps as TensorFlow writes one with dilation, with parts that can differ."""
    import tensorflow as tf

    batch = tf.space_to_batch_nd(x, [block], [around])
    options = {"strides": 1, "padding": "VALID"} | options
    y = tf.nn.conv2d(tf.expand_dims(batch, 1), normal(1, 3, 6, 5, dtype=x.dtype.name), **options)
    return tf.raw_ops.BatchToSpaceND(input=tf.squeeze(y, [one]), block_shape=[block], crops=[crops])


class Conv1dTest(PassTest):
    """The pass on graphs with a Conv1D."""

    def test_dilated(self) -> None:
        """Dilated convolutions change, whatever pads them, in both float types."""
        import tensorflow as tf

        for dtype in ("float32", "float64"):
            for dilation in (2, 3, 40):
                for padding in ("SAME", "VALID"):
                    for taps in (2, 3, 4):
                        kernel = normal(taps, 6, 5, dtype=dtype)
                        size = 17 if padding == "SAME" else 17 + 3 * dilation
                        self.assertEqual(
                            self.rewritten(
                                NAME,
                                lambda x, k=kernel, p=padding, d=dilation: tf.nn.convolution(x, k, 1, p, None, d),
                                normal(2, size, 6, dtype=dtype),
                            ),
                            1,
                        )

    def test_causal(self) -> None:
        """Padding before a convolution becomes a part of it, with and without dilation or stride."""
        import tensorflow as tf

        kernel = normal(3, 6, 5)
        for dilation, stride in ((1, 1), (1, 2), (4, 1)):
            self.assertEqual(
                self.rewritten(
                    NAME,
                    lambda x, d=dilation, s=stride: tf.nn.convolution(
                        padded(x, [0, 0], [2 * d, 1], [0, 0]), kernel, s, "VALID", None, d
                    ),
                    normal(2, 19, 6),
                ),
                1,
            )
        self.assertEqual(
            self.rewritten(
                NAME,
                lambda x: tf.nn.convolution(padded(x, [0, 0], [5, 2], [0, 0]), kernel, 1, "SAME", None, 3),
                normal(2, 19, 6),
            ),
            1,
        )
        zero = np.float32(0)
        self.assertEqual(
            self.rewritten(
                NAME,
                lambda x: tf.nn.conv1d(
                    tf.raw_ops.PadV2(input=x, paddings=[[0, 0], [2, 0], [0, 0]], constant_values=zero),
                    kernel,
                    1,
                    "VALID",
                ),
                normal(2, 19, 6),
            ),
            1,
        )

    def test_other_padding(self) -> None:
        """Padding with other values, of other axes, or beside the convolution's own stays."""
        import tensorflow as tf

        kernel = normal(3, 6, 5)
        for build in (
            lambda x: tf.nn.conv1d(tf.pad(x, [[0, 0], [2, 0], [0, 0]], constant_values=1.0), kernel, 1, "VALID"),
            lambda x: tf.nn.conv1d(tf.pad(x, [[0, 0], [2, 0], [0, 0]], "REFLECT"), kernel, 1, "VALID"),
            lambda x: tf.nn.conv1d(padded(x, [0, 1], [2, 0], [0, 0]), kernel, 1, "VALID"),
            lambda x: tf.nn.conv1d(padded(x[..., :5], [0, 0], [2, 0], [0, 1]), kernel, 1, "VALID"),
            lambda x: tf.nn.conv1d(padded(x, [0, 0], [2, 0], [0, 0]), kernel, 1, "SAME"),
            lambda x: tf.nn.conv1d(x, kernel, 1, "VALID"),
        ):
            self.assertEqual(self.rewritten(NAME, build, normal(2, 19, 6)), 0)

    def test_other_forms(self) -> None:
        """Crops count as negative padding. Other blocks, strides, padding, and axes aren't a dilation."""
        import tensorflow as tf

        x = normal(2, 18, 6)
        self.assertEqual(self.rewritten(NAME, lambda x: between(x, 3, [3, 6], [2, 5]), x), 1)
        self.assertEqual(self.rewritten(NAME, lambda x: between(x, 3, [3, 3], [4, 0]), x), 0)
        self.assertEqual(self.rewritten(NAME, lambda x: between(x, 3, [3, 3], [0, 4]), x), 0)
        self.assertEqual(self.rewritten(NAME, lambda x: between(x, 3, [3, 3], [0, 0], padding="SAME"), x), 0)
        self.assertEqual(self.rewritten(NAME, lambda x: between(x, 3, [3, 3], [0, 0], strides=2), x), 0)
        self.assertEqual(self.rewritten(NAME, lambda x: between(x, 3, [9, 9], [0, 0], dilations=[1, 2]), x), 0)
        self.assertEqual(self.rewritten(NAME, lambda x: between(x, 6, [0, 0], [0, 0], 2), x), 0)

        def other_block(x: Any) -> Any:
            batch = tf.space_to_batch_nd(x, [4], [[0, 2]])
            y = tf.squeeze(tf.nn.conv2d(tf.expand_dims(batch, 1), normal(1, 3, 6, 5), 1, "VALID"), [1])
            return tf.raw_ops.BatchToSpaceND(input=y, block_shape=[2], crops=[[0, 0]])

        def upright(x: Any) -> Any:
            batch = tf.space_to_batch_nd(x, [2], [[0, 0]])
            y = tf.squeeze(tf.nn.conv2d(tf.expand_dims(batch, 2), normal(3, 1, 6, 5), 1, "VALID"), [2])
            return tf.raw_ops.BatchToSpaceND(input=y, block_shape=[2], crops=[[0, 0]])

        def upright_causal(x: Any) -> Any:
            return tf.nn.conv2d(tf.expand_dims(padded(x, [0, 0], [2, 0], [0, 0]), 2), normal(3, 1, 6, 5), 1, "VALID")

        def ends_elsewhere(x: Any) -> Any:
            batch = tf.space_to_batch_nd(x, [2], [[0, 0]])
            return tf.nn.conv1d(batch, normal(3, 6, 5), 1, "VALID") * 2.0

        for build in (other_block, upright, upright_causal, ends_elsewhere):
            self.assertEqual(self.rewritten(NAME, build, x), 0)

    def test_seen(self) -> None:
        """A value between the ops that something else uses, or that is an output, keeps them."""
        import tensorflow as tf

        kernel = normal(3, 6, 5)

        def causal(x: Any) -> Any:
            longer = padded(x, [0, 0], [2, 0], [0, 0])
            return [tf.nn.conv1d(longer, kernel, 1, "VALID"), longer]

        def dilated(x: Any, other: bool) -> Any:
            batch = tf.space_to_batch_nd(x, [2], [[0, 0]])
            y = tf.nn.conv1d(batch, kernel, 1, "VALID")
            result = tf.raw_ops.BatchToSpaceND(input=y, block_shape=[2], crops=[[0, 0]])
            return [result, y if other else batch * 2.0]

        def gradient(x: Any) -> Any:
            trained = tf.constant(kernel) * x[0, 0, 0]
            y = tf.nn.convolution(padded(x, [0, 0], [4, 0], [0, 0]), trained, 1, "VALID", None, 2)
            return [y, tf.gradients(tf.reduce_sum(y * y), trained)[0]]

        for build in (causal, lambda x: dilated(x, True), lambda x: dilated(x, False), gradient):
            self.assertEqual(self.rewritten(NAME, build, normal(2, 18, 6)), 0)

    def test_other_dtypes(self) -> None:
        """Half precision stays."""
        import tensorflow as tf

        x, kernel = normal(2, 18, 6, dtype="float16"), normal(3, 6, 5, dtype="float16")
        self.assertEqual(self.rewritten(NAME, lambda x: tf.nn.convolution(x, kernel, 1, "SAME", None, 2), x), 0)

    def test_batch_norm_after(self) -> None:
        """Batch norm after a dilated convolution can fold into its kernel afterwards."""
        import tensorflow as tf

        from tests.compile.passes.graphs import config_of
        from tfaot.compile import table

        x = normal(2, 18, 6)
        with tf.Graph().as_default() as graph:
            given = tf.compat.v1.placeholder(x.dtype, x.shape, "x0")
            y = tf.nn.convolution(given, normal(3, 6, 5), 1, "SAME", None, 2) * normal(5) + normal(5)
        config = config_of(["x0:0"], [x], [y.name])
        for passes, want in ((["fold_batch_norm"], 0), (["conv1d", "fold_batch_norm"], 1)):
            self.assertEqual(table.apply(graph.as_graph_def(), config, passes).places["fold_batch_norm"], want)


if __name__ == "__main__":
    unittest.main()
