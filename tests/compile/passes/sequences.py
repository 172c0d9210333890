"""Convolutions along sequences, dilated and causal. The generated test compares the compiled code with TensorFlow."""

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
rng = np.random.default_rng(29)


def _kernel(*shape):
    return rng.standard_normal(shape).astype("float32") / np.float32(np.sqrt(np.prod(shape[:-1])))


def input_fn():
    return v1.placeholder(tf.float32, [2, 75, 3], "steps"), ()


def model_fn(steps, _):
    x = tf.nn.conv1d(tf.pad(steps, [[0, 0], [2, 0], [0, 0]]), _kernel(3, 3, 40), 1, "VALID")
    for dilation in (1, 5, 32, 70):  # the last one has a tap that is in the padding for most outputs
        causal = tf.pad(x, [[0, 0], [2 * dilation, 0], [0, 0]])
        y = tf.nn.convolution(causal, _kernel(3, 40, 40), 1, "VALID", None, dilation)
        x += tf.nn.relu(tf.nn.bias_add(y, _kernel(40)))
    around = tf.nn.relu(tf.nn.convolution(x, _kernel(3, 40, 20), 1, "SAME", None, 33))
    return around, tf.nn.conv1d(x, _kernel(2, 40, 70), 2, "VALID")
