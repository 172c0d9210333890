"""A training step with dtypes at its edge that no C++ type has, and names that aren't identifiers."""

import tensorflow as tf

tf1 = tf.compat.v1


def input_fn():
    """Returns activations of three precisions, and a wave."""
    features = {
        "x": tf1.placeholder(tf.float32, [8, 16], "x"),
        "half": tf1.placeholder(tf.bfloat16, [8, 4], "half-1.0"),
        "sixteen": tf1.placeholder(tf.float16, [4], "sixteen"),
    }
    return features, tf1.placeholder(tf.complex64, [8, 4], "wave")


def model_fn(features, labels):
    """Returns the loss and a tensor of each dtype, after the weights took a step."""
    with tf1.variable_scope("layer.0/a-b"):
        weights = tf1.get_variable("w", [16, 4])
        small = tf1.get_variable("small", [4], tf.bfloat16, initializer=tf1.ones_initializer())
    phase = tf1.get_variable("phase", initializer=tf.constant([1, 1j, -1, 1 + 1j], tf.complex64))
    hidden = tf.math.erf(tf.matmul(features["x"], weights))
    wave = labels * phase * tf.cast(hidden, tf.complex64)
    half = features["half"] * small
    loss = tf.reduce_mean(tf.square(hidden)) + tf.reduce_mean(tf.abs(wave))
    # In this order, because a graph doesn't define whether a variable is read before another op writes it.
    with tf.control_dependencies([half, wave]):
        steps = [
            tf1.train.GradientDescentOptimizer(0.5).minimize(loss, var_list=[weights]),
            small.assign_sub(tf.reduce_mean(half, 0)),
            phase.assign(phase * tf.constant(0.6 + 0.8j, tf.complex64)),
        ]
    with tf.control_dependencies(steps):
        return {
            "loss": tf.identity(loss),
            "half": tf.identity(half),
            "sixteen": features["sixteen"] * 2,
            "wave": tf.identity(wave),
        }
