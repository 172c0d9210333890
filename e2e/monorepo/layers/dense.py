"""Layers that several models share."""

import numpy as np


def kernel(rows, columns):
    """Returns the initial values of a kernel."""
    return np.arange(rows * columns, dtype=np.float32).reshape(rows, columns) / (rows * columns)
