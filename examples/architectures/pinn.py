"""A physics-informed network: a training step on the residual of the heat equation, which has second derivatives."""

import numpy as np
import tensorflow as tf

POINTS = 16


class Heat(tf.Module):
    """u(x, t) is a small network."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        shapes = {"first": (2, 16), "bias": (16,), "second": (16, 16), "third": (16, 1)}
        self.weights = [
            tf.Variable(rng.standard_normal(shape).astype(np.float32) / shape[0] ** 0.5, name=name)
            for name, shape in shapes.items()
        ]

    def solution(self, x, t):
        """Returns u."""
        first, bias, second, third = self.weights
        return tf.tanh(tf.tanh(tf.stack([x, t], 1) @ first + bias) @ second) @ third

    @tf.function(input_signature=[tf.TensorSpec((POINTS,), name="x"), tf.TensorSpec((POINTS,), name="t")])
    def train(self, x, t):
        """Makes a step of gradient descent."""
        with tf.GradientTape() as tape:
            with tf.GradientTape(persistent=True) as outer:
                outer.watch([x, t])
                with tf.GradientTape() as inner:
                    inner.watch(x)
                    u = self.solution(x, t)
                slope = inner.gradient(u, x)
            residual = outer.gradient(u, t) - 0.1 * outer.gradient(slope, x)
            start = self.solution(x, tf.zeros_like(t))[:, 0] - tf.sin(np.pi * x)
            loss = tf.reduce_mean(residual**2) + tf.reduce_mean(start**2)
        for weight, gradient in zip(self.weights, tape.gradient(loss, self.weights), strict=True):
            weight.assign_sub(0.05 * gradient)
        return {"loss": loss, "residual": residual}


def model():
    """Returns the module; its functions are entry points."""
    return Heat()
