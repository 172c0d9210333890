"""Four layers of attention, one on top of the other."""

import keras
from keras import layers

from tfaot.calibrate import calibrated


def model():
    """Builds the stack."""
    x = inputs = keras.Input((48, 96), name="x")
    for index in range(4):
        attended = layers.MultiHeadAttention(6, 16, name=f"attention_{index}")(x, x)
        x = layers.LayerNormalization(name=f"norm_{index}")(x + attended)
    return calibrated(keras.Model(inputs, layers.Dense(8, name="out")(x)))
