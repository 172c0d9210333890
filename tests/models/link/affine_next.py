"""What affine.py might become in a later release: the same class with other numbers, and a variable more."""

import tensorflow as tf

tf1 = tf.compat.v1


def input_fn():
    """Returns four values, and a target that the loss doesn't need."""
    return tf1.placeholder(tf.float32, [4], "x"), tf1.placeholder(tf.float32, [], "unused")


def model_fn(features, labels):
    """Returns y = w x - b + c before the step."""
    del labels
    w = tf1.get_variable("w", initializer=[10.0, 20.0, 30.0, 40.0])
    b = tf1.get_variable("b", initializer=[1.0, 1.0, 1.0, 1.0])
    c = tf1.get_variable("c", initializer=[3.0, 3.0, 3.0, 3.0])
    y = w * features - b + c
    with tf.control_dependencies([y]):
        grow = tf1.assign_add(w, tf.ones([4]))
    with tf.control_dependencies([grow]):
        return {"y": tf.identity(y)}
