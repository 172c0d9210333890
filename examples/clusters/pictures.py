"""A classifier of pictures. The program decodes them, and compiled code does the rest."""

import numpy as np
import tensorflow as tf

SIZE = 32


class Pictures(tf.Module):
    """Two convolutions and a layer, and what it remembers of the pictures so far."""

    def __init__(self):
        super().__init__()
        draw = np.random.default_rng(11).normal
        self.filters = [tf.Variable(draw(0, 0.2, size).astype(np.float32)) for size in [(3, 3, 3, 8), (3, 3, 8, 16)]]
        self.weights = tf.Variable(draw(0, 0.3, (16, 10)).astype(np.float32))
        self.count = tf.Variable(0, name="count", trainable=False)
        self.brightness = tf.Variable(0.5, name="brightness", trainable=False)

    @tf.function(input_signature=[tf.TensorSpec([], tf.string, name="file")])
    def __call__(self, file):
        """Returns the probabilities of a picture in BMP of 32 x 32 pixels, and the mean brightness of the latest pictures."""
        pixels = tf.ensure_shape(tf.io.decode_bmp(file, channels=3), [SIZE, SIZE, 3])
        x = tf.cast(pixels, tf.float32)[tf.newaxis] / 255.0
        self.count.assign_add(1)
        self.brightness.assign_add((tf.reduce_mean(x) - self.brightness) * 0.1)
        x -= 0.5
        for filters in self.filters:
            x = tf.nn.relu(tf.nn.conv2d(x, filters, strides=2, padding="SAME"))
        probabilities = tf.nn.softmax(tf.matmul(tf.reduce_mean(x, [1, 2]), self.weights))[0]
        return {"probabilities": probabilities, "brightness": self.brightness.read_value()}


model = Pictures


def bmp(pixels):
    """Returns a file with these pixels, 24 bits each, the lowest row first."""
    rows, columns, _ = pixels.shape
    header = b"BM" + np.array([54 + pixels.size, 0, 54, 40, columns, rows], "<i4").tobytes()
    header += np.array([1, 24], "<i2").tobytes() + np.zeros(6, "<i4").tobytes()
    return header + pixels[::-1, :, ::-1].tobytes()


def golden_fn(step, rng):
    """Returns a picture to verify with."""
    return bmp(rng.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8))
