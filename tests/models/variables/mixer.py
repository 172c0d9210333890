"""A model with variables of every kind: written and read-only, of several dtypes and sizes, and random numbers."""

import tensorflow as tf

kernel = tf.Variable(tf.reshape(tf.range(64.0), (4, 16)), name="dense/kernel")
bias = tf.Variable(tf.fill((16,), 0.5), name="dense/bias")
keep = tf.Variable([True] * 15 + [False], name="keep")
scale = tf.Variable(tf.constant(2.0, tf.bfloat16), name="scale")
total = tf.Variable(tf.zeros((16,)), name="total")
steps = tf.Variable(0, dtype=tf.int64, name="steps")


@tf.function(input_signature=[tf.TensorSpec((4,), name="x")])
def model(x):
    """Returns `scale * x . kernel + bias` where `keep` says so, and noise. Accumulates its results, and counts calls."""
    y = tf.linalg.matvec(kernel, x, transpose_a=True) * tf.cast(scale, tf.float32) + bias
    y = tf.where(keep, y, tf.zeros_like(y))
    total.assign_add(y)
    steps.assign_add(1)
    return {"noise": tf.random.uniform((16,)), "y": y}
