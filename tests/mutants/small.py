"""A training step of a small network with room for every fault.

It has a convolution, products with biases, gradients of all of them, a mask, an index that comes from a count of floats, and
dropout.
"""

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def input_fn():
    """Returns images and a mask of their columns, and labels."""
    x = {"x": v1.placeholder(tf.float32, [4, 6, 6, 2], "x"), "mask": v1.placeholder(tf.bool, [4, 6], "mask")}
    return x, v1.placeholder(tf.float32, [4, 3], "y")


def _weights(name, *shape):
    values = np.random.default_rng(len(name)).standard_normal(shape).astype(np.float32) * 0.3
    return v1.get_variable(name, initializer=values)


def model_fn(features, labels):
    """Takes one step of gradient descent with momentum."""
    x = tf.nn.relu(tf.nn.conv2d(features["x"], _weights("filters", 3, 3, 2, 8), 1, "SAME"))
    count = tf.reduce_sum(tf.cast(features["mask"], tf.float32), 1)
    last = tf.gather(x, tf.maximum(tf.cast(count, tf.int32) - 1, 0), axis=2, batch_dims=1)
    x = tf.where(features["mask"][:, None, :, None], x, 0.0) + last[:, :, None, :]
    x = tf.nn.dropout(tf.reshape(x, [4, -1]), 0.25)
    x = tf.nn.relu(x @ _weights("hidden/kernel", 288, 16) + _weights("hidden/bias", 16))
    x = tf.nn.relu(x @ _weights("middle/kernel", 16, 16) + _weights("middle/bias_", 16))
    logits = x @ _weights("logits/kernel", 16, 3) + _weights("logits/bias", 3)
    loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=tf.nn.softmax(labels), logits=logits))
    step = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    with tf.control_dependencies([step]):
        return tf.identity(loss, "loss")
