"""A flow (RealNVP): the likelihood of data by invertible layers, a training step, and samples by their inverse."""

import numpy as np
import tensorflow as tf

BATCH, SIZE, LAYERS = 8, 6, 4


class Flow(tf.Module):
    """Layers that scale and shift half of the values, as the other half says."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        half = SIZE // 2
        self.weights = []
        for i in range(LAYERS):
            for name, shape in ((f"hidden_{i}", (half, 16)), (f"scale_{i}", (16, half)), (f"shift_{i}", (16, half))):
                self.weights.append(tf.Variable(0.4 * rng.standard_normal(shape, np.float32), name=name))

    def parts(self, i, x):
        """Returns logarithms of scales, and shifts."""
        hidden, scale, shift = self.weights[3 * i : 3 * i + 3]
        y = tf.nn.relu(x @ hidden)
        return tf.tanh(y @ scale), y @ shift

    @tf.function(input_signature=[tf.TensorSpec((BATCH, SIZE), name="x")])
    def train(self, x):
        """Makes a step of gradient descent on the negative log-likelihood."""
        with tf.GradientTape() as tape:
            a, b = tf.split(x, 2, 1)
            volume = tf.zeros([BATCH])
            for i in range(LAYERS):
                scale, shift = self.parts(i, a)
                a, b = b * tf.exp(scale) + shift, a
                volume += tf.reduce_sum(scale, 1)
            z = tf.concat([a, b], 1)
            likelihood = volume - 0.5 * tf.reduce_sum(z**2 + np.log(2 * np.pi), 1)
            loss = -tf.reduce_mean(likelihood)
        for weight, gradient in zip(self.weights, tape.gradient(loss, self.weights), strict=True):
            weight.assign_sub(0.01 * gradient)
        return {"loss": loss, "likelihood": likelihood}

    @tf.function(input_signature=[tf.TensorSpec((BATCH, SIZE), name="z")])
    def sample(self, z):
        """Returns data for noise."""
        a, b = tf.split(z, 2, 1)
        for i in reversed(range(LAYERS)):
            scale, shift = self.parts(i, b)
            a, b = b, (a - shift) * tf.exp(-scale)
        return tf.concat([a, b], 1)


def model():
    """Returns the module; its functions are entry points."""
    return Flow()
