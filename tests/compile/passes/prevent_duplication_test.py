"""prevent_duplication: which ReLUs are rewritten, their results, and that the compiler computes each sum once."""

from __future__ import annotations

import math
import unittest
from typing import Any

import numpy as np

from tests.compile.passes.graphs import Array, PassTest

NAME = "prevent_duplication"
RNG = np.random.default_rng(19)


def normal(*shape: int, dtype: str = "float32") -> Array:
    """Returns values from a normal distribution."""
    return RNG.standard_normal(shape).astype(dtype)


class ResidualsTest(PassTest):
    """The pass on graphs with residual connections."""

    def blocks(self, x: Any, count: int, last: Any) -> Any:
        """Returns residual blocks of a product each, and a function of the last one."""
        import tensorflow as tf

        for block in range(count):
            x = tf.nn.relu(tf.nn.bias_add(x @ normal(8, 8, dtype=x.dtype.name), [float(block)] * 8) + x)
        return last(x)

    def test_chain(self) -> None:
        """All blocks change whose result the next block adds, in both float types."""
        import tensorflow as tf

        for dtype in ("float32", "float64"):
            self.assertEqual(
                self.rewritten(NAME, lambda x: self.blocks(x, 3, tf.identity), normal(4, 8, dtype=dtype), rtol=0), 2
            )

    def test_other_forms(self) -> None:
        """A bias between the sum and the ReLU doesn't matter."""
        import tensorflow as tf

        def net(x: Any) -> Any:
            y = tf.nn.relu(tf.nn.bias_add(tf.raw_ops.Add(x=x, y=x * x), [1.0] * 8))
            return y @ normal(8, 8) + y

        self.assertEqual(self.rewritten(NAME, net, normal(4, 8), rtol=0), 1)

    def test_stays(self) -> None:
        """A single user, no sum, another activation, and other dtypes don't change."""
        import tensorflow as tf

        weights = normal(8, 8)
        for net in (
            lambda x: tf.nn.relu(x + x * x) @ weights,
            lambda x: (lambda y: y @ weights + y)(tf.nn.relu(x * x)),
            lambda x: (lambda y: y @ weights + y)(tf.nn.relu6(x + x * x)),
        ):
            self.assertEqual(self.rewritten(NAME, net, normal(4, 8)), 0)
        half = normal(4, 8, dtype="float16")
        self.assertEqual(self.rewritten(NAME, lambda x: self.blocks(x, 3, tf.identity), half), 0)

    def test_special_values(self) -> None:
        """NaN stays NaN, as in TensorFlow's ReLU, and infinities are bounded."""
        import tensorflow as tf

        def net(x: Any) -> Any:
            y = tf.nn.relu(x + x)
            return [y, tf.exp(-y), tf.sqrt(y)]

        x = np.array([[math.nan, math.inf, -math.inf, -0.0, 0.0, -1.0]], np.float32)
        self.assertEqual(self.rewritten(NAME, net, x), 1)

    def test_gradient(self) -> None:
        """The gradient of the ReLU, which takes its result, keeps its values."""
        import tensorflow as tf

        def net(x: Any) -> Any:
            y = self.blocks(x, 2, tf.reduce_sum)
            return [y, tf.gradients(y, x)[0]]

        self.assertGreater(self.rewritten(NAME, net, normal(4, 8)), 0)


if __name__ == "__main__":
    unittest.main()
