"""Keras's seed counters, which inference advances needlessly."""

from __future__ import annotations

import unittest

from tests.stages.harness import StageTest

COUNTER = "seed_generator/seed_generator_state"

MODEL = """\
import keras
import tensorflow as tf

keras.utils.set_random_seed(1)
lstm = keras.layers.LSTM(4, dropout=0.5)
lstm.build((None, 5, 3))
dropout = keras.layers.Dropout(0.5)
calls = tf.Variable(0, name="calls")


def predict(x):
    return lstm(x)


def train(x):
    return lstm(x, training=True)


def dropped(x):
    return dropout(x, training=True)


def counted(x):
    calls.assign_add(1)
    return lstm(x)
"""


class SeedsTest(StageTest):
    """Which counters stay: those that something draws from, and the user's own."""

    def test_inference(self) -> None:
        """An LSTM with dropout writes nothing in inference: it is frozen by default, and can have batch sizes."""
        exported = self.export(
            MODEL, entry_points=(("Run", "predict"),), signature={"x": "float32[None, 5, 3]"}, batch_sizes=(1, 4)
        )
        self.assertEqual(
            exported.written,
            dict.fromkeys((f"lstm/lstm_cell/{name}" for name in ("kernel", "recurrent_kernel", "bias")), False),
        )

    def test_training(self) -> None:
        """Draws keep their counter, even in an entry point that only advances it: a run after it draws other numbers."""
        exported = self.export(
            MODEL, entry_points=(("Predict", "predict"), ("Train", "train")), signature={"x": "float32[2, 5, 3]"}
        )
        self.assertIn(COUNTER, exported.written)
        for entry in exported.manifest.entry_points:
            written = [exported.manifest.variables[use.variable].name for use in entry.variables if use.written]
            self.assertEqual(written, [COUNTER], entry.name)

    def test_drawn_from_outside_of_loops(self) -> None:
        """A counter stays if its draws go straight to an output."""
        exported = self.export(MODEL, entry_points=(("Run", "dropped"),), signature={"x": "float32[2, 3]"})
        ((name, written),) = exported.written.items()
        self.assertRegex(name, "seed_generator.*/seed_generator_state$")
        self.assertTrue(written)

    def test_counters_of_the_user(self) -> None:
        """A variable that only counts could be for the caller: it stays, and the error about a batch names it."""
        text = self.error_of(
            self.export,
            MODEL,
            entry_points=(("Run", "counted"),),
            signature={"x": "float32[None, 5, 3]"},
            batch_sizes=(1, 4),
        )
        self.assert_error(
            text,
            """
            model.py: batch_sizes = [1, 4], and Run writes 1 variable(s): calls
              found: a batch runs in parts, and each part would write them
              to do: don't assign them in this entry point (for example, training = False), or remove \
batch_sizes and fix the batch with dims
            """,
        )


if __name__ == "__main__":
    unittest.main()
