"""A classifier that is asked for batches of any size."""

import keras


def model():
    """Returns a model that leaves its batch open."""
    keras.utils.set_random_seed(7)
    return keras.Sequential(
        [
            keras.Input((20,), name="x"),
            keras.layers.Dense(64, activation="relu", name="hidden"),
            keras.layers.Dense(10, activation="softmax", name="classes"),
        ]
    )
