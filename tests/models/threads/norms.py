"""Norms of rows one after another, in which products that are rounded meet products that are fused with a sum."""

import numpy as np
import tensorflow as tf

_RNG = np.random.default_rng(7)
ROWS, COLUMNS = 512, 65


def _weights(low, high):
    return tf.constant(_RNG.uniform(low, high, COLUMNS).astype("float32"))


FIRST, SECOND, SCALE = (_weights(0.5, 1.5) for _ in range(3))
SHIFT = _weights(-1, 1)


@tf.function(input_signature=[tf.TensorSpec((ROWS, COLUMNS), name=name) for name in ("x", "y")])
def model(x, y):
    """Returns a chain of norms, and the softmax of its rows."""

    def root(value, weights):
        return value * tf.math.rsqrt(tf.reduce_mean(tf.square(value), -1, keepdims=True) + 1e-6) * weights

    a = root(x + y, FIRST) + x * 2.0
    b = root(a, SECOND) + x * 2.0
    mean, variance = tf.nn.moments(b, [-1], keepdims=True)
    z = tf.nn.elu(tf.nn.batch_normalization(b, mean, variance, SHIFT, SCALE, 1e-5)) + y * 2.0
    return {"z": z, "most": tf.reduce_max(z, -1), "shares": tf.nn.softmax(z * 0.3)}
