"""The study's `fc`: four dense layers of 256 and one of 10, trained by gradient descent on batches of 64."""

import tensorflow as tf

tf1 = tf.compat.v1


def input_fn():
    """Returns images of 784 values, and one-hot labels of 10 classes."""
    return tf1.placeholder(tf.float32, [64, 784], "x"), tf1.placeholder(tf.float32, [64, 10], "y")


def model_fn(features, labels):
    """Returns the loss before the step, after all variables took the step."""
    with tf1.variable_scope("fc"):
        hidden = features
        for layer in range(4):
            hidden = tf1.layers.dense(hidden, 256, activation=tf.nn.relu, name=f"hidden{layer}")
        logits = tf1.layers.dense(hidden, 10, name="logits")
    loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    train = tf1.train.GradientDescentOptimizer(0.01).minimize(loss)
    with tf.control_dependencies([train]):
        return tf.identity(loss, name="loss")


def golden_fn(step, rng):
    """Returns a batch of noise with random labels for the test to verify."""
    del step
    labels = rng.integers(0, 10, 64)
    return rng.standard_normal((64, 784)), tf.keras.utils.to_categorical(labels, 10)
