"""Mixed precision with a loss scale, and batch norm over the rows of all replicas.

All replicas have the same gradients after the reduction, so they agree on whether these are finite, and skip the same steps.
"""

import keras
import tensorflow as tf

strategy = tf.distribute.MirroredStrategy(["CPU:0"])


class Scaled(tf.Module):
    """A network in float16, with weights in float32."""

    def __init__(self):
        super().__init__()
        with strategy.scope():
            keras.utils.set_random_seed(1)
            self.network = keras.Sequential(
                [
                    keras.Input([5]),
                    keras.layers.Dense(6, activation="relu", dtype="mixed_float16"),
                    keras.layers.BatchNormalization(synchronized=True),
                    keras.layers.Dense(3, dtype="mixed_float16"),
                ]
            )
            self.scale = tf.Variable(1024.0, trainable=False, name="scale")

    def _step(self, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.cast(self.network(x, training=True), tf.float32) ** 2)
            scaled = loss * self.scale
        weights = self.network.trainable_variables
        gradients = tf.distribute.get_replica_context().all_reduce("MEAN", tape.gradient(scaled, weights))
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.assign(tf.where(finite, weight - 0.05 * gradient / self.scale, weight))
        self.scale.assign(tf.where(finite, self.scale, self.scale / 2))
        return loss

    @tf.function(input_signature=[tf.TensorSpec([4, 5])])
    def train(self, x):
        """Returns the loss over all rows, before the step."""
        return {"loss": strategy.reduce("MEAN", strategy.run(self._step, (x,)), axis=None)}


model = Scaled()
