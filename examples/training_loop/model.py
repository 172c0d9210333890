"""Digits, learned in one call: the whole training loop is one compiled function."""

import numpy as np
import tensorflow as tf

ROWS, COLUMNS, CLASSES = 9, 7, 10
COUNT, BATCH, STEPS = 320, 32, 80

# Each digit as seven rows of five pixels.
FONT = (
    "0e1113151911 0e,040c0404040 40e,0e1101020408 1f,1f0204020111 0e,02060a121f02 02,1f101e010111 0e,0608101e1111 0e,"
    "1f0102040808 08,0e11110e1111 0e,0e11110f0102 0c"
)


def _bitmaps():
    rows = [bytes.fromhex(digit.replace(" ", "")) for digit in FONT.split(",")]
    return np.array([[[row >> (4 - bit) & 1 for bit in range(5)] for row in digit] for digit in rows], np.float32)


def digits(rng):
    """Returns images of digits, each somewhere in its frame and noisy, and what they show."""
    labels = rng.integers(0, CLASSES, COUNT, np.int32)
    images = rng.normal(0, 0.2, (COUNT, ROWS, COLUMNS)).astype(np.float32)
    for image, label, row, column in zip(
        images, labels, rng.integers(0, 3, COUNT), rng.integers(0, 3, COUNT), strict=True
    ):
        image[row : row + 7, column : column + 5] += _bitmaps()[label]
    return images.reshape(COUNT, -1), labels


class Digits(tf.Module):
    """Two layers."""

    def __init__(self):
        super().__init__()
        draw = np.random.default_rng(1).normal
        self.hidden = tf.Variable(draw(0, 0.15, (ROWS * COLUMNS, 48)).astype(np.float32), name="hidden")
        self.out = tf.Variable(draw(0, 0.15, (48, CLASSES)).astype(np.float32), name="out")

    def _scores(self, images):
        return tf.matmul(tf.nn.relu(tf.matmul(images, self.hidden)), self.out)

    @tf.function(
        input_signature=[
            tf.TensorSpec([COUNT, ROWS * COLUMNS], tf.float32, "images"),
            tf.TensorSpec([COUNT], tf.int32, "labels"),
        ]
    )
    def train(self, images, labels):
        """Takes all steps; returns the loss of the last, and the share of images that the network then knows."""
        loss = tf.constant(0.0)
        for step in tf.range(STEPS):
            rows = (step * BATCH + tf.range(BATCH)) % COUNT
            with tf.GradientTape() as tape:
                scores = self._scores(tf.gather(images, rows))
                loss = tf.reduce_mean(
                    tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.gather(labels, rows), logits=scores)
                )
            variables = [self.hidden, self.out]
            for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
                variable.assign_sub(0.2 * gradient)
        known = tf.equal(tf.argmax(self._scores(images), -1, tf.int32), labels)
        return {"loss": loss, "known": tf.reduce_mean(tf.cast(known, tf.float32))}


model = Digits


def golden_fn(step, rng):
    """Returns digits to learn."""
    return digits(rng)
