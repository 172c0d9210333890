"""A network of dense layers, trained with SGD by several replicas."""

import keras
from training import Trainer, golden_fn  # noqa: F401


def build():
    """Returns the network."""
    layers = [keras.layers.Dense(256, activation="relu") for _ in range(4)]
    return keras.Sequential([keras.Input([28, 28, 1]), keras.layers.Flatten(), *layers, keras.layers.Dense(10)])


model = Trainer(build, lambda: keras.optimizers.SGD(0.01, name="optimizer"))
