"""Blocks in the manner of Llama 2: RMS norm, rotary positions, grouped-query attention, and SwiGLU."""

import numpy as np
import tensorflow as tf

VOCABULARY, LENGTH, WIDTH, HEADS, GROUPS, HIDDEN, BLOCKS = 256, 32, 128, 8, 2, 352, 4
DEPTH = WIDTH // HEADS

_rng = np.random.default_rng(7)
_angles = np.arange(LENGTH)[:, None] / 10000 ** (np.arange(0, DEPTH, 2) / DEPTH)
COS, SIN = (tf.constant(f(_angles)[:, None, :], tf.float32) for f in (np.cos, np.sin))


def weight(name, *shape):
    """A kernel that keeps the scale of what it multiplies."""
    return tf.Variable(_rng.standard_normal(shape) / np.sqrt(shape[0]), dtype=tf.float32, name=name)


def scale(name):
    """The factors of a norm."""
    return tf.Variable(_rng.uniform(0.5, 1.5, WIDTH), dtype=tf.float32, name=name)


def rms_norm(x, gamma):
    """Divides rows by their root mean square."""
    return x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + 1e-6) * gamma


def rotated(x):
    """Turns pairs of values by an angle that grows with the position."""
    a, b = x[..., ::2], x[..., 1::2]
    return tf.reshape(tf.stack([a * COS - b * SIN, a * SIN + b * COS], -1), tf.shape(x))


class Block(tf.Module):
    """Attention, in which several heads share keys and values, and a gated layer."""

    def __init__(self, name):
        super().__init__()
        self.norm, self.hidden_norm = scale(name + "/norm"), scale(name + "/hidden_norm")
        self.query, self.out = weight(name + "/query", WIDTH, WIDTH), weight(name + "/out", WIDTH, WIDTH)
        self.key, self.value = (weight(f"{name}/{part}", WIDTH, GROUPS * DEPTH) for part in ("key", "value"))
        self.gate, self.up = (weight(f"{name}/{part}", WIDTH, HIDDEN) for part in ("gate", "up"))
        self.down = weight(name + "/down", HIDDEN, WIDTH)

    def __call__(self, x):
        """Adds what each position finds at those before it."""
        h = rms_norm(x, self.norm)
        split = [-1, LENGTH, GROUPS, DEPTH]
        query = rotated(tf.reshape(tf.matmul(h, self.query), [-1, LENGTH, HEADS, DEPTH]))
        query = tf.reshape(query, [-1, LENGTH, GROUPS, HEADS // GROUPS, DEPTH])
        key = rotated(tf.reshape(tf.matmul(h, self.key), split))
        value = tf.reshape(tf.matmul(h, self.value), split)
        scores = tf.einsum("bqghd,bkgd->bghqk", query, key) / np.sqrt(DEPTH)
        seen = tf.linalg.band_part(tf.ones((LENGTH, LENGTH), tf.bool), -1, 0)
        weights = tf.nn.softmax(tf.where(seen, scores, -1e9))
        attended = tf.einsum("bghqk,bkgd->bqghd", weights, value)
        x += tf.matmul(tf.reshape(attended, [-1, LENGTH, WIDTH]), self.out)
        h = rms_norm(x, self.hidden_norm)
        return x + tf.matmul(tf.nn.silu(tf.matmul(h, self.gate)) * tf.matmul(h, self.up), self.down)


class Llama(tf.Module):
    """Embeddings, blocks, and logits of the next token at each position."""

    def __init__(self):
        super().__init__()
        self.tokens = tf.Variable(_rng.standard_normal((VOCABULARY, WIDTH)), dtype=tf.float32, name="tokens")
        self.blocks = [Block(f"block_{index}") for index in range(BLOCKS)]
        self.norm, self.logits = scale("norm"), weight("logits", WIDTH, VOCABULARY)

    @tf.function(input_signature=[tf.TensorSpec((None, LENGTH), tf.int32)])
    def __call__(self, tokens):
        """Returns the logits of the token that comes next, for each position."""
        x = tf.gather(self.tokens, tokens)
        for block in self.blocks:
            x = block(x)
        return {"logits": tf.matmul(rms_norm(x, self.norm), self.logits)}


model = Llama()


def golden_fn(step, rng):
    """Tokens of the whole vocabulary."""
    return rng.integers(0, VOCABULARY, (1, LENGTH))
