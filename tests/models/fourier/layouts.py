"""Fourier transforms between transpositions, products, and convolutions, which could give rows another order in memory."""

import tensorflow as tf

v1 = tf.compat.v1


def input_fn():
    """Returns a matrix, a weight, and images."""
    shapes = {"x": [32, 64], "weight": [64, 64], "images": [2, 16, 16, 8]}
    return {name: v1.placeholder(tf.float32, shape, name) for name, shape in shapes.items()}, ()


def model_fn(features, _):
    """Returns one output for each neighbor."""
    x, weight, images = features["x"], features["weight"], features["images"]
    taps = tf.reshape(weight[:9], [3, 3, 8, 8])
    first = tf.transpose(tf.nn.conv2d(images, taps, 1, "SAME"), [0, 3, 1, 2])
    back = tf.transpose(tf.signal.irfft2d(tf.signal.rfft2d(first)), [0, 2, 3, 1])
    return {
        "columns": tf.abs(tf.transpose(tf.signal.fft(tf.transpose(tf.cast(x, tf.complex64))))),
        "after": tf.abs(tf.signal.rfft(tf.transpose(tf.matmul(x, weight)))),
        "before": tf.matmul(tf.transpose(tf.math.real(tf.signal.ifft(tf.cast(x, tf.complex64)))), x),
        "channels": tf.transpose(tf.abs(tf.signal.rfft2d(tf.transpose(images, [0, 3, 1, 2]))), [0, 2, 3, 1]),
        "between": tf.nn.conv2d(back, taps, 1, "SAME"),
    }
