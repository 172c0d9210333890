"""Batch families: what can run in parts of any size, and what can't."""

from __future__ import annotations

import unittest
from typing import Any

from tests.export.sources.eager import EagerTest

HEAD = "import keras\nimport numpy as np\nimport tensorflow as tf\n\nSpec = tf.TensorSpec\n\n\n"


class FamilyTest(EagerTest):
    """What a batch family can be."""

    def test_rows_of_every_shape(self) -> None:
        """Protects results with one row per row, including calls, loops, constants, and where only the compiler knows."""
        exported = self.agree(
            HEAD
            + """\
w = tf.Variable(np.arange(6.0, dtype=np.float32).reshape(3, 2), name="w")


@tf.function
def called(x):
    return tf.ensure_shape(x, [None, None])


def model(x, z, scale):
    return {
        "called": called(x),
        "dense": x @ w * scale,
        "given": x,
        "mapped": tf.map_fn(tf.reduce_sum, x),
        "reshaped": tf.reshape(x, [tf.shape(x)[0], -1, 1]),
        "turned": z * 1j,
        "unknown": tf.raw_ops.PlaceholderWithDefault(input=x, shape=None),
        "zeros": tf.zeros([tf.shape(x)[0], 2], tf.bfloat16),
    }
""",
            batch_sizes=(2, 4),
            golden_steps=4,
            max_batch=9,
            signature={"x": "float32[None, 3]", "z": "complex64[None]", "scale": "float32[]"},
        )
        entry = exported.manifest.entry_points[0]
        inputs = {tensor.cpp_name: (tensor.shape, tensor.batched) for tensor in entry.inputs}
        shapes = inputs | {tensor.cpp_name: (tensor.shape, tensor.batched) for tensor in entry.outputs}
        self.assertEqual(
            shapes,
            {
                "x": ((9, 3), True),
                "z": ((9,), True),
                "scale": ((), False),
                "called": ((9, 3), True),
                "dense": ((9, 2), True),
                "given": ((9, 3), True),
                "mapped": ((9,), True),
                "reshaped": ((9, 3, 1), True),
                "turned": ((9,), True),
                "unknown": ((9, 3), True),
                "zeros": ((9, 2), True),
            },
        )
        self.assertEqual([variable.name for variable in exported.manifest.variables], ["w"])

    def test_batches_that_are_verified(self) -> None:
        """Protects what the test runs: for each entry point the smallest and the largest batch, or only the largest."""
        model = HEAD + "def model(x):\n    return x + 1\n\n\ndef other(x):\n    return x + 2\n"
        points = (("Run", "call"), ("Other", "other"))
        attributes: dict[str, Any] = {"batch_sizes": (4,), "max_batch": 9, "signature": {"x": "float32[None, 3]"}}
        exported = self.export(model, entry_points=points, golden_steps=3, **attributes)
        rows = {name: [c.batch for c in exported.manifest.calls if c.entry_point == name] for name, _ in points}
        self.assertEqual([sizes[:2] for sizes in rows.values()], [[1, 9], [1, 9]])
        self.assertTrue(all(1 <= sizes[2] <= 9 for sizes in rows.values()), rows)
        once = self.export(model, entry_points=points, golden_steps=1, **attributes)
        self.assertEqual([call.batch for call in once.manifest.calls], [9, 9])

    def test_rows_that_see_each_other(self) -> None:
        """Anything that mixes rows is refused, even weakly: a mean, a norm, a softmax, prefix sums, another order."""
        exported = self.export(
            HEAD
            + """\
norm = keras.layers.BatchNormalization(momentum=1.0)
norm.build([None, 3])


def model(x):
    mean, variance = tf.nn.moments(x, [0])
    return {
        "mean": x - 0.01 * tf.reduce_mean(x, 0),
        "norm": tf.nn.batch_normalization(x, mean, variance, None, None, 1e-3),
        "order": tf.reverse(x, [0]),
        "own": norm(x, training=False) + tf.nn.softmax(x),
        "ranks": tf.argsort(tf.argsort(x[:, 0])),
        "small": 1e-5 * tf.nn.softmax(x, axis=0),
        "sums": tf.cumsum(x, axis=0),
    }
""",
            batch_sizes=(1, 8),
            golden_steps=1,
            rows_independent=True,  # so that only verification can detect it
            signature={"x": "float32[None, 3]"},
        )
        self.assert_error(
            self.error_of(exported.goldens),
            """
            t::Model: rows of a batch affect each other's results: 6 output(s) of Run
              found: mean:0, norm:0, order:0, ranks:0, small:0, sums:0
              to do: remove batch_sizes, and fix the batch with dims; or compute each row independently (batch norm with training=False, no mean over the batch)
            """,  # noqa: E501
        )


class RefusedTest(EagerTest):
    """What can't be a batch family, each with its complete message."""

    def refused(self, model: str, wanted: str, **attributes: Any) -> None:
        """Exports a family that must be refused with exactly this message."""
        self.assert_error(self.error_of(self.export, HEAD + model, batch_sizes=(2, 4), **attributes), wanted)

    def test_outputs_without_batch(self) -> None:
        """A result without one row per row is shown with its size, whichever check finds it."""
        for output, what in (
            ("tf.reduce_mean(x, 0)", "[3]"),
            ("tf.ones([4, 3])", "[4, 3]"),
            ("tf.concat([x, x], 0)", "[4, 3] for a batch of 2"),
            ("x[1:]", "[1, 3] for a batch of 2"),
            ("x @ tf.transpose(x)", "[2, 2] for a batch of 2, [4, 4] for one of 4"),
            ("tf.where(x > 0)", "at most [12, 2] for a batch of 4"),
            ("tf.boolean_mask(x, x[:, 0] > 0)", "at most [4, 3] for a batch of 4"),
        ):
            with self.subTest(output):
                self.refused(
                    f"def model(x):\n    return {{'out': {output}, 'x': x}}\n",
                    f"""
                    model.py: the output out of Run has no batch: it is {what}
                      found: batch_sizes = [2, 4]: the rules concatenate results along their first dimension
                      to do: return a value for each row, or remove batch_sizes
                    """,
                    signature={"x": "float32[None, 3]"},
                )

    def test_golden_fn_of_other_rows(self) -> None:
        """Golden inputs with more rows than the class takes, with none, or with different numbers are refused."""
        for x, y, rows in ((10, 10, [10]), (0, 0, [0]), (2, 3, [2, 3])):
            with self.subTest(rows):
                self.refused(
                    f"def model(x, y):\n    return x + y[:tf.shape(x)[0]]\n\n\n"
                    f"def golden_fn(step, rng):\n    return np.ones(({x}, 3)), np.ones(({y}, 3))\n",
                    f"""
                    model.py: golden_fn(step, rng) returned batches of {rows} rows for one call
                      found: the class takes 1 to 9 rows, the same in every input
                      to do: give the same number of rows for every input of a call
                    """,
                    max_batch=9,
                    signature={"x": "float32[None, 3]", "y": "float32[None, 3]"},
                )


if __name__ == "__main__":
    unittest.main()
