"""Contrastive training (SimCLR): two views of each row must be more alike than views of other rows."""

import numpy as np
import tensorflow as tf

BATCH, SIZE = 8, 12


class Contrastive(tf.Module):
    """An encoder, with momentum for its weights."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        shapes = {"first": (SIZE, 24), "second": (24, 16)}
        self.weights = [
            tf.Variable(rng.standard_normal(shape).astype(np.float32) / shape[0] ** 0.5, name=name)
            for name, shape in shapes.items()
        ]
        self.momenta = [
            tf.Variable(tf.zeros_like(weight), name=f"momentum_{i}") for i, weight in enumerate(self.weights)
        ]

    @tf.function(input_signature=[tf.TensorSpec((BATCH, SIZE), name="one"), tf.TensorSpec((BATCH, SIZE), name="other")])
    def train(self, one, other):
        """Makes a step of gradient descent with momentum."""
        with tf.GradientTape() as tape:
            first, second = self.weights
            views = tf.nn.l2_normalize(tf.nn.relu(tf.concat([one, other], 0) @ first) @ second, 1)
            alike = views @ tf.transpose(views) / 0.2
            alike = tf.linalg.set_diag(alike, tf.fill([2 * BATCH], -1e9))
            partners = tf.roll(tf.range(2 * BATCH), BATCH, 0)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(partners, alike))
        for weight, momentum, gradient in zip(
            self.weights, self.momenta, tape.gradient(loss, self.weights), strict=True
        ):
            weight.assign_sub(0.1 * momentum.assign(0.9 * momentum + gradient))
        return {"loss": loss, "right": tf.reduce_mean(tf.cast(tf.argmax(alike, 1, tf.int32) == partners, tf.float32))}


def model():
    """Returns the module; its functions are entry points."""
    return Contrastive()
