"""Loops with random structure give the same after all passes: steps, dtypes, states, branches, inner loops, lists, variables.

`TFAOT_LOOPS=1000` in the environment tries that many. `TFAOT_SEED` sets the first seed.
"""

from __future__ import annotations

import os
import unittest
from typing import Any

import numpy as np

from tests.compile.passes.graphs import Array, PassTest, config_of

SHAPE = (2, 3)
START = np.linspace(-1, 1, 6, dtype=np.float32).reshape(SHAPE)
"""Values of the variable."""


class _Program:
    """A random graph with one or two loops."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def pick(self, *options: Any) -> Any:
        """Returns one of the options."""
        return options[self.rng.integers(len(options))]

    def build(self, x: Any) -> list[Any]:
        """Makes the graph for an input [2, 3]. Returns the fetches."""
        import tensorflow as tf

        self.handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=SHAPE, shared_name="v", name="v")
        results = self.loop(x, depth=0)
        if self.rng.random() < 0.5:
            results += self.loop(results[0], depth=0)
        kept = [result for result in results if self.rng.random() < 0.6] or results[:1]
        with tf.control_dependencies(kept):
            after = tf.raw_ops.ReadVariableOp(resource=self.handle, dtype=tf.float32)
        return [tf.identity(result, f"result_{index}") for index, result in enumerate([*kept, after])]

    def counter(self) -> tuple[Any, Any, Any]:
        """Returns a counter's start, its step, and a condition."""
        import tensorflow as tf

        dtype = self.pick(tf.int32, tf.int32, tf.int64, tf.int8, tf.uint8)
        top, trips = int(dtype.max), int(self.rng.integers(0, 13))
        step = int(self.rng.integers(1, 4))
        start = int(self.rng.integers(0, 5))
        forms = [
            (start, step, lambda k: k < start + step * trips),
            (start, step, lambda k: k <= start + step * trips),
            (start, step, lambda k: tf.not_equal(k, start + step * trips)),
            (start + step * trips, -step, lambda k: k > start),
            (top - 2, 1, lambda k: k > top - 4),
            (0, 1, lambda k: k * (top // 10 * 7) < top // 15 * 14),
            (start, step, lambda k: tf.logical_and(k < start + step * trips, tf.math.floormod(k, 7) != 6)),
        ]
        first, by, condition = self.pick(*forms)
        if dtype.is_unsigned and by < 0:
            return tf.constant(first, dtype), lambda k: k - tf.constant(-by, dtype), condition
        if self.rng.random() < 0.3 and by > 0:
            return tf.constant(first, dtype), lambda k: tf.constant(by, dtype) + k, condition
        return tf.constant(first, dtype), lambda k: k + tf.constant(by, dtype), condition

    def value(self, x: Any, k: Any, depth: int) -> Any:
        """Returns a new state [2, 3], computed from an old one and the step's number."""
        import tensorflow as tf

        kind = self.rng.integers(10 if depth == 0 else 7)
        if kind == 0:
            return tf.tanh(x * 0.9 + tf.cast(k, tf.float32) * 0.01)
        if kind == 1:
            return tf.tanh(tf.matmul(x, tf.constant(np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3))))
        if kind == 2:
            return tf.tanh(x + tf.raw_ops.ReadVariableOp(resource=self.handle, dtype=tf.float32))
        if kind == 3:
            row = tf.gather(tf.constant(np.eye(4, 3, dtype=np.float32)), tf.math.floormod(tf.cast(k, tf.int32), 4))
            return x * 0.5 + row
        if kind == 4:
            return tf.cond(tf.equal(tf.math.floormod(tf.cast(k, tf.int32), 2), 0), lambda: x * 0.5, lambda: x + 0.25)
        if kind == 5:
            rows = tf.raw_ops.ResourceGather(resource=self.handle, indices=tf.constant([1, 0]), dtype=tf.float32)
            return x * 0.5 - rows
        if kind == 6:
            return x * self.pick(0.5, -1.0, np.inf, np.nan)
        if kind == 7:
            before = tf.raw_ops.ReadVariableOp(resource=self.handle, dtype=tf.float32)
            with tf.control_dependencies([before]):
                written = tf.raw_ops.AssignAddVariableOp(resource=self.handle, value=x * 0.125)
            with tf.control_dependencies([written]):
                return tf.tanh(x + before)
        return self.loop(x, depth + 1)[0]

    def loop(self, x: Any, depth: int) -> list[Any]:
        """Makes a loop. Returns its states, the one with shape [2, 3] first."""
        import tensorflow as tf

        first, following, condition = self.counter()
        states = self.pick(0, 0, 1, 2)
        listed, dependent = self.rng.random() < 0.3, self.rng.random() < 0.2
        scalars = [self.pick(tf.constant(0.5), tf.constant(2), tf.constant(3, tf.int64)) for _ in range(states)]
        plan = self.rng.bit_generator.state  # the body is traced again for shapes
        room = 16

        def body(k: Any, n: Any, y: Any, items: Any, *others: Any) -> tuple[Any, ...]:
            self.rng.bit_generator.state = plan
            y = self.value(y, k, depth)
            if listed:
                items = items.write(tf.math.floormod(n, room), y)
                y = y + items.read(tf.math.floormod(n, room)) * 0.5
            after = [other + tf.cast(n, other.dtype) for other in others]
            return (following(k), n + 1, y, items, *after)

        def going(k: Any, n: Any, y: Any, *_: Any) -> Any:
            small = tf.logical_and(condition(k), n < 14)
            return tf.logical_and(small, tf.reduce_max(y) < 0.9) if dependent else small

        def simple(k: Any, *_: Any) -> Any:
            return condition(k)

        items = tf.TensorArray(tf.float32, room, element_shape=SHAPE, clear_after_read=False)
        bounded = dependent or self.rng.random() < 0.5
        start = (first, tf.constant(0), x, items.unstack(tf.zeros((room, *SHAPE))), *scalars)
        k, n, y, items, *others = tf.while_loop(going if bounded else simple, body, start, maximum_iterations=20)
        return [y, k, n, *others, *([items.stack()] if listed else [])]


class RandomLoopsTest(PassTest):
    """Compares graphs before and after all passes, in a session."""

    def outcome(self, graph: Any, fetches: list[str], x: Array) -> list[Array]:
        """Returns a graph's results in two runs."""
        import tensorflow as tf

        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            tf.import_graph_def(graph, name="")
            handle = tf.compat.v1.get_default_graph().get_tensor_by_name("v:0")
            session.run(tf.raw_ops.AssignVariableOp(resource=handle, value=tf.constant(START)))
            return [value for _ in range(2) for value in session.run(fetches, {"x0:0": x})]

    def test_all_passes(self) -> None:
        """No pass changes what a loop computes, how often it runs, or in which order it writes."""
        import tensorflow as tf

        from tfaot.compile import table
        from tfaot.export.sources.xla_context import xla_context

        x = np.array([[0.5, -0.25, 0.75], [-0.5, 0.125, 0.0]], np.float32)
        names = [each.name for each in table.PASSES]
        first, changed = int(os.environ.get("TFAOT_SEED", "0")), 0
        for seed in range(first, first + int(os.environ.get("TFAOT_LOOPS", "24"))):
            with self.subTest(seed=seed):
                with tf.Graph().as_default() as graph, xla_context():
                    placeholder = tf.compat.v1.placeholder(tf.float32, SHAPE, "x0")
                    fetches = [fetch.name for fetch in _Program(seed).build(placeholder)]
                before = graph.as_graph_def()
                applied = table.apply(before, config_of(["x0:0"], [x], fetches), names)
                changed += sum(places or 0 for places in applied.places.values())
                self.assert_typed(applied.graph)
                wanted = self.outcome(before, fetches, x)
                for want, got in zip(wanted, self.outcome(applied.graph, fetches, x), strict=True):
                    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        self.assertGreater(changed, 0)


if __name__ == "__main__":
    unittest.main()
