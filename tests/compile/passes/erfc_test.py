"""erfc: accurate over all of float32's range, and unchanged where it must be."""

from __future__ import annotations

import math
import unittest
from typing import Any

import numpy as np

from tests.compile.passes.graphs import Array, PassTest, config_of, run

NAME = "erfc"
RNG = np.random.default_rng(7)


class ErfcTest(PassTest):
    """The pass on graphs with Erfc."""

    def compiled(self, x: Array) -> Array:
        """Returns XLA's result for erfc after the pass."""
        import tensorflow as tf

        from tfaot.compile import table

        with tf.Graph().as_default() as graph:
            fetch = tf.math.erfc(tf.compat.v1.placeholder(x.dtype, x.shape, "x0")).name
        applied = table.apply(graph.as_graph_def(), config_of(["x0:0"], [x], [fetch]), [NAME])
        self.assertEqual(applied.places[NAME], 1)
        return run(applied.graph, [fetch], [x], jit=True)[0]

    def test_accuracy(self) -> None:
        """Over all of its range, it is within six units in the last place, where XLA's own is off by up to 65."""
        small = 10 ** np.linspace(-38, 0, 100_001)
        x = np.concatenate([np.linspace(-6, 9.194, 500_001), small, -small]).astype(np.float32)
        want = np.array([math.erfc(each) for each in x.tolist()])
        got = self.compiled(x).astype(np.float64)
        self.assertGreater(want.min(), np.finfo(np.float32).tiny)
        self.assertLess((np.abs(got - want) / np.spacing(want.astype(np.float32))).max(), 6)

    def test_ends(self) -> None:
        """NaN, infinities, zeros, and arguments beyond all normal results follow IEEE arithmetic."""
        infinity = math.inf
        x = np.array([math.nan, infinity, -infinity, 0.0, -0.0, 1e-40, -1e-40, 9.3, 9.4, 1e10, 3e38, -3e38], np.float32)
        want = np.array([math.nan, 0, 2, 1, 1, 1, 1, 0, 0, 0, 0, 2], np.float32)
        np.testing.assert_array_equal(self.compiled(x), want)

    def test_in_models(self) -> None:
        """GELU, its gradient, and an Erfc that is itself an output give the same numbers, under the same names."""
        import tensorflow as tf

        def gradient(x: Any) -> Any:
            y = tf.nn.gelu(x)
            return [y, tf.gradients(y, x)[0]]

        x = RNG.standard_normal((5, 33)).astype(np.float32)
        self.assertEqual(self.rewritten(NAME, lambda x: tf.nn.gelu(x * 3) @ tf.ones([33, 2]), x), 1)
        self.assertEqual(self.rewritten(NAME, lambda x: [tf.math.erfc(x), tf.math.erfc(x - 1) * 2], x), 2)
        self.assertGreaterEqual(self.rewritten(NAME, lambda x: 0.5 * x * tf.math.erfc(-x / math.sqrt(2)), x), 1)
        self.rewritten(NAME, gradient, x)

    def test_other_types(self) -> None:
        """Other types have other ranges and digits: they don't change, and neither does erf."""
        import tensorflow as tf

        x = RNG.standard_normal((3, 4)).astype(np.float32)
        self.assertEqual(self.rewritten(NAME, tf.math.erfc, x.astype(np.float64)), 0)
        self.assertEqual(self.rewritten(NAME, tf.math.erfc, x.astype(np.float16)), 0)
        self.assertEqual(self.rewritten(NAME, lambda x: tf.nn.gelu(x, approximate=True) + tf.math.erf(x), x), 0)


if __name__ == "__main__":
    unittest.main()
