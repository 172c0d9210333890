"""The same code with other weights."""

import tensorflow as tf

w = tf.Variable([[7.0], [2.0], [-1.0]], name="w")


@tf.function(input_signature=[tf.TensorSpec((1, 3), tf.float32, name="x")])
def model(x):
    """Returns 9 for ones."""
    return tf.matmul(x, w) + 1.0
