"""A model with more than 5 GB of weights: selected rows of a large table, multiplied by some of another."""

import numpy as np
import tensorflow as tf

ROWS, CLASSES, WIDTH = 18_000_000, 2_000_000, 64
PLACES, COLUMNS = range(ROWS // 8 - 1, ROWS, ROWS // 8), range(CLASSES // 4 - 1, CLASSES, CLASSES // 4)
"""Indices of nonzero values, including the last ones. Zeros take no space in the file with initial values."""


def rows_at(places, rows):
    """Returns a table that is zero except for some rows."""
    values = np.random.default_rng(rows).standard_normal((len(places), WIDTH)).astype(np.float32)
    return tf.scatter_nd([[place] for place in places], values, (rows, WIDTH))


# In the file, the table extends beyond 4 GB, and the classes come after it.
table = tf.Variable(rows_at(PLACES, ROWS), name="table")
classes = tf.Variable(rows_at(COLUMNS, CLASSES), name="classes")
calls = tf.Variable(0, dtype=tf.int64, name="calls")


@tf.function(
    input_signature=[tf.TensorSpec((8,), tf.int32, name="rows"), tf.TensorSpec((4,), tf.int32, name="columns")]
)
def model(rows, columns):
    """Looks up rows, multiplies them by classes, and counts its calls."""
    calls.assign_add(1)
    looked_up = tf.gather(table, rows)
    return {"found": looked_up, "scores": tf.matmul(looked_up, tf.gather(classes, columns), transpose_b=True)}


def golden_fn(step, rng):
    """Returns all nonzero rows, in any order."""
    return rng.permutation(PLACES).astype(np.int32), rng.permutation(COLUMNS).astype(np.int32)
