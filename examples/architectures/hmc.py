"""Hamiltonian Monte Carlo: samples from a Bayesian regression, by leapfrog steps that are accepted or not."""

import numpy as np
import tensorflow as tf

CHAINS, WEIGHTS, POINTS, LEAPS = 4, 3, 24, 8
RNG = np.random.default_rng(0)
X = RNG.standard_normal((POINTS, WEIGHTS)).astype(np.float32)
Y = (X @ np.array([1.0, -2.0, 0.5], np.float32) + 0.3 * RNG.standard_normal(POINTS)).astype(np.float32)


class Sampler(tf.Module):
    """Chains, and a step size that adapts."""

    def __init__(self):
        super().__init__()
        self.chains = tf.Variable(RNG.standard_normal((CHAINS, WEIGHTS), np.float32), name="chains")
        self.size = tf.Variable(0.05, name="size")

    @tf.function(
        input_signature=[tf.TensorSpec((CHAINS, WEIGHTS), name="momentum"), tf.TensorSpec((CHAINS,), name="noise")]
    )
    def sample(self, momentum, noise):
        """Makes a step of each chain."""

        def log(w):
            off = tf.linalg.matmul(w, X, transpose_b=True) - Y
            return -0.5 * tf.reduce_sum(off**2, 1) / 0.3**2 - 0.5 * tf.reduce_sum(w**2, 1)

        def slope(w):
            with tf.GradientTape() as tape:
                tape.watch(w)
                value = log(w)
            return tape.gradient(value, w)

        def leap(i, w, p):
            p += 0.5 * self.size * slope(w)
            w += self.size * p
            return i + 1, w, p + 0.5 * self.size * slope(w)

        old = self.chains.read_value()
        _, new, after = tf.while_loop(lambda i, w, p: i < LEAPS, leap, (0, old, momentum))
        gain = log(new) - log(old) + 0.5 * tf.reduce_sum(momentum**2 - after**2, 1)
        accepted = tf.math.log(tf.sigmoid(noise)) < gain
        self.chains.assign(tf.where(accepted[:, None], new, old))
        rate = tf.reduce_mean(tf.minimum(1.0, tf.exp(gain)))
        self.size.assign(self.size * tf.exp(0.1 * (rate - 0.65)))
        return {"accepted": accepted, "gain": gain}


def model():
    """Returns the module; its functions are entry points."""
    return Sampler()
