"""pool_gradients: which gradients of poolings are rewritten, and their results."""

from __future__ import annotations

import unittest
from typing import Any

import numpy as np

from tests.compile.passes.graphs import Array, PassTest

NAME = "pool_gradients"
RNG = np.random.default_rng(19)


def normal(*shape: int, dtype: str = "float32") -> Array:
    """Returns values from a normal distribution."""
    return RNG.standard_normal(shape).astype(dtype)


class PoolGradientsTest(PassTest):
    """The pass on graphs with gradients of pooling."""

    def changed(self, x: Array, size: Any, stride: Any, padding: Any = "VALID", jit: bool = False) -> int:
        """Returns how many gradients the pass changes, out of one. The results must be the same bits."""
        import tensorflow as tf

        def gradient(x: Any) -> Any:
            y = tf.nn.max_pool2d(x, size, stride, padding)
            return tf.gradients(y * y + y, x)[0]

        return self.rewritten(NAME, gradient, x, jit=jit, rtol=0)

    def test_windows(self) -> None:
        """Windows of all sizes that touch but don't overlap, with padding that isn't needed, keep every gradient."""
        for shape, size, padding in (
            ((2, 8, 10, 16), 2, "VALID"),
            ((2, 8, 10, 16), 2, "SAME"),
            ((1, 9, 6, 9), 3, "VALID"),
            ((1, 5, 6, 8), (1, 3), "VALID"),
            ((3, 4, 5, 8), (4, 1), "SAME"),
            ((1, 2, 2, 8), 2, "VALID"),
        ):
            self.assertEqual(self.changed(normal(*shape), size, size, padding), 1, (shape, size))
        self.assertEqual(self.changed(normal(2, 4, 4, 8, dtype="float64"), 2, 2), 1)

    def test_first_of_equals(self) -> None:
        """If several values of a window are the largest, the first has the gradient, as ReLU's zeros often are."""
        ties = RNG.integers(0, 2, (4, 8, 8, 8)).astype(np.float32)
        for jit in (False, True):
            self.assertEqual(self.changed(ties, 2, 2, jit=jit), 1)
            self.assertEqual(self.changed(np.zeros((1, 6, 6, 8), np.float32), 3, 3, jit=jit), 1)

    def test_stays(self) -> None:
        """Windows that overlap, leave values out, or need padding, and other dtypes and few channels don't change."""
        for shape, size, stride, padding in (
            ((1, 8, 8, 8), 3, 2, "VALID"),
            ((1, 8, 8, 8), 1, 2, "VALID"),
            ((1, 7, 8, 8), 2, 2, "VALID"),
            ((1, 7, 8, 8), 2, 2, "SAME"),
            ((1, 8, 8, 7), 2, 2, "VALID"),
            ((1, 8, 8, 8), 4, 4, "VALID"),
            ((1, 8, 8, 8), 2, 2, [[0, 0], [1, 1], [0, 0], [0, 0]]),
        ):
            self.assertEqual(self.changed(normal(*shape), size, stride, padding), 0, (shape, size))
        self.assertEqual(self.changed(normal(1, 8, 8, 8, dtype="float16"), 2, 2), 0)


if __name__ == "__main__":
    unittest.main()
