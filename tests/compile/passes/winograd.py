"""3x3 convolutions in the places where models have them. The generated test compares the compiled code with TensorFlow."""

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
rng = np.random.default_rng(5)


def _kernel(*shape):
    return rng.standard_normal(shape).astype("float32") / np.float32(np.sqrt(np.prod(shape[:-1])))


def input_fn():
    return v1.placeholder(tf.float32, [2, 13, 12, 3], "picture"), ()


def model_fn(picture, _):
    x = tf.nn.relu(tf.nn.conv2d(picture, _kernel(3, 3, 3, 48), 1, "SAME"))
    y = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, _kernel(3, 3, 48, 80), 1, "VALID"), _kernel(80)))
    z = tf.nn.conv2d(y, _kernel(3, 3, 80, 80), 1, "SAME")
    y = tf.nn.relu(z + y)
    shared = _kernel(3, 3, 80, 80)
    y = tf.nn.relu6(tf.nn.conv2d(y, shared, 1, "SAME"))
    y = tf.nn.relu6(tf.nn.conv2d(y, shared, 1, [[0, 0], [2, 1], [0, 2], [0, 0]]))
    return y, z
