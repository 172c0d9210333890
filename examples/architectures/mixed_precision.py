"""A training step in mixed precision: a small convolutional network computes in bfloat16, and Adam updates float32 weights."""

import keras
import tensorflow as tf
from keras import layers

from tfaot.calibrate import calibrated

BATCH, SIZE, CLASSES = 8, 16, 10


def model():
    """Builds and compiles the network."""
    keras.config.set_dtype_policy("mixed_bfloat16")
    result = keras.Sequential(
        [
            keras.Input((SIZE, SIZE, 3), name="x"),
            layers.Conv2D(16, 3, activation="relu", name="conv_0"),
            layers.Conv2D(32, 3, strides=2, activation="relu", name="conv_1"),
            layers.GlobalAveragePooling2D(name="pool"),
            layers.Dense(32, activation="relu", name="hidden"),
            layers.Dense(CLASSES, dtype="float32", name="logits"),
        ]
    )
    calibrated(result)
    result.compile(
        optimizer=keras.optimizers.Adam(1e-3), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    return result


def input_fn():
    """What a training step takes: images, and their classes."""
    return tf.TensorSpec((BATCH, SIZE, SIZE, 3)), tf.TensorSpec((BATCH,), tf.int32)


def golden_fn(step, rng):
    """Noise, and random classes."""
    return rng.standard_normal((BATCH, SIZE, SIZE, 3)), rng.integers(0, CLASSES, BATCH)
