"""The same network and optimizer as in fc.py, for a program that reduces gradients by itself, between two entry points."""

import keras
import tensorflow as tf

ROWS = 32
"""The rows of a replica's batch."""


class Pair(tf.Module):
    """A Keras network with its optimizer."""

    def __init__(self):
        super().__init__()
        layers = [keras.layers.Dense(256, activation="relu") for _ in range(4)]
        self.network = keras.Sequential(
            [keras.Input([28, 28, 1]), keras.layers.Flatten(), *layers, keras.layers.Dense(10)]
        )
        self.optimizer = keras.optimizers.SGD(0.01, name="optimizer")
        weights = self.network.trainable_variables
        self.optimizer.build(weights)
        self.apply = tf.function(self._apply, input_signature=[[tf.TensorSpec(weight.shape) for weight in weights]])

    @tf.function(input_signature=[tf.TensorSpec([ROWS, 28, 28, 1]), tf.TensorSpec([ROWS], tf.int32)])
    def grad(self, images, labels):
        """Returns the loss over the replica's own rows, and its gradients, by the name that `apply` has for them."""
        with tf.GradientTape() as tape:
            logits = self.network(images, training=True)
            losses = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
            loss = tf.reduce_mean(losses)
        return {"loss": loss, "gradients": tape.gradient(loss, self.network.trainable_variables)}

    def _apply(self, gradients):
        self.optimizer.apply(gradients, self.network.trainable_variables)


model = Pair()


def golden_fn(_step, rng, entry_point):
    """Returns rows of noise, or gradients."""
    if entry_point == "grad":
        return rng.standard_normal((ROWS, 28, 28, 1)), rng.integers(0, 10, ROWS)
    return [0.1 * rng.standard_normal(weight.shape) for weight in model.network.trainable_variables]
