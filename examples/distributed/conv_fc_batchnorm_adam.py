"""A convolution and two dense layers with batch norm, trained with Adam by several replicas, which average moving statistics."""

import keras
from training import Trainer, golden_fn  # noqa: F401


def build():
    """Returns the network."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input([28, 28, 1]),
            layers.Conv2D(16, 3, strides=2, use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Flatten(),
            layers.Dense(64, use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Dense(10),
        ]
    )


model = Trainer(build, lambda: keras.optimizers.Adam(0.001, name="optimizer"))
