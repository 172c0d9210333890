"""A product large enough for one of the runtime's kernels: y = x w."""

import tensorflow as tf

tf1 = tf.compat.v1


def input_fn():
    """Returns 16 rows, and no target."""
    return tf1.placeholder(tf.float32, [16, 128], "x"), ()


def model_fn(features, labels):
    """Returns the product with a fixed matrix."""
    del labels
    w = tf1.get_variable("w", initializer=tf.reshape(tf.range(128 * 64, dtype=tf.float32) % 7.0 - 3.0, [128, 64]))
    return {"y": tf.matmul(features, w)}
