"""max_pools: which poolings are rewritten, and their results."""

from __future__ import annotations

import unittest
from typing import Any

import numpy as np

from tests.compile.passes.graphs import Array, PassTest

NAME = "max_pools"
RNG = np.random.default_rng(17)


def normal(*shape: int, dtype: str = "float32") -> Array:
    """Returns values from a normal distribution."""
    return RNG.standard_normal(shape).astype(dtype)


class MaxPoolsTest(PassTest):
    """The pass on graphs with pooling."""

    def pooled(self, x: Array, size: Any, stride: Any, padding: Any, **options: Any) -> int:
        """Returns how many poolings the pass changes, out of one. The results must be the same bits."""
        import tensorflow as tf

        return self.rewritten(NAME, lambda x: tf.nn.max_pool2d(x, size, stride, padding, **options), x, rtol=0)

    def test_windows(self) -> None:
        """Windows and strides of all kinds, with every kind of padding, keep their values."""
        for shape, size, stride in (
            ((1, 7, 9, 8), 3, 2),
            ((2, 8, 8, 16), 2, 2),
            ((1, 5, 6, 9), (2, 3), (1, 2)),
            ((1, 6, 6, 8), 2, 3),
            ((1, 9, 9, 8), 5, 4),
        ):
            for padding in ("SAME", "VALID"):
                self.assertEqual(self.pooled(normal(*shape), size, stride, padding), 1)
        explicit = [[0, 0], [1, 2], [0, 1], [0, 0]]
        self.assertEqual(self.pooled(normal(1, 7, 9, 8), 3, 2, explicit), 1)
        self.assertEqual(self.pooled(normal(1, 8, 8, 8, dtype="float64"), 2, 2, "SAME"), 1)

    def test_padding_never_wins(self) -> None:
        """Padded places don't count, even if all values are the lowest that are finite."""
        self.assertEqual(self.pooled(-1 - np.abs(normal(1, 5, 5, 8)), 3, 2, "SAME"), 1)
        self.assertEqual(self.pooled(np.full((1, 5, 5, 8), np.finfo(np.float32).min), 3, 2, "SAME"), 1)

    def test_stays(self) -> None:
        """Other dtypes, few channels, and large windows don't change."""
        for x, size in (
            (normal(1, 8, 8, 8, dtype="float16"), 2),
            (normal(1, 8, 8, 7), 2),
            (normal(1, 8, 8, 8), 6),
            (normal(1, 8, 8, 8), 1),
        ):
            self.assertEqual(self.pooled(x, size, 2, "VALID"), 0)

    def test_gradient(self) -> None:
        """The gradient of a pooling, which takes its result, keeps its values."""
        import tensorflow as tf

        def net(x: Any) -> Any:
            y = tf.nn.max_pool2d(x, 2, 2, "VALID")
            return [y, tf.gradients(tf.reduce_sum(y * y), x)[0]]

        self.assertEqual(self.rewritten(NAME, net, normal(1, 8, 8, 8)), 1)


if __name__ == "__main__":
    unittest.main()
