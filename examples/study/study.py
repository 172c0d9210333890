"""What the study's 14 models share: their inputs, their layers, and how a loss becomes a training step."""

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1

CLASSES = 10


def flat_images():
    """Returns placeholders for 64 images of 784 values, and their one-hot labels."""
    return tf1.placeholder(tf.float32, [64, 784], "x"), tf1.placeholder(tf.float32, [64, CLASSES], "y")


def images():
    """Returns placeholders for 64 images of 28 by 28 by 3 values, and their one-hot labels."""
    return tf1.placeholder(tf.float32, [64, 28, 28, 3], "x"), tf1.placeholder(tf.float32, [64, CLASSES], "y")


def sequences():
    """Returns placeholders for 16 sequences of 100 values, and their one-hot labels."""
    return tf1.placeholder(tf.float32, [16, 100, 1], "x"), tf1.placeholder(tf.float32, [16, CLASSES], "y")


def noise_like(input_fn):
    """Returns a `golden_fn`: normal noise of the shape of `input_fn`'s features, and random one-hot labels."""

    def golden_fn(step, rng):
        del step
        with tf.Graph().as_default():
            features, labels = input_fn()
        classes = rng.integers(0, labels.shape[1], labels.shape[0])
        return rng.standard_normal(features.shape), np.eye(labels.shape[1])[classes]

    return golden_fn


def dense(values, units, name, activation=None, norm=None):
    """Returns a dense layer; unless `norm` is None, batch norm follows its activation, for training if `norm` is true."""
    values = tf1.layers.dense(values, units, activation=activation, name=name)
    if norm is None:
        return values
    # Read-only statistics represent those of an earlier training. With 0 and 1, a model that ignores them would go unnoticed.
    mean, variance = (
        (uniform(-0.5, 0.5), uniform(0.5, 2)) if not norm else (tf1.zeros_initializer(), tf1.ones_initializer())
    )
    return tf1.layers.batch_normalization(
        values, training=norm, name=name + "_norm", moving_mean_initializer=mean, moving_variance_initializer=variance
    )


def uniform(low, high):
    """Returns an initializer of random values."""
    return tf1.random_uniform_initializer(low, high)


def fully_connected(features, norm=None):
    """Returns the logits of four dense layers of 256 and one of 10."""
    hidden = features
    for layer in range(4):
        hidden = dense(hidden, 256, f"hidden{layer}", tf.nn.relu, norm)
    return dense(hidden, CLASSES, "logits")


def convolutional(features, norm=None):
    """Returns the logits of one convolution of 4 filters, a dense layer of 256, and one of 10."""
    hidden = tf1.layers.conv2d(features, 4, 2, activation=tf.nn.relu, name="conv")
    hidden = dense(tf1.layers.flatten(hidden), 256, "hidden", tf.nn.relu, norm)
    return dense(hidden, CLASSES, "logits")


def cross_entropy(logits, labels):
    """Returns the mean cross entropy with one-hot labels."""
    return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def train(loss, optimizer, updates=()):
    """Returns the loss before the step, after all variables took the step and batch norm its updates."""
    updates = [*tf1.get_collection(tf1.GraphKeys.UPDATE_OPS), *updates]
    with tf.control_dependencies([optimizer.minimize(loss), *updates]):
        return tf.identity(loss, name="loss")


def sgd(rate=0.01):
    """Returns plain gradient descent."""
    return tf1.train.GradientDescentOptimizer(rate)


def adam():
    """Returns Adam with the study's rate."""
    return tf1.train.AdamOptimizer(0.01)
