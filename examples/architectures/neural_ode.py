"""A neural ODE: an adaptive solver, whose number of steps depends on the data, and a training step through fixed ones."""

import numpy as np
import tensorflow as tf

POINTS = (4, 2)


class Ode(tf.Module):
    """dy/dt is a small network of y and t."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        self.first = tf.Variable(0.5 * rng.standard_normal((2, 32), np.float32), name="first")
        self.second = tf.Variable(0.3 * rng.standard_normal((32, 2), np.float32), name="second")

    def slope(self, t, y):
        """Returns dy/dt."""
        return tf.tanh(y**3 @ self.first + tf.sin(t)) @ self.second

    @tf.function(input_signature=[tf.TensorSpec(POINTS, name="start")])
    def solve(self, start):
        """Integrates from 0 to 2 with Heun's method, whose error chooses the step."""

        def step(t, h, y, count):
            first = self.slope(t, y)
            second = self.slope(t + h, y + h * first)
            error = tf.reduce_max(tf.abs(h * (second - first) / 2)) / 1e-3
            good = error <= 1.0
            t = tf.where(good, t + h, t)
            y = tf.where(good, y + h * (first + second) / 2, y)
            h = h * tf.clip_by_value(0.9 / tf.sqrt(error + 1e-10), 0.2, 5.0)
            return t, tf.minimum(h, 2.0 - t), y, count + 1

        more = lambda t, h, y, count: (t < 2.0 - 1e-6) & (count < 1000)  # noqa: E731
        _, _, y, count = tf.while_loop(more, step, (0.0, 0.1, start, 0))
        return {"y": y, "steps": count}

    @tf.function(input_signature=[tf.TensorSpec(POINTS, name="start"), tf.TensorSpec(POINTS, name="end")])
    def train(self, start, end):
        """Makes a step of gradient descent through ten steps of Runge and Kutta's method."""
        weights = [self.first, self.second]
        with tf.GradientTape() as tape:
            y, h = start, 0.1
            for i in range(10):
                a = self.slope(i * h, y)
                b = self.slope(i * h + h / 2, y + h / 2 * a)
                c = self.slope(i * h + h / 2, y + h / 2 * b)
                d = self.slope(i * h + h, y + h * c)
                y += h / 6 * (a + 2 * b + 2 * c + d)
            loss = tf.reduce_mean((y - end) ** 2)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        return {"loss": loss}


def model():
    """Returns the module; its functions are entry points."""
    return Ode()
