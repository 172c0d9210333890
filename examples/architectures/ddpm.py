"""A diffusion model (DDPM): a training step on the noise of one time for each row, and a step of sampling."""

import numpy as np
import tensorflow as tf

BATCH, SIZE, TIMES = 8, 12, 50
BETAS = np.linspace(1e-4, 0.2, TIMES)
LEFT = np.cumprod(1 - BETAS).astype(np.float32)


class Diffusion(tf.Module):
    """A network that says which noise is in its input."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        shapes = {"first": (SIZE + 16, 32), "second": (32, SIZE)}
        self.weights = {
            name: tf.Variable(rng.standard_normal(shape).astype(np.float32) / shape[0] ** 0.5, name=name)
            for name, shape in shapes.items()
        }

    def noise(self, x, time):
        """Returns the noise in x, after sines of the time at several rates."""
        rates = tf.exp(-np.log(1e4) * tf.range(8, dtype=tf.float32) / 8)
        angles = tf.cast(time, tf.float32)[:, None] * rates
        x = tf.concat([x, tf.sin(angles), tf.cos(angles)], 1)
        return tf.nn.silu(x @ self.weights["first"]) @ self.weights["second"]

    @tf.function(
        input_signature=[
            tf.TensorSpec((BATCH, SIZE), name="x"),
            tf.TensorSpec((BATCH,), tf.int32, "time"),
            tf.TensorSpec((BATCH, SIZE), name="noise"),
        ]
    )
    def train(self, x, time, noise):
        """Makes a step of gradient descent."""
        weights = list(self.weights.values())
        left = tf.gather(tf.constant(LEFT), time)[:, None]
        with tf.GradientTape() as tape:
            seen = tf.sqrt(left) * x + tf.sqrt(1 - left) * noise
            loss = tf.reduce_mean((self.noise(seen, time) - noise) ** 2)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        return {"loss": loss}

    @tf.function(
        input_signature=[
            tf.TensorSpec((BATCH, SIZE), name="x"),
            tf.TensorSpec((), tf.int32, "time"),
            tf.TensorSpec((BATCH, SIZE), name="noise"),
        ]
    )
    def denoise(self, x, time, noise):
        """Returns x one time step earlier."""
        beta = tf.gather(tf.constant(BETAS, tf.float32), time)
        found = self.noise(x, tf.fill([BATCH], time))
        mean = (x - beta / tf.sqrt(1 - tf.gather(tf.constant(LEFT), time)) * found) / tf.sqrt(1 - beta)
        return mean + tf.where(time > 0, tf.sqrt(beta), 0.0) * noise


def model():
    """Returns the module; its functions are entry points."""
    return Diffusion()
