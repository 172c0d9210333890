"""A training step of a bidirectional LSTM over few steps, for the loop passes. Its generated test compares with TensorFlow.

TensorFlow runs the graph as exported, so its numbers are those without passes.
"""

import tensorflow as tf

v1 = tf.compat.v1


def input_fn():
    """Returns placeholders for 2 sequences of 7 steps with 24 features, and their labels."""
    return v1.placeholder(tf.float32, [2, 7, 24], "x"), v1.placeholder(tf.float32, [2, 5], "y")


def model_fn(features, labels):
    """Returns the loss before the step, after all variables took the step."""
    states = tf.keras.layers.Bidirectional(tf.keras.layers.LSTM(16, return_sequences=True))(features)
    logits = v1.layers.dense(tf.keras.layers.LSTM(8)(states), 5)
    loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels, logits))
    with tf.control_dependencies([v1.train.GradientDescentOptimizer(0.1).minimize(loss)]):
        return tf.identity(loss)
