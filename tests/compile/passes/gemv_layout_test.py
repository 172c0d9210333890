"""gemv_layout: which products are swapped, and their results."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.compile.passes.graphs import Array, PassTest

NAME = "gemv_layout"
RNG = np.random.default_rng(13)


def normal(*shape: int, dtype: str = "float32") -> Array:
    """Returns values from a normal distribution."""
    return RNG.standard_normal(shape).astype(dtype)


WEIGHTS = normal(16, 16)


class ShortProductsTest(PassTest):
    """The pass on graphs with products."""

    def product(self, x: Array, weights: Array, **options: bool) -> int:
        """Returns how many products with a constant matrix the pass changes, out of one."""
        import tensorflow as tf

        return self.rewritten(NAME, lambda x: tf.matmul(x, tf.constant(weights), **options) + 1, x, rtol=1e-5)

    def test_sizes(self) -> None:
        """Up to 64 rows of at least eight columns, or 256 of at least 64, change, in both float types."""
        for depth, columns in ((2, 8), (10, 64), (64, 9), (256, 64), (3, 1000)):
            self.assertEqual(self.product(normal(1, depth), normal(depth, columns)), 1)
        self.assertEqual(self.product(normal(1, 10, dtype="float64"), normal(10, 64, dtype="float64")), 1)

    def test_stays(self) -> None:
        """Several rows, long or narrow matrices, transposed ones, integers, and matrices that aren't constant don't change."""
        import tensorflow as tf

        for rows, depth, columns in ((2, 10, 64), (1, 257, 64), (1, 65, 63), (1, 1, 64), (1, 10, 7)):
            self.assertEqual(self.product(normal(rows, depth), normal(depth, columns)), 0)
        self.assertEqual(self.product(normal(1, 10), normal(64, 10), transpose_b=True), 0)
        self.assertEqual(self.product(normal(10, 1), normal(10, 64), transpose_a=True), 0)
        self.assertEqual(self.product(normal(1, 10, dtype="float16"), normal(10, 64, dtype="float16")), 0)
        self.assertEqual(self.rewritten(NAME, tf.matmul, normal(1, 10), normal(10, 64)), 0)

    def test_net(self) -> None:
        """A three-layer network changes in the first two, which share a matrix with another product. An output keeps its name."""
        import tensorflow as tf

        weights = [normal(10, 10), normal(10, 1)]

        def net(x: Any) -> Any:
            shared = tf.constant(weights[0])
            y = tf.nn.relu(tf.nn.bias_add(x @ shared, normal(10)))
            y = y @ shared
            return [y, tf.nn.relu(y) @ weights[1], tf.concat([y, x], 0) @ shared]

        self.assertEqual(self.rewritten(NAME, net, normal(1, 10)), 2)

    def loop(self, rows: int, build: Callable[[Any], Any], fed: Array | None = None) -> int:
        """Returns how many products change in a loop of three steps of tanh(h·W), given a function that makes W in the body."""
        import tensorflow as tf

        def net(x: Any, *more: Any) -> Any:
            def body(k: Any, h: Any, *matrices: Any) -> Any:
                return k + 1, tf.tanh(h @ build(*matrices)), *matrices

            begin = (tf.constant(0), x, *(more or (tf.constant(WEIGHTS),)))
            return tf.while_loop(lambda k, *_: k < 3, body, begin)[1]

        before = tf.compat.v1.control_flow_v2_enabled()
        tf.compat.v1.enable_control_flow_v2()
        try:
            return self.rewritten(NAME, net, normal(rows, 16), *([] if fed is None else [fed]), jit=True)
        finally:
            if not before:
                tf.compat.v1.disable_control_flow_v2()

    def test_loops(self) -> None:
        """In a loop, a product changes if its matrix is a constant inside, or one that the loop passes on, for one row."""
        import tensorflow as tf

        self.assertEqual(self.loop(1, lambda matrix: matrix), 1)
        self.assertEqual(self.loop(1, lambda matrix: tf.constant(WEIGHTS)), 1)
        self.assertEqual(self.loop(2, lambda matrix: matrix), 0)
        self.assertEqual(self.loop(1, lambda matrix: matrix, WEIGHTS), 0)


if __name__ == "__main__":
    unittest.main()
