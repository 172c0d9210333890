"""Tests of `tfaot.calibrate`: untrained networks whose results depend on their inputs and on every weight."""

from __future__ import annotations

import unittest
import zlib
from typing import Any

import numpy as np

from tests.stages.harness import StageTest
from tfaot.calibrate import rounded
from tfaot.core import environment, isolate


def network(kind: str) -> Any:
    """Returns a small network with most kinds of weights, in Keras 3 or tf-keras."""
    if kind == "tf_keras":
        import tf_keras as keras
    else:
        import keras
    layers = keras.layers
    x = inputs = layers.Input((4, 4, 3), name="x")
    for index in range(2):
        y = layers.Conv2D(8, 3, padding="same", use_bias=False, name=f"conv_{index}")(x)
        y = layers.ReLU()(layers.BatchNormalization(name=f"norm_{index}")(y))
        y = layers.DepthwiseConv2D(3, padding="same", name=f"depthwise_{index}")(y)
        x = layers.Concatenate()([x, y]) if index else y
    x = layers.Reshape((16, 16))(x)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 8, name="attention")(x, x))
    x = layers.GRU(16, name="gru")(x)
    return keras.Model(inputs, layers.Dense(50, activation="softmax", name="classes")(x))


def in_child(work: Any) -> Any:
    """Runs work in a separate process."""

    def prepared() -> Any:
        environment.prepare()
        return work()

    return isolate.run_isolated(prepared, what="calibrating")


class CalibrateTest(StageTest):
    """Which weights are drawn, and their effect on a network."""

    def test_spread(self) -> None:
        """Protects tests from being blind: classes and inputs differ, where default weights give 0.02 for all."""

        def work() -> list[tuple[float, float, float]]:
            from tfaot.calibrate import calibrated

            x = np.random.default_rng(1).standard_normal((8, 4, 4, 3)).astype(np.float32)
            result = []
            for kind in ("keras", "tf_keras"):
                model = calibrated(network(kind), spread=1.5)
                logits = np.log(np.asarray(model(x, training=False)))
                result.append((float(logits.std(1).mean()), float(logits.std(0).mean()), float(logits.std(1).max())))
            return result

        for within, between, most in in_child(work):
            self.assertGreater(within, 0.7)
            self.assertLess(most, 3)
            self.assertGreater(between, 0.05)

    def test_configs_that_keras_rejects(self) -> None:
        """Protects networks with Lambda layers, and with numbers as operands, whose configs Keras doesn't read back by default."""

        def work() -> list[float]:
            from tfaot.calibrate import calibrated

            result = []
            for kind in ("keras", "tf_keras"):
                if kind == "tf_keras":
                    import tf_keras as keras
                else:
                    import keras
                x = inputs = keras.layers.Input((16, 16, 3))
                x = keras.layers.Lambda(lambda t: 2.0 * t - 1.0)(x)
                small = keras.applications.MobileNetV3Small(weights=None, include_top=False, input_shape=(32, 32, 3))
                for model in (
                    keras.Model(
                        inputs, keras.layers.Dense(50)(keras.layers.BatchNormalization()(keras.layers.Flatten()(x)))
                    ),
                    keras.Model(small.input, keras.layers.Dense(50)(keras.layers.Flatten()(small.output))),
                ):
                    values = 255 * np.random.default_rng(1).random((4, *model.input_shape[1:]))
                    calibrated(model, values, spread=1.5)
                    result.append(float(np.asarray(model(values.astype(np.float32), training=False)).std()))
            return result

        for spread in in_child(work):
            self.assertTrue(1.4 < spread < 1.6, spread)

    def test_every_weight_counts(self) -> None:
        """Protects mutation tests: each weight changes the result, except attention's key bias, which softmax cancels."""

        def work() -> list[str]:
            from tfaot.calibrate import calibrated

            model = calibrated(network("keras"))
            x = np.random.default_rng(1).standard_normal((2, 4, 4, 3)).astype(np.float32)
            before = np.asarray(model(x, training=False))
            dead = []
            for weight in model.weights:
                value = np.asarray(weight)
                weight.assign(value * 1.1)
                if np.abs(np.asarray(model(x, training=False)) - before).max() < 1e-5:
                    dead.append(weight.path)
                weight.assign(value)
            return dead

        self.assertEqual(in_child(work), ["attention/key/bias"])

    def test_same_bytes(self) -> None:
        """Protects goldens from the machine: neither threads nor oneDNN's kernels change a bit of the weights."""

        def checksum(threads: int, onednn: str) -> Any:
            def work() -> int:
                import os

                os.environ["TF_ENABLE_ONEDNN_OPTS"] = onednn
                import tensorflow as tf

                from tfaot.calibrate import calibrated

                tf.config.threading.set_intra_op_parallelism_threads(threads)
                model = calibrated(network("keras"))
                return zlib.crc32(b"".join(np.asarray(weight).tobytes() for weight in model.weights))

            return in_child(work)

        self.assertEqual(checksum(1, "0"), checksum(2, "1"))

    def test_rounded(self) -> None:
        """Protects reproducibility: few bits remain, and a sum's last bits change nothing."""
        values = np.array([0.0, 1.0, -1.0039, 3.14159, 1e-30, 255.4])
        near = rounded(values * (1 + 1e-13))
        self.assertEqual(near.tolist(), rounded(values).tolist())
        self.assertEqual(rounded(np.array([255.4, 3.14159]), 4).tolist(), [256.0, 3.25])
        self.assertTrue((np.abs(near - values) <= np.abs(values) * 2**-8).all())

    def test_subclassed(self) -> None:
        """A model that can't be rebuilt is refused with a workaround."""
        model = """\
import keras

from tfaot.calibrate import calibrated


class Own(keras.Model):
    def __init__(self, units):
        super().__init__(name="own")
        self.dense = keras.layers.Dense(units)

    def call(self, x):
        return self.dense(x)


model = Own(3)
model.build((None, 2))
calibrated(model)
"""
        self.assertIn(
            "calibrated() can't rebuild the model own in float64",
            self.error_of(self.export, model, signature={"x": "float32[1, 2]"}),
        )


if __name__ == "__main__":
    unittest.main()
