"""A generative adversarial network: a step trains both networks, each with an optimizer of its own."""

import keras
import tensorflow as tf
from keras import layers

BATCH, NOISE, SIZE = 8, 6, 10


class Gan(tf.Module):
    """A generator, and a critic that tells its results from data."""

    def __init__(self):
        super().__init__()
        keras.utils.set_random_seed(0)
        self.generator = keras.Sequential(
            [keras.Input((NOISE,)), layers.Dense(16, "leaky_relu"), layers.Dense(SIZE)], name="generator"
        )
        self.critic = keras.Sequential(
            [keras.Input((SIZE,)), layers.Dense(16, "leaky_relu"), layers.Dense(1)], name="critic"
        )
        self.optimizers = [keras.optimizers.Adam(1e-3, beta_1=0.5), keras.optimizers.RMSprop(2e-3)]
        for optimizer, network in zip(self.optimizers, (self.generator, self.critic), strict=True):
            optimizer.build(network.trainable_variables)

    @tf.function(
        input_signature=[tf.TensorSpec((BATCH, NOISE), name="noise"), tf.TensorSpec((BATCH, SIZE), name="data")]
    )
    def train(self, noise, data):
        """Makes a step with both optimizers."""
        loss = tf.nn.sigmoid_cross_entropy_with_logits
        with tf.GradientTape(persistent=True) as tape:
            fake = self.generator(noise)
            true, false = self.critic(data), self.critic(fake)
            critic = tf.reduce_mean(loss(tf.ones_like(true), true) + loss(tf.zeros_like(false), false))
            generator = tf.reduce_mean(loss(tf.ones_like(false), false))
        for optimizer, network, value in zip(
            self.optimizers, (self.generator, self.critic), (generator, critic), strict=True
        ):
            optimizer.apply(tape.gradient(value, network.trainable_variables))
        return {"generator": generator, "critic": critic}

    @tf.function(input_signature=[tf.TensorSpec((BATCH, NOISE), name="noise")])
    def generate(self, noise):
        """Returns the generator's result."""
        return self.generator(noise)


def model():
    """Returns the module; its functions are entry points."""
    return Gan()
