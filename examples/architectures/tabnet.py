"""TabNet: gated layers, and masks of features by sparsemax, in three steps."""

import keras
import tensorflow as tf
from keras import layers

from tfaot.calibrate import calibrated

FEATURES = 20


class Sparsemax(layers.Layer):
    """The nearest point of the simplex, which is zero for most features."""

    def call(self, z):
        """Computes it by sorting."""
        ordered = tf.sort(z, -1, "DESCENDING")
        sums = tf.cumsum(ordered, -1)
        ranks = tf.range(1, FEATURES + 1, dtype=z.dtype)
        count = tf.reduce_sum(tf.cast(1 + ranks * ordered > sums, tf.int32), -1)
        threshold = (tf.gather(sums, count - 1, batch_dims=1) - 1) / tf.cast(count, z.dtype)
        return tf.nn.relu(z - threshold[:, None])


def gated(x, width):
    """Returns a gated layer's result."""
    y = layers.BatchNormalization()(layers.Dense(2 * width, use_bias=False)(x))
    return y[:, :width] * keras.ops.sigmoid(y[:, width:])


def model():
    """Builds the network, with weights that make every feature count."""
    features = keras.Input((FEATURES,), name="features")
    x = layers.BatchNormalization()(features)
    state, prior, total = gated(x, 16), keras.ops.ones_like(x), 0
    for _ in range(3):
        scores = layers.BatchNormalization()(layers.Dense(FEATURES, use_bias=False)(state))
        mask = Sparsemax()(scores * prior)
        prior = prior * (1.3 - mask)
        hidden = gated(x * mask, 16)
        state = (hidden + gated(hidden, 16)) * 0.7071
        total = total + keras.ops.relu(state[:, :8])
    return calibrated(keras.Model(features, layers.Dense(3)(total)))
