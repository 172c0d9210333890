"""A decoder that reads a source and writes a target: both have any number of tokens, which have nothing to do with each other."""

import numpy as np
import tensorflow as tf

WORDS, WIDTH = 500, 48


class Translator(tf.Module):
    """A layer of causal attention among the target's tokens, and one of attention to the source's."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)

        def weight(name, *shape):
            return tf.Variable(rng.standard_normal(shape, np.float32) / shape[0] ** 0.5, name=name)

        self.words = weight("words", WORDS, WIDTH)
        self.own = [weight(f"own{i}", WIDTH, WIDTH) for i in range(3)]
        self.others = [weight(f"others{i}", WIDTH, WIDTH) for i in range(3)]

    @staticmethod
    def attend(weights, query, values, scores):
        """Returns the mean of values, weighted by how well they fit a query."""
        query, key, value = (x @ weight for x, weight in zip((query, values, values), weights, strict=True))
        fits = tf.matmul(query, key, transpose_b=True) / WIDTH**0.5
        return tf.nn.softmax(fits + scores) @ value

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, None), tf.int32, "source"),
            tf.TensorSpec((None, None), tf.int32, "target"),
        ]
    )
    def __call__(self, source, target):
        """Returns scores of the word after each of the target's tokens. The source's token 0 is padding."""
        length = tf.shape(target)[1]
        later = 1 - tf.linalg.band_part(tf.ones([length, length]), -1, 0)
        padding = tf.cast(source == 0, tf.float32)[:, None, :]
        read = tf.gather(self.words, source)
        x = tf.gather(self.words, target)
        x += self.attend(self.own, x, x, -1e9 * later)
        x += self.attend(self.others, x, read, -1e9 * padding)
        return {"scores": tf.matmul(x, self.words, transpose_b=True), "last": x[:, -1]}


def model():
    """Returns the translator, whose call is the entry point."""
    return Translator()
