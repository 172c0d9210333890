"""MobileNetV2 as Keras has it, with seeded weights, for one picture."""

import keras


def model():
    """Returns the model; what `model()` returns is what is compiled."""
    keras.utils.set_random_seed(7)
    return keras.applications.MobileNetV2(input_shape=(224, 224, 3), weights=None, classes=1000)
