"""row_sums: which sums and means are split into pieces, and their results."""

from __future__ import annotations

import math
import unittest
from typing import Any

import numpy as np

from tests.compile.passes.graphs import Array, PassTest

NAME = "row_sums"
RNG = np.random.default_rng(11)


def normal(*shape: int, dtype: str = "float32") -> Array:
    """Returns values from a normal distribution."""
    return RNG.standard_normal(shape).astype(dtype)


class RowSumsTest(PassTest):
    """The pass on graphs with sums and means."""

    def reduced(self, x: Array, axis: Any = -1, keepdims: bool = False, rtol: float = 1e-6) -> int:
        """Returns how many of a sum and a mean along an axis the pass changes. Neither changes in value."""
        import tensorflow as tf

        return self.rewritten(
            NAME,
            lambda x: [tf.reduce_sum(x, axis, keepdims), tf.reduce_mean(x, axis, keepdims) * 3],
            x,
            rtol=rtol,
        )

    def test_widths(self) -> None:
        """Rows with even, odd, and few pieces, with and without keepdims, in both float types."""
        for columns in (33, 64, 96, 100, 768, 960, 1024):
            for keepdims in (False, True):
                self.assertEqual(self.reduced(normal(2, 3, columns), keepdims=keepdims), 2)
        self.assertEqual(self.reduced(normal(5, 64), axis=1), 2)
        self.assertEqual(self.reduced(normal(5, 64), axis=[1]), 2)
        self.assertEqual(self.reduced(normal(64)), 2)
        self.assertEqual(self.reduced(normal(5, 64, dtype="float64"), rtol=1e-15), 2)

    def test_stays(self) -> None:
        """Rows that are short, long, or have too many pieces don't change; nor do other axes, dtypes, and ops."""
        import tensorflow as tf

        for columns in (1, 32, 37, 1000, 1025, 4096):
            self.assertEqual(self.reduced(normal(2, columns)), 0)
        self.assertEqual(self.reduced(normal(64, 64, 3), axis=0), 0)
        self.assertEqual(self.reduced(normal(64, 64, 3), axis=-2), 0)
        self.assertEqual(self.reduced(normal(64, 64), axis=[0, 1]), 0)
        self.assertEqual(self.reduced(normal(64, 64), axis=[]), 0)
        self.assertEqual(self.reduced(normal(2, 64, dtype="float16"), rtol=1e-2), 0)
        self.assertEqual(self.rewritten(NAME, lambda x: tf.reduce_sum(x, -1), np.arange(128).reshape(2, 64)), 0)
        self.assertEqual(self.rewritten(NAME, lambda x: tf.reduce_max(x, -1), normal(2, 64)), 0)

    def test_open_sizes(self) -> None:
        """Rows of which only a run knows the number are split, too, unless it is their length that only a run knows."""
        import tensorflow as tf

        count = np.array(3, np.int32)
        self.assertEqual(self.rewritten(NAME, lambda x, n: tf.reduce_sum(x[:, :n], -1), normal(2, 5, 64), count), 1)
        self.assertEqual(self.rewritten(NAME, lambda x, n: tf.reduce_sum(x[:, :n], -1), normal(2, 64), count), 0)

    def test_softmax(self) -> None:
        """A softmax's sum stays for the pass `softmax`. Other sums of exponentials don't."""
        import tensorflow as tf

        def shares(x: Any) -> Any:
            powers = tf.exp(x)
            return powers / tf.reduce_sum(powers, -1, keepdims=True)

        self.assertEqual(self.rewritten(NAME, shares, normal(2, 64)), 0)
        self.assertEqual(self.rewritten(NAME, lambda x: tf.reduce_sum(tf.exp(x), -1), normal(2, 64)), 1)
        self.assertEqual(self.rewritten(NAME, tf.reduce_sum, normal(2, 64), np.array([1], np.int32)), 0)

    def test_accuracy(self) -> None:
        """A sum of positive values is off by at most half a unit for each of the steps that XLA also takes."""
        from tests.compile.passes.graphs import config_of, run
        from tfaot.compile import table

        x = RNG.uniform(0, 1, (50, 1024)).astype(np.float32)
        import tensorflow as tf

        with tf.Graph().as_default() as graph:
            fetch = tf.reduce_sum(tf.compat.v1.placeholder(tf.float32, x.shape, "x0"), -1).name
        applied = table.apply(graph.as_graph_def(), config_of(["x0:0"], [x], [fetch]), [NAME])
        (got,) = run(applied.graph, [fetch], [x], jit=True)
        want = np.array([math.fsum(row) for row in x.astype(np.float64).tolist()])
        self.assertLess((np.abs(got - want) / want).max(), (32 + 5) * 2.0**-24)

    def test_layer_norm(self) -> None:
        """A layer norm's two means are split, and its gradient gives the same numbers."""
        import tensorflow as tf

        def norm(x: Any) -> Any:
            mean, variance = tf.nn.moments(x, [-1], keepdims=True)
            y = tf.nn.batch_normalization(x, mean, variance, normal(64), normal(64), 1e-5)
            return [y, tf.gradients(y * y, x)[0]]

        self.assertGreaterEqual(self.rewritten(NAME, norm, normal(4, 64)), 2)


if __name__ == "__main__":
    unittest.main()
