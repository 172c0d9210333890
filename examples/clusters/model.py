"""A classifier of encoded images. TensorFlow decodes them, because XLA can't; the rest compiles."""

import numpy as np
import tensorflow as tf


class Classifier(tf.Module):
    """Three convolutions and a layer."""

    def __init__(self):
        super().__init__()
        draw = np.random.default_rng(7).normal
        sizes = [(3, 3, 3, 16), (3, 3, 16, 32), (3, 3, 32, 32)]
        self.filters = [tf.Variable(draw(0, 0.1, size).astype(np.float32), trainable=True) for size in sizes]
        self.weights = tf.Variable(draw(0, 0.1, (32, 10)).astype(np.float32))

    @tf.function(input_signature=[tf.TensorSpec([], tf.string, name="image")])
    def __call__(self, image):
        """Returns the probabilities of an image in PNG."""
        pixels = tf.io.decode_png(image, channels=3)
        x = tf.image.resize(tf.cast(pixels, tf.float32)[tf.newaxis] / 255.0, [64, 64])
        for filters in self.filters:
            x = tf.nn.relu(tf.nn.conv2d(x, filters, strides=2, padding="SAME"))
        x = tf.reduce_mean(x, axis=[1, 2])
        return {"probabilities": tf.nn.softmax(tf.matmul(x, self.weights))[0]}


model = Classifier


def golden_fn(step, rng):
    """Returns an image to verify with, of a new size in each step."""
    pixels = rng.integers(0, 256, (40 + 8 * step, 50, 3), dtype=np.uint8)
    return tf.io.encode_png(pixels).numpy()
