"""A training step of a small network: a convolution, two products with biases, and gradients of all of them."""

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def input_fn():
    """Returns images and their labels."""
    return v1.placeholder(tf.float32, [4, 6, 6, 2], "x"), v1.placeholder(tf.float32, [4, 3], "y")


def _weights(name, *shape):
    values = np.random.default_rng(len(name)).standard_normal(shape).astype(np.float32) * 0.3
    return v1.get_variable(name, initializer=values)


def model_fn(features, labels):
    """Takes one step of gradient descent with momentum."""
    x = tf.nn.relu(tf.nn.conv2d(features, _weights("filters", 3, 3, 2, 8), 1, "SAME"))
    x = tf.reshape(x, [4, -1])
    x = tf.nn.relu(x @ _weights("hidden/kernel", 288, 16) + _weights("hidden/bias", 16))
    x = tf.nn.relu(x @ _weights("middle/kernel", 16, 16) + _weights("middle/bias_", 16))
    logits = x @ _weights("logits/kernel", 16, 3) + _weights("logits/bias", 3)
    loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=tf.nn.softmax(labels), logits=logits))
    step = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    with tf.control_dependencies([step]):
        return tf.identity(loss, "loss")
