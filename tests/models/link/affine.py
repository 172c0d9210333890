"""A model small enough to check by hand: y = w x + b, after which w grows by one."""

import tensorflow as tf

tf1 = tf.compat.v1


def input_fn():
    """Returns four values, and a target that the loss doesn't need."""
    return tf1.placeholder(tf.float32, [4], "x"), tf1.placeholder(tf.float32, [], "unused")


def model_fn(features, labels):
    """Returns y before the step. w is written, and b is only read."""
    del labels
    w = tf1.get_variable("w", initializer=[1.0, 2.0, 3.0, 4.0])
    b = tf1.get_variable("b", initializer=[0.5, 0.5, 0.5, 0.5])
    y = w * features + b
    with tf.control_dependencies([y]):
        grow = tf1.assign_add(w, tf.ones([4]))
    with tf.control_dependencies([grow]):
        return {"y": tf.identity(y)}
