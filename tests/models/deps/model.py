"""A model with code in three places: here, in a library in the workspace, and in a package that pip installed.

It reads two files: one in the workspace, and one that a rule generates.
"""

from importlib import resources
from pathlib import Path

import numpy as np
import scipy
import tensorflow as tf

from tests.models.deps.scaling import scaled

# The package comes with its own NumPy, but TensorFlow's counts.
assert "tfaot_jax" in scipy.__file__, scipy.__file__
assert "tfaot_tensorflow" in np.__file__, np.__file__

factor = float((resources.files("tests.models.deps") / "factor.txt").read_text())
offset = float((resources.files("tests.models.deps") / "offset.txt").read_text())
assert (factor, offset) == (2.5, float(Path("tests/models/deps/offset.txt").read_text()))

hadamard = tf.constant(scipy.linalg.hadamard(4), tf.float32)


def model(x):
    """Scales rows, and transforms them with a matrix from SciPy."""
    return scaled(x) @ hadamard * factor + offset
