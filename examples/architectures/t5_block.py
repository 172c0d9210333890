"""A block of T5's encoder: attention with a bias for relative positions, a norm without means, and a gated layer."""

import numpy as np
import tensorflow as tf

LENGTH, WIDTH, HEADS, HIDDEN, BUCKETS, FAR = 12, 32, 4, 64, 16, 40
RNG = np.random.default_rng(0)


def weight(name, *shape):
    """Returns a variable."""
    return tf.Variable(RNG.standard_normal(shape).astype(np.float32) / shape[0] ** 0.5, name=name)


EMBEDDING = tf.Variable(RNG.standard_normal((100, WIDTH), np.float32), name="embedding")
QUERY, KEY, VALUE, OUT = (weight(name, WIDTH, WIDTH) for name in ("query", "key", "value", "out"))
GATE, UP, DOWN = weight("gate", WIDTH, HIDDEN), weight("up", WIDTH, HIDDEN), weight("down", HIDDEN, WIDTH)
BIAS = weight("bias", BUCKETS, HEADS)
SCALES = [tf.Variable(RNG.uniform(0.5, 1.5, WIDTH).astype(np.float32), name=f"scale_{i}") for i in range(2)]


def norm(x, scale):
    """Divides by the root mean square."""
    return x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + 1e-6) * scale


def buckets():
    """Returns the bucket of each pair of positions: its own when they are near, shared when they are far apart."""
    distance = tf.range(LENGTH)[None] - tf.range(LENGTH)[:, None]
    half, near = BUCKETS // 2, BUCKETS // 4
    size = tf.abs(distance)
    ratio = tf.math.log(tf.cast(tf.maximum(size, 1), tf.float32) / near) / np.log(FAR / near)
    far = tf.minimum(near + tf.cast(ratio * (half - near), tf.int32), half - 1)
    return tf.where(distance > 0, half, 0) + tf.where(size < near, size, far)


@tf.function(input_signature=[tf.TensorSpec((2, LENGTH), tf.int32, "tokens"), tf.TensorSpec((2,), tf.int32, "lengths")])
def model(tokens, lengths):
    """Returns the block's result; zeros after each sequence's end."""
    mask = tf.sequence_mask(lengths, LENGTH, tf.float32)
    x = tf.gather(EMBEDDING, tokens)
    y = norm(x, SCALES[0])
    query, key, value = (tf.reshape(y @ w, (2, LENGTH, HEADS, -1)) for w in (QUERY, KEY, VALUE))
    scores = tf.einsum("bqhd,bkhd->bhqk", query, key) + tf.transpose(tf.gather(BIAS, buckets()), (2, 0, 1))
    shares = tf.nn.softmax(scores + (mask[:, None, None] - 1) * 1e9)
    x += tf.reshape(tf.einsum("bhqk,bkhd->bqhd", shares, value), (2, LENGTH, WIDTH)) @ OUT
    y = norm(x, SCALES[1])
    return (x + (tf.nn.gelu(y @ GATE, True) * (y @ UP)) @ DOWN) * mask[:, :, None]
