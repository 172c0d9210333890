"""EfficientNet-B0 as Keras has it, for one small picture."""

import keras
import numpy as np

from tfaot.calibrate import calibrated

SIZE = 64


def model():
    """Returns the model with weights that are calibrated to pictures like those that are verified."""
    pictures = np.random.default_rng(7).uniform(0, 255, (32, SIZE, SIZE, 3))
    return calibrated(
        keras.applications.EfficientNetB0(input_shape=(SIZE, SIZE, 3), weights=None, classes=100), pictures
    )


def golden_fn(step, rng):
    """A picture of random colours."""
    return rng.uniform(0, 255, (1, SIZE, SIZE, 3))
