"""A generator of texts: a loop of TensorFlow 2 that computes the next word, and appends it to a string."""

import numpy as np
import tensorflow as tf

TEXTS, SIZE, WORDS, STEPS = 8, 128, 1000, 6


class Speaker(tf.Module):
    """A recurrent cell of two layers, and an embedding that also scores the words."""

    def __init__(self):
        super().__init__()
        draw = np.random.default_rng(9).normal
        self.table = tf.Variable(draw(0, 1, (WORDS, SIZE)).astype(np.float32))
        self.inner = tf.Variable(draw(0, 0.08, (2 * SIZE, 2 * SIZE)).astype(np.float32))
        self.outer = tf.Variable(draw(0, 0.08, (2 * SIZE, SIZE)).astype(np.float32))

    @tf.function(input_signature=[tf.TensorSpec([TEXTS, SIZE], name="state")])
    def __call__(self, state):
        """Returns the texts, and the last state."""
        words = tf.constant([f"word{number}" for number in range(WORDS)])
        texts, last = tf.fill([TEXTS], "said:"), tf.zeros([TEXTS], tf.int64)
        for _ in tf.range(STEPS):
            both = tf.concat([state, tf.gather(self.table, last)], 1)
            state = tf.tanh(tf.matmul(tf.nn.gelu(tf.matmul(both, self.inner)), self.outer))
            last = tf.argmax(tf.matmul(state, self.table, transpose_b=True), -1)
            texts = tf.strings.join([texts, tf.gather(words, last)], " ")
        return {"texts": texts, "state": state}


model = Speaker


def golden_fn(step, rng):
    """Returns states."""
    return rng.normal(size=(TEXTS, SIZE)).astype(np.float32)
