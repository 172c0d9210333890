"""What both models share: a step of a `tf.distribute` strategy, which each replica runs on its own rows."""

import tensorflow as tf

ROWS = 32
"""The rows of a replica's batch."""

strategy = tf.distribute.MultiWorkerMirroredStrategy()


class Trainer(tf.Module):
    """A Keras network with its optimizer."""

    def __init__(self, build, optimizer):
        super().__init__()
        with strategy.scope():
            self.network = build()
            self.optimizer = optimizer()
            self.optimizer.build(self.network.trainable_variables)

    def _step(self, images, labels):
        with tf.GradientTape() as tape:
            logits = self.network(images, training=True)
            losses = tf.keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
            # The sum over all replicas' rows, divided by how many these are.
            loss = tf.nn.compute_average_loss(losses)
        variables = self.network.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    @tf.function(input_signature=[tf.TensorSpec([ROWS, 28, 28, 1]), tf.TensorSpec([ROWS], tf.int32)])
    def train(self, images, labels):
        """Returns the loss over all replicas' rows, before the step."""
        loss = strategy.run(self._step, (images, labels))
        return {"loss": strategy.reduce(tf.distribute.ReduceOp.SUM, loss, axis=None)}


def golden_fn(_step, rng):
    """Returns rows of noise, in other inputs than a strategy would make of it."""
    return rng.standard_normal((ROWS, 28, 28, 1)), rng.integers(0, 10, ROWS)
