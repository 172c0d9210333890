"""A mixture of experts with two experts for each token, a capacity, and a loss that balances them."""

import numpy as np
import tensorflow as tf

TOKENS, WIDTH, EXPERTS, CAPACITY, HIDDEN = 32, 16, 4, 12, 32


class Experts(tf.Module):
    """Gates, and the experts' two layers."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)

        def weight(name, *shape):
            return tf.Variable(rng.standard_normal(shape).astype(np.float32) / shape[-2] ** 0.5, name=name)

        self.gate = weight("gate", WIDTH, EXPERTS)
        self.first = weight("first", EXPERTS, WIDTH, HIDDEN)
        self.second = weight("second", EXPERTS, HIDDEN, WIDTH)

    def computed(self, x):
        """Returns the layer's result, and the loss that balances experts."""
        shares = tf.nn.softmax(x @ self.gate)
        best, chosen = tf.math.top_k(shares, 2)
        best /= tf.reduce_sum(best, -1, keepdims=True)
        masks = tf.one_hot(chosen, EXPERTS)
        first_ones = tf.reshape(tf.transpose(masks, (1, 0, 2)), (2 * TOKENS, EXPERTS))
        place = tf.reshape(tf.cumsum(first_ones, 0, exclusive=True) * first_ones, (2, TOKENS, EXPERTS))
        kept = tf.cast(place < CAPACITY, tf.float32) * tf.transpose(masks, (1, 0, 2))
        slot = tf.one_hot(tf.cast(tf.reduce_sum(place * kept, -1), tf.int32), CAPACITY)
        combine = tf.einsum("sk,kse,ksc->sec", best, kept, slot)
        sent = tf.einsum("sec,sd->ecd", tf.cast(combine > 0, tf.float32), x)
        hidden = tf.nn.gelu(tf.einsum("ecd,edf->ecf", sent, self.first))
        result = tf.einsum("sec,ecd->sd", combine, tf.einsum("ecf,efd->ecd", hidden, self.second))
        return result, EXPERTS * tf.reduce_sum(tf.reduce_mean(shares, 0) * tf.reduce_mean(masks[:, 0], 0))

    @tf.function(input_signature=[tf.TensorSpec((TOKENS, WIDTH), name="x"), tf.TensorSpec((TOKENS, WIDTH), name="y")])
    def train(self, x, y):
        """Makes a step of gradient descent."""
        weights = self.trainable_variables
        with tf.GradientTape() as tape:
            result, balance = self.computed(x)
            loss = tf.reduce_mean((result - y) ** 2) + 0.01 * balance
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.5 * gradient)
        return {"loss": loss, "balance": balance}

    @tf.function(input_signature=[tf.TensorSpec((TOKENS, WIDTH), name="x")])
    def predict(self, x):
        """Returns the layer's result."""
        return self.computed(x)[0]


def model():
    """Returns the module; its functions are entry points."""
    return Experts()
