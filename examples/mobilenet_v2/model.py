"""MobileNetV2 as Keras has it, for one picture, with random weights that are calibrated."""

import keras

from tfaot.calibrate import calibrated


def model():
    """Returns the model; what `model()` returns is what is compiled."""
    return calibrated(keras.applications.MobileNetV2(input_shape=(224, 224, 3), weights=None, classes=1000))
