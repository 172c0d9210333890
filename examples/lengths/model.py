"""A text classifier for up to 64 tokens: for any number of them, and for two fixed numbers, over the same weights."""

import numpy as np
import tensorflow as tf

WORDS, LENGTH, WIDTH = 100, 64, 32


class Classifier(tf.Module):
    """Self-attention over the tokens, and the mean of what it gives."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        self.table = tf.Variable(rng.standard_normal((WORDS, WIDTH), np.float32), name="table")
        self.heads = tf.Variable(rng.standard_normal((WIDTH, 3 * WIDTH), np.float32) / WIDTH**0.5, name="heads")
        self.out = tf.Variable(rng.standard_normal((WIDTH, 4), np.float32) / WIDTH**0.5, name="out")

    def classify(self, tokens):
        """Returns the scores of four classes."""
        x = tf.gather(self.table, tokens)
        query, key, value = tf.split(x @ self.heads, 3, 2)
        weights = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) / WIDTH**0.5)
        return {"scores": tf.reduce_mean(x + weights @ value, 1) @ self.out}

    @tf.function(input_signature=[tf.TensorSpec((1, LENGTH), tf.int32, "tokens"), tf.TensorSpec((), tf.int32, "n")])
    def any_length(self, tokens, n):
        """Of the first n tokens."""
        tokens = tokens[:, :n]
        return self.classify(tokens)

    @tf.function(input_signature=[tf.TensorSpec((1, 16), tf.int32, "tokens")])
    def of_16(self, tokens):
        """Of 16 tokens."""
        return self.classify(tokens)

    @tf.function(input_signature=[tf.TensorSpec((1, LENGTH), tf.int32, "tokens")])
    def of_64(self, tokens):
        """Of 64 tokens."""
        return self.classify(tokens)


def model():
    """Returns the module; its functions are entry points."""
    return Classifier()


def golden_fn(step, rng, entry_point):
    """Inputs that are verified: 5, 37, and 64 tokens, and noise behind them."""
    tokens = rng.integers(0, WORDS, (1, 16 if entry_point == "of_16" else LENGTH))
    return (tokens, [5, 37, 64][step % 3]) if entry_point == "any_length" else (tokens,)
