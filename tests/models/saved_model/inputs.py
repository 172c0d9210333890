"""Inputs to verify for a SavedModel, which has no Python file of its own."""

import numpy as np


def golden_fn(step, rng):
    """Returns values far from those that are drawn without it."""
    return {"x": 1000 * (step + 1) + rng.random(4).astype(np.float32)}
