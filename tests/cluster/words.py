"""A classifier of texts: TensorFlow splits and hashes words, and a small transformer block reads them."""

import numpy as np
import tensorflow as tf

WORDS, SIZE, TEXTS = 32, 128, 8


class Words(tf.Module):
    """An embedding, attention, and two layers."""

    def __init__(self):
        super().__init__()
        draw = np.random.default_rng(5).normal
        self.table = tf.Variable(draw(0, 1, (1000, SIZE)).astype(np.float32))
        self.projections = [tf.Variable(draw(0, 0.08, (SIZE, SIZE)).astype(np.float32)) for _ in range(4)]
        self.wide = tf.Variable(draw(0, 0.08, (SIZE, 4 * SIZE)).astype(np.float32))
        self.narrow = tf.Variable(draw(0, 0.05, (4 * SIZE, SIZE)).astype(np.float32))
        self.classes = tf.Variable(draw(0, 0.1, (SIZE, 5)).astype(np.float32))

    def _normal(self, x):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-6)

    @tf.function(input_signature=[tf.TensorSpec([TEXTS], tf.string, name="texts")])
    def __call__(self, texts):
        """Returns the class of each text, and its probability."""
        split = tf.strings.split(texts).to_tensor(shape=[TEXTS, WORDS])
        hashed = tf.strings.to_hash_bucket_fast(split, 1000)
        mask = tf.cast(tf.not_equal(split, ""), tf.float32)
        x = tf.gather(self.table, hashed)
        q, k, v = (tf.tensordot(x, projection, 1) for projection in self.projections[:3])
        scores = tf.matmul(q, k, transpose_b=True) / SIZE**0.5 + (mask[:, tf.newaxis] - 1.0) * 1e4
        x = self._normal(x + tf.tensordot(tf.matmul(tf.nn.softmax(scores), v), self.projections[3], 1))
        x = self._normal(x + tf.tensordot(tf.nn.gelu(tf.tensordot(x, self.wide, 1)), self.narrow, 1))
        mean = tf.reduce_sum(x * mask[..., tf.newaxis], 1) / (tf.reduce_sum(mask, 1, keepdims=True) + 1e-6)
        probabilities = tf.nn.softmax(tf.matmul(mean, self.classes))
        names = tf.gather(tf.constant(["one", "two", "three", "four", "five"]), tf.argmax(probabilities, -1))
        return {"class": names, "probability": tf.reduce_max(probabilities, -1)}


model = Words


def golden_fn(step, rng):
    """Returns texts of known words."""
    words = np.array(
        ["a", "compiler", "reads", "the", "graph", "of", "a", "model", "and", "writes", "code", "that", "runs"]
    )
    return {"texts": np.array([" ".join(rng.choice(words, rng.integers(3, WORDS))) for _ in range(TEXTS)], object)}
