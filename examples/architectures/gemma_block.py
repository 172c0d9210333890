"""A block of Gemma: rotated positions, one key for all heads, a norm whose scales start from one, and capped scores."""

import numpy as np
import tensorflow as tf

LENGTH, WIDTH, HEADS, DEPTH, HIDDEN, CAP = 10, 32, 4, 8, 64, 50.0
RNG = np.random.default_rng(0)


def weight(name, *shape):
    """Returns a variable."""
    return tf.Variable(RNG.standard_normal(shape).astype(np.float32) / shape[0] ** 0.5, name=name)


EMBEDDING = tf.Variable(RNG.standard_normal((80, WIDTH), np.float32), name="embedding")
QUERY, OUT = weight("query", WIDTH, HEADS * DEPTH), weight("out", HEADS * DEPTH, WIDTH)
KEY, VALUE = weight("key", WIDTH, DEPTH), weight("value", WIDTH, DEPTH)
GATE, UP, DOWN = weight("gate", WIDTH, HIDDEN), weight("up", WIDTH, HIDDEN), weight("down", HIDDEN, WIDTH)
SCALES = [tf.Variable(0.2 * RNG.standard_normal(WIDTH, np.float32), name=f"scale_{i}") for i in range(3)]


def norm(x, scale):
    """Divides by the root mean square."""
    return x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + 1e-6) * (1 + scale)


def rotated(x):
    """Rotates pairs of values by angles that grow with the position."""
    rates = 1e4 ** (-tf.range(DEPTH // 2, dtype=tf.float32) / (DEPTH // 2))
    angles = tf.range(LENGTH, dtype=tf.float32)[:, None, None] * rates
    a, b = tf.split(x, 2, -1)
    return tf.concat([a * tf.cos(angles) - b * tf.sin(angles), b * tf.cos(angles) + a * tf.sin(angles)], -1)


@tf.function(input_signature=[tf.TensorSpec((LENGTH,), tf.int32, "tokens")])
def model(tokens):
    """Returns logits of the next tokens, and the best ones."""
    x = tf.gather(EMBEDDING, tokens) * WIDTH**0.5
    y = norm(x, SCALES[0])
    query = rotated(tf.reshape(y @ QUERY, (LENGTH, HEADS, DEPTH))) * DEPTH**-0.5
    key = rotated((y @ KEY)[:, None])[:, 0]
    scores = CAP * tf.tanh(tf.einsum("qhd,kd->hqk", query, key) / CAP)
    past = tf.linalg.band_part(tf.ones((LENGTH, LENGTH), tf.bool), -1, 0)
    shares = tf.nn.softmax(tf.where(past, scores, -2e38))
    x += tf.reshape(tf.einsum("hqk,kd->qhd", shares, y @ VALUE), (LENGTH, -1)) @ OUT
    y = norm(x, SCALES[1])
    x += (tf.nn.gelu(y @ GATE, True) * (y @ UP)) @ DOWN
    logits = 30.0 * tf.tanh(norm(x, SCALES[2]) @ tf.transpose(EMBEDDING) / 30.0)
    return {"logits": logits, "best": tf.argmax(logits, -1)}
