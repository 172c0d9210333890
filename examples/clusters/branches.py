"""A graph of TensorFlow 1: branches of Switch and Merge, and a variable that is read and written around text."""

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def input_fn():
    """Returns the placeholders."""
    features = {"x": v1.placeholder(tf.float32, [16, 32], "x"), "warm": v1.placeholder(tf.bool, [], "warm")}
    return features, v1.placeholder(tf.float32, [16, 8], "y")


def _rounded(x):
    """Rounds to what a text file would hold. XLA has no kernel for strings."""
    return tf.ensure_shape(tf.strings.to_number(tf.strings.as_string(x, precision=4)), x.shape)


def model_fn(features, labels):
    """Returns the loss of a step that trains a layer, whose weights are rounded after it."""
    v1.disable_control_flow_v2()
    x, warm = features["x"], features["warm"]
    draw = np.random.default_rng(3).normal(0, 0.2, (32, 8)).astype(np.float32)
    weights = v1.get_variable("weights", initializer=draw, use_resource=True)

    def strong():
        return tf.tanh(tf.matmul(x, weights) * 2.0) + tf.sin(x[:, :8]) * 0.1

    def weak():
        return tf.nn.softmax(tf.matmul(x, weights)) - 0.125

    made = v1.cond(warm, strong, weak)
    # Nothing ever takes this branch, whose text doesn't compile.
    made = v1.cond(tf.constant(False), lambda: _rounded(made), lambda: made)
    loss = tf.reduce_mean(tf.square(made - labels))
    (gradient,) = tf.gradients(loss, [weights])
    with tf.control_dependencies([weights.assign_sub(0.1 * gradient)]):
        trained = weights.read_value()
    with tf.control_dependencies([weights.assign(_rounded(trained * 0.99))]):
        norm = tf.sqrt(tf.reduce_sum(tf.square(weights.read_value())) + 1e-6)
    return {"loss": loss, "norm": norm}


def golden_fn(step, rng):
    """Returns inputs that take both branches."""
    x, y = rng.normal(size=(16, 32)).astype(np.float32), rng.normal(size=(16, 8)).astype(np.float32)
    return {"x": x, "warm": np.array(step % 2 == 0)}, y
