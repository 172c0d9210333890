"""Gradients in one entry point, and the optimizer in another: Adam, with gradients clipped by their global norm."""

import keras
import tensorflow as tf


class Pair(tf.Module):
    """A network with its optimizer."""

    def __init__(self):
        super().__init__()
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Dense(6, activation="tanh") for _ in range(3)]
        self.network = keras.Sequential([keras.Input([5]), *layers, keras.layers.Dense(3)])
        self.optimizer = keras.optimizers.Adam(0.01, name="optimizer")
        weights = self.network.trainable_variables
        self.optimizer.build(weights)
        self.apply = tf.function(self._apply, input_signature=[[tf.TensorSpec(weight.shape) for weight in weights]])

    @tf.function(input_signature=[tf.TensorSpec([4, 5]), tf.TensorSpec([4])])
    def grad(self, x, weights):
        """Returns the sum over the rows that have weights, and its gradients. So the last batch can have fewer rows."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weights * tf.reduce_mean(self.network(x, training=True) ** 2, 1))
        return {"loss": loss, "gradients": tape.gradient(loss, self.network.trainable_variables)}

    def _apply(self, gradients):
        gradients, norm = tf.clip_by_global_norm(gradients, 0.5)
        self.optimizer.apply(gradients, self.network.trainable_variables)
        return {"norm": norm}


model = Pair()
