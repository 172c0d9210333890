"""A classifier that is asked for batches of any size."""

import keras

from tfaot.calibrate import calibrated


def model():
    """Returns a model that leaves its batch open."""
    return calibrated(
        keras.Sequential(
            [
                keras.Input((20,), name="x"),
                keras.layers.Dense(64, activation="relu", name="hidden"),
                keras.layers.Dense(10, activation="softmax", name="classes"),
            ]
        )
    )
