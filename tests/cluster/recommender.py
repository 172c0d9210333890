"""A step of training that counts what it saw: `tf.unique` in the middle, an optimizer, and variables on both sides."""

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def input_fn():
    """Returns the placeholders."""
    return v1.placeholder(tf.int32, [64, 4], "items"), v1.placeholder(tf.float32, [64, 1], "liked")


def model_fn(features, labels):
    """Returns the loss, and how many different items the step saw."""
    draw = np.random.default_rng(2).normal
    table = v1.get_variable("table", initializer=draw(0, 1, (500, 64)).astype(np.float32), use_resource=True)
    different, place = tf.unique(tf.reshape(features, [-1]))
    x = tf.reshape(tf.gather(tf.gather(table, different), place), [64, 256])
    x = tf.ensure_shape(x, [64, 256])
    for index, (rows, columns) in enumerate([(256, 256), (256, 128), (128, 1)]):
        start = draw(0, (2 / rows) ** 0.5, (rows, columns)).astype(np.float32)
        weights = v1.get_variable(f"weights{index}", initializer=start, use_resource=True)
        x = tf.matmul(x, weights)
        x = x if columns == 1 else tf.nn.relu(x)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=x))
    train = v1.train.AdamOptimizer(1e-3).minimize(loss)
    seen = v1.get_variable("seen", initializer=np.int32(0), use_resource=True)
    with tf.control_dependencies([train, seen.assign_add(tf.size(different))]):
        return {"loss": tf.identity(loss), "seen": seen.read_value()}


def golden_fn(step, rng):
    """Returns items, some of which repeat."""
    return rng.integers(0, 500, (64, 4), np.int32), rng.integers(0, 2, (64, 1)).astype(np.float32)
