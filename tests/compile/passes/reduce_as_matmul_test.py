"""reduce_as_matmul: which sums and means become products, and their results."""

from __future__ import annotations

import math
import unittest
from typing import Any

import numpy as np

from tests.compile.passes.graphs import Array, PassTest

NAME = "reduce_as_matmul"
RNG = np.random.default_rng(13)


def normal(*shape: int, dtype: str = "float32") -> Array:
    """Returns values from a normal distribution."""
    return RNG.standard_normal(shape).astype(dtype)


class ChannelSumsTest(PassTest):
    """The pass on graphs with sums and means."""

    def reduced(self, x: Array, axes: Any, keepdims: bool = False, rtol: float = 1e-6) -> int:
        """Returns how many of a sum and a mean along axes the pass changes. Neither changes in value."""
        import tensorflow as tf

        return self.rewritten(
            NAME,
            lambda x: [tf.reduce_sum(x, axes, keepdims), tf.reduce_mean(x, axes, keepdims) * 3],
            x,
            rtol=rtol,
        )

    def test_images(self) -> None:
        """Images of many, few, and a prime number of pixels, with and without keepdims, in both float types."""
        for shape in ((1, 56, 56, 24), (3, 14, 14, 16), (2, 4, 4, 9), (2, 3, 3, 40), (1, 1, 97, 10), (2, 31, 37, 11)):
            for keepdims in (False, True):
                self.assertEqual(self.reduced(normal(*shape), [1, 2], keepdims), 2, shape)
        self.assertEqual(self.reduced(normal(2, 7, 7, 20), [-2, 1]), 2)
        self.assertEqual(self.reduced(normal(2, 100, 20), 1), 2)
        self.assertEqual(self.reduced(normal(2, 6, 5, 4, 20), [1, 2, 3]), 2)
        self.assertEqual(self.reduced(normal(2, 30, 30, 10, dtype="float64"), [1, 2], rtol=1e-15), 2)

    def test_batches(self) -> None:
        """Sums over all axes but the last, as batch norm has them, in both float types, and a prime number of rows."""
        for shape in ((32, 8, 8, 32), (3, 14, 14, 12), (128, 9), (1, 521, 8), (2, 4, 8, 8, 16)):
            axes = list(range(len(shape) - 1))
            for keepdims in (False, True):
                self.assertEqual(self.reduced(normal(*shape), axes, keepdims), 2, shape)
        self.assertEqual(self.reduced(normal(600, 8), 0), 2)
        self.assertEqual(self.reduced(normal(600, 8), -2), 2)
        self.assertEqual(self.reduced(normal(8, 8, 9, 10, dtype="float64"), [0, 1, 2], rtol=1e-15), 2)

    def test_biases(self) -> None:
        """The gradient of a bias is such a sum, unless the channels come first."""
        import tensorflow as tf

        def gradient(x: Any, data_format: str) -> Any:
            return tf.raw_ops.BiasAddGrad(out_backprop=x, data_format=data_format)

        self.assertEqual(self.rewritten(NAME, lambda x: gradient(x, "NHWC"), normal(4, 12, 12, 8)), 1)
        self.assertEqual(self.rewritten(NAME, lambda x: gradient(x, "NHWC"), normal(1, 8, 12, 8)), 0)
        self.assertEqual(self.rewritten(NAME, lambda x: gradient(x, "NCHW"), normal(4, 12, 12, 8), jit=True), 0)

    def test_stays(self) -> None:
        """Other axes, few rows, pixels, or channels, and other dtypes and ops don't change."""
        import tensorflow as tf

        image = normal(4, 14, 14, 12)
        for axes in ([1], [2], [1, 2, 3], [3], [0], [0, 1], []):
            self.assertEqual(self.reduced(image, axes), 0, axes)
        for shape in ((4, 2, 3, 12), (4, 14, 14, 7), (0, 14, 14, 12), (14, 12)):
            self.assertEqual(self.reduced(normal(*shape), list(range(1, len(shape) - 1))), 0, shape)
        for shape in ((127, 12), (1024, 7), (0, 12), (1024,)):
            self.assertEqual(self.reduced(normal(*shape), 0), 0, shape)
        self.assertEqual(self.reduced(image.astype("float16"), [1, 2], rtol=1e-2), 0)
        self.assertEqual(self.rewritten(NAME, lambda x: tf.reduce_sum(x, [1, 2]), image.astype("int32")), 0)
        self.assertEqual(self.rewritten(NAME, lambda x: tf.reduce_max(x, [1, 2]), image), 0)
        self.assertEqual(self.rewritten(NAME, tf.reduce_sum, image, np.array([1, 2], np.int32)), 0)

    def test_accuracy(self) -> None:
        """A sum of positive values is off by at most half a unit for each of the additions that follow one another."""
        import tensorflow as tf

        from tests.compile.passes.graphs import config_of, run
        from tfaot.compile import table

        x = RNG.uniform(0, 1, (2, 112, 112, 12)).astype(np.float32)
        with tf.Graph().as_default() as graph:
            fetch = tf.reduce_sum(tf.compat.v1.placeholder(tf.float32, x.shape, "x0"), [1, 2]).name
        applied = table.apply(graph.as_graph_def(), config_of(["x0:0"], [x], [fetch]), [NAME])
        (got,) = run(applied.graph, [fetch], [x], jit=True)
        flat = x.astype(np.float64).reshape(2, -1, 12)
        want = np.array([[math.fsum(image[:, channel]) for channel in range(12)] for image in flat])
        self.assertLess((np.abs(got - want) / want).max(), 40 * 2.0**-24)

    def test_gate(self) -> None:
        """A squeeze-and-excite block's mean is a product, and its gradient gives the same numbers."""
        import tensorflow as tf

        def block(x: Any) -> Any:
            gate = tf.sigmoid(tf.matmul(tf.reduce_mean(x, [1, 2]), normal(12, 12)))
            y = x * tf.reshape(gate, [2, 1, 1, 12])
            return [y, tf.gradients(y * y, x)[0]]

        self.assertGreaterEqual(self.rewritten(NAME, block, normal(2, 8, 8, 12)), 1)


if __name__ == "__main__":
    unittest.main()
