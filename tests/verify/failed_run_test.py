"""The verify stage's errors for a model that TensorFlow itself can't run on the inputs to verify."""

from __future__ import annotations

import unittest

from tests.stages.harness import Exported, StageTest, run_main

DO = (
    'give the model inputs that it accepts: golden_inputs = "inputs.py", a file that defines golden_fn(step, rng); without them, '
    "floats are normally distributed, and integers are in the range of their uses"
)

DIVISION = """\
import tensorflow as tf


def input_fn():
    return tf.TensorSpec([2], tf.int32), tf.TensorSpec([30], tf.float32)


def model(x, y):
    return {"out": 100 // (x - x), "y": y}
"""

ASSERTION = """\
import tensorflow as tf


def input_fn():
    return (tf.TensorSpec([2], tf.int32),)


@tf.function
def checked(x):
    with tf.control_dependencies([tf.debugging.assert_positive(0 * x, message="too small")]):
        return tf.identity(x)


def model(x):
    return {"out": checked(x)}
"""


class FailedRunTest(StageTest):
    """The stage's program, on models that fail in TensorFlow."""

    def failed(self, exported: Exported) -> str:
        """Returns the program's output, which contains no traceback."""
        flags = [
            f"--{name}={exported.path(name)}" for name in ("manifest", "graph", "variables", "golden_inputs", "sources")
        ]
        result = run_main("verify", *flags, f"--out_goldens={exported.path('goldens')}")
        self.assertEqual((result.returncode, result.stdout), (1, ""), result.stderr)
        return result.stderr.removeprefix("error: ").rstrip("\n")

    def test_division_by_zero(self) -> None:
        """Dividing an integer by the input drawn for it is reported with its line and the solution."""
        self.assert_error(
            self.failed(self.export(DIVISION)),
            f"""
            t::Model: TensorFlow itself can't run the model on the test inputs: \
InvalidArgumentError in FloorDiv 'floordiv'

                Integer division by zero
                'floordiv' at model.py:9

              found: inputs x: int32[2] = [0, 1]; y: float32[30]
              to do: {DO}
            """,
        )

    def test_assertion(self) -> None:
        """An assertion inside a function shows its own text and the user's line."""
        self.assert_error(
            self.failed(self.export(ASSERTION)),
            f"""
            t::Model: TensorFlow itself can't run the model on the test inputs: InvalidArgumentError

                assertion failed: [too small.  ] [Condition x > 0 did not hold element-wise:] [x (mul:0) = ] [0 0]
                'assert_positive/assert_less/Assert/Assert' at model.py:10
                'StatefulPartitionedCall' at model.py:15

              found: inputs x: int32[2] = [0, 1]
              to do: {DO}
            """,
        )


if __name__ == "__main__":
    unittest.main()
