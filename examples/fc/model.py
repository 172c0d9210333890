"""The study's `fc`: four dense layers of 256 and one of 10, gradient descent, batches of 64."""

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1


def input_fn():
    """Returns placeholders for 64 images of 784 values, and their one-hot labels."""
    return tf1.placeholder(tf.float32, [64, 784], "x"), tf1.placeholder(tf.float32, [64, 10], "y")


def golden_fn(step, rng):
    """Returns the inputs that the generated test verifies: noise, and random labels."""
    del step
    return rng.standard_normal((64, 784)), np.eye(10)[rng.integers(0, 10, 64)]


def model_fn(features, labels):
    """Returns the loss before the step, after all variables took the step."""
    with tf1.variable_scope("fc"):
        hidden = features
        for layer in range(4):
            hidden = tf1.layers.dense(hidden, 256, tf.nn.relu, name=f"hidden{layer}")
        logits = tf1.layers.dense(hidden, 10, name="logits")
        loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        with tf.control_dependencies([tf1.train.GradientDescentOptimizer(0.01).minimize(loss)]):
            return tf.identity(loss, name="loss")
