"""Batch norm in the places where models have it. The generated test compares the compiled code with TensorFlow.

TensorFlow runs the graph as exported, so its numbers are those without passes.
"""

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
rng = np.random.default_rng(3)


def _normal(*shape):
    return rng.standard_normal(shape).astype("float32") / np.float32(np.sqrt(np.prod(shape[:-1]) or 1))


def _norm(x, channels):
    scale, variance = (rng.uniform(0.5, 2, channels).astype("float32") for _ in range(2))
    return v1.nn.fused_batch_norm(x, scale, _normal(channels), _normal(channels), variance, is_training=False)[0]


def _plain_norm(x, channels):
    scale, variance = (rng.uniform(0.5, 2, channels).astype("float32") for _ in range(2))
    return tf.nn.batch_normalization(x, _normal(channels), variance, _normal(channels), scale, 1e-3)


def input_fn():
    return v1.placeholder(tf.float32, [2, 13, 12, 3], "picture"), v1.placeholder(tf.float32, [2, 20, 5], "signal")


def model_fn(picture, signal):
    y = tf.nn.relu6(_norm(tf.nn.conv2d(picture, _normal(3, 3, 3, 8), 2, "SAME"), 8))
    y = tf.nn.relu6(_plain_norm(tf.nn.depthwise_conv2d(y, _normal(3, 3, 8, 2), [1, 1, 1, 1], "SAME"), 16))
    y = y + _norm(tf.nn.bias_add(tf.nn.conv2d(y, _normal(1, 1, 16, 16), 1, "SAME"), _normal(16)), 16)
    y = _plain_norm(tf.matmul(tf.reduce_mean(y, [1, 2]), _normal(16, 10)) + _normal(10), 10)
    s = _plain_norm(tf.nn.conv1d(signal, _normal(3, 5, 7), 1, "VALID"), 7)
    return y, tf.tanh(s)
