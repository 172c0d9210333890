"""A linear scorer with 4 MB of weights, which change while it serves."""

import tensorflow as tf

kernel = tf.Variable(tf.ones((1024, 1024)), name="kernel")
bias = tf.Variable(tf.ones((1024,)), name="bias")


@tf.function(input_signature=[tf.TensorSpec((1024,), tf.float32, name="x")])
def model(x):
    """Returns a score for each of 1024 classes."""
    return {"score": tf.linalg.matvec(kernel, x, transpose_a=True) + bias}
