"""A model that writes nothing. The target decides which of its weights are constants in the code."""

import tensorflow as tf

body_kernel = tf.Variable(tf.zeros((4, 16)), name="body/kernel")
body_bias = tf.Variable(tf.zeros((16,)), name="body/bias")
head_kernel = tf.Variable(tf.zeros((16, 2)), name="head/kernel")
head_bias = tf.Variable(tf.zeros((2,)), name="head/bias")


@tf.function(input_signature=[tf.TensorSpec((4,), name="x")])
def model(x):
    """Returns two values computed from four, by way of sixteen."""
    hidden = tf.nn.relu(tf.linalg.matvec(body_kernel, x, transpose_a=True) + body_bias)
    return {"y": tf.linalg.matvec(head_kernel, hidden, transpose_a=True) + head_bias}
