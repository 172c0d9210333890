"""A linear-chain CRF: Viterbi decoding of sequences with lengths, and a training step on the log-likelihood."""

import numpy as np
import tensorflow as tf

TAGS, STEPS, BATCH, WORDS = 7, 12, 3, 50


class Crf(tf.Module):
    """Scores of tags from embedded words, and of transitions between tags."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        self.embedding = tf.Variable(rng.standard_normal((WORDS, 16), np.float32), name="embedding")
        self.kernel = tf.Variable(0.3 * rng.standard_normal((16, TAGS), np.float32), name="kernel")
        self.transitions = tf.Variable(rng.standard_normal((TAGS, TAGS), np.float32), name="transitions")

    def unary(self, words):
        """Returns a score for each word and tag."""
        return tf.gather(self.embedding, words) @ self.kernel

    @tf.function(
        input_signature=[tf.TensorSpec((BATCH, STEPS), tf.int32, "words"), tf.TensorSpec((BATCH,), tf.int32, "lengths")]
    )
    def decode(self, words, lengths):
        """Returns the best tags, and their score."""
        unary = self.unary(words)
        score, back = unary[:, 0], tf.TensorArray(tf.int32, STEPS - 1)
        for i in tf.range(1, STEPS):
            paths = score[:, :, None] + self.transitions
            inside = (i < lengths)[:, None]
            best = tf.where(inside, tf.argmax(paths, 1, output_type=tf.int32), tf.range(TAGS))
            back = back.write(i - 1, best)
            score = tf.where(inside, unary[:, i] + tf.reduce_max(paths, 1), score)
        pointers = back.stack()
        tag = tf.argmax(score, -1, output_type=tf.int32)
        tags = tf.TensorArray(tf.int32, STEPS).write(STEPS - 1, tag)
        for i in tf.range(STEPS - 2, -1, -1):
            tag = tf.gather(pointers[i], tag, batch_dims=1)
            tags = tags.write(i, tag)
        return {"tags": tf.transpose(tags.stack()), "score": tf.reduce_max(score, -1)}

    @tf.function(input_signature=[tf.TensorSpec((BATCH, STEPS), tf.int32, name) for name in ("words", "tags")])
    def train(self, words, tags):
        """Makes a step of gradient descent."""
        weights = [self.embedding, self.kernel, self.transitions]
        with tf.GradientTape() as tape:
            unary = self.unary(words)
            alpha = unary[:, 0]
            for i in range(1, STEPS):
                alpha = tf.reduce_logsumexp(alpha[:, :, None] + self.transitions, 1) + unary[:, i]
            own = tf.reduce_sum(tf.gather(unary, tags, batch_dims=2), -1)
            pairs = tf.stack([tags[:, :-1], tags[:, 1:]], -1)
            own += tf.reduce_sum(tf.gather_nd(self.transitions, pairs), -1)
            loss = tf.reduce_mean(tf.reduce_logsumexp(alpha, -1) - own)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * tf.convert_to_tensor(gradient))
        return {"loss": loss}


def model():
    """Returns the module; its functions are entry points."""
    return Crf()
