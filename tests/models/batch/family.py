"""A batch family with rows of 12, 8, and 20 bytes, so parts of a batch start at unaligned addresses."""

import numpy as np
import tensorflow as tf

ROWS = 13

w = tf.Variable(tf.random.stateless_normal((3, 5), seed=(1, 2)), name="w")


def model(x, ids, scale):
    """Results of several dtypes, and a scalar that all rows share."""
    y = tf.tanh(x @ w) * scale
    return {"large": tf.reduce_max(y, axis=1) > 0.5, "next": ids + 1, "turned": tf.complex(y[:, 0], y[:, 1]), "y": y}


def golden_fn(step, rng):
    """Batches of 1 row, 2 rows, and so on."""
    rows = step % ROWS + 1
    return rng.standard_normal((rows, 3)), rng.integers(0, 1000, rows), np.float32(1 + step)
