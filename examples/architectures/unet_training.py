"""A U-Net's training step: two levels down, two up, with batch norm, and a class for each pixel."""

import keras
import tensorflow as tf
from keras import layers

from tfaot.calibrate import calibrated

BATCH, SIZE, CLASSES = 2, 32, 4


def convolved(x, filters, name):
    """Two convolutions with batch norm."""
    for index in range(2):
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False, name=f"{name}_conv_{index}")(x)
        x = layers.ReLU()(layers.BatchNormalization(name=f"{name}_norm_{index}")(x))
    return x


def model():
    """Builds and compiles the network."""
    x = inputs = keras.Input((SIZE, SIZE, 3), name="x")
    skipped = []
    for level, filters in enumerate((16, 32)):
        x = convolved(x, filters, f"down_{level}")
        skipped.append(x)
        x = layers.MaxPooling2D()(x)
    x = convolved(x, 64, "bottom")
    for level, filters in reversed(list(enumerate((16, 32)))):
        x = layers.Conv2DTranspose(filters, 2, strides=2, name=f"up_{level}_transpose")(x)
        x = convolved(layers.Concatenate()([x, skipped[level]]), filters, f"up_{level}")
    result = calibrated(keras.Model(inputs, layers.Conv2D(CLASSES, 1, name="logits")(x)))
    result.compile(
        optimizer=keras.optimizers.SGD(0.01, momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return result


def input_fn():
    """What a training step takes: pictures, and the class of each pixel."""
    return tf.TensorSpec((BATCH, SIZE, SIZE, 3)), tf.TensorSpec((BATCH, SIZE, SIZE), tf.int32)


def golden_fn(step, rng):
    """Noise, and random classes."""
    return rng.standard_normal((BATCH, SIZE, SIZE, 3)), rng.integers(0, CLASSES, (BATCH, SIZE, SIZE))
