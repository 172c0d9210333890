"""A decoder in the manner of GPT-2 that reads one token a call. Keys and values of earlier tokens are its variables."""

import numpy as np
import tensorflow as tf

VOCABULARY, LENGTH, WIDTH, HEADS, BLOCKS = 256, 32, 128, 4, 4

_rng = np.random.default_rng(7)


def weight(name, *shape):
    """A kernel that keeps the scale of what it multiplies."""
    return tf.Variable(_rng.standard_normal(shape) / np.sqrt(shape[0]), dtype=tf.float32, name=name)


class Norm(tf.Module):
    """Layer normalization with scale and offset."""

    def __init__(self, name):
        super().__init__()
        self.gamma = tf.Variable(_rng.uniform(0.5, 1.5, WIDTH), dtype=tf.float32, name=name + "/gamma")
        self.beta = tf.Variable(0.1 * _rng.standard_normal(WIDTH), dtype=tf.float32, name=name + "/beta")

    def __call__(self, x):
        """Normalizes each row."""
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-5) * self.gamma + self.beta


class Block(tf.Module):
    """Attention to all tokens so far, and two dense layers."""

    def __init__(self, name):
        super().__init__()
        self.norm, self.hidden_norm = Norm(name + "/norm"), Norm(name + "/hidden_norm")
        self.qkv, self.out = weight(name + "/qkv", WIDTH, 3 * WIDTH), weight(name + "/out", WIDTH, WIDTH)
        self.hidden = weight(name + "/hidden", WIDTH, 4 * WIDTH)
        self.down = weight(name + "/down", 4 * WIDTH, WIDTH)
        shape = (LENGTH, HEADS, WIDTH // HEADS)
        self.keys = tf.Variable(tf.zeros(shape), name=name + "/keys")
        self.values = tf.Variable(tf.zeros(shape), name=name + "/values")

    def __call__(self, x, position):
        """Adds what the token at this position finds among those before it."""
        query, key, value = tf.unstack(tf.reshape(self.norm(x) @ self.qkv, [3, HEADS, -1]))
        self.keys.scatter_nd_update([[position]], [key])
        self.values.scatter_nd_update([[position]], [value])
        scores = tf.einsum("hd,thd->ht", query, self.keys) / np.sqrt(WIDTH // HEADS)
        seen = tf.range(LENGTH) <= position
        attended = tf.einsum("ht,thd->hd", tf.nn.softmax(tf.where(seen, scores, -1e9)), self.values)
        x += tf.reshape(attended, [1, WIDTH]) @ self.out
        return x + tf.nn.gelu(self.hidden_norm(x) @ self.hidden, approximate=True) @ self.down


class Decoder(tf.Module):
    """Embeddings, blocks, and logits that share the embeddings."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = weight("tokens", VOCABULARY, WIDTH), weight("positions", LENGTH, WIDTH)
        self.blocks = [Block(f"block_{index}") for index in range(BLOCKS)]
        self.norm = Norm("norm")

    @tf.function(input_signature=[tf.TensorSpec((1,), tf.int32), tf.TensorSpec((), tf.int32)])
    def __call__(self, token, position):
        """Returns the logits of the token that comes next."""
        x = tf.gather(self.tokens, token) * np.sqrt(VOCABULARY) + tf.gather(self.positions, [position])
        for block in self.blocks:
            x = block(x, position)
        return {"logits": tf.matmul(self.norm(x), self.tokens, transpose_b=True)}


model = Decoder()


def golden_fn(step, rng):
    """One token after the other."""
    return rng.integers(0, VOCABULARY, 1), step
