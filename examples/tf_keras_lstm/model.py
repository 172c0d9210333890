"""Training and inference of a tf-keras LSTM from one target, over one set of variables."""

import tensorflow as tf
import tf_keras

from tfaot.calibrate import calibrated

BATCH, STEPS, FEATURES, CLASSES = 16, 20, 8, 5


def model():
    """Returns the compiled model; its default LSTM needs no edit."""
    result = tf_keras.Sequential(
        [
            tf_keras.layers.Input((STEPS, FEATURES), name="x"),
            tf_keras.layers.LSTM(32, name="lstm"),
            tf_keras.layers.Dense(CLASSES, name="logits"),
        ]
    )
    calibrated(result)
    result.compile(
        optimizer=tf_keras.optimizers.Adam(0.01),
        loss=tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return result


def input_fn():
    """What a training step takes: a batch, and its labels."""
    return tf.TensorSpec((BATCH, STEPS, FEATURES)), tf.TensorSpec((BATCH,), tf.int32)


def golden_fn(step, rng, entry_point):
    """Inputs that are verified."""
    x = rng.standard_normal((BATCH, STEPS, FEATURES))
    return x if entry_point == "call" else (x, rng.integers(0, CLASSES, BATCH))
