"""A training step of a `tf.distribute` strategy: SGD with gradients that all replicas average, clipped by their global norm."""

import tensorflow as tf

ROWS = 8
"""The rows of all replicas together."""

strategy = tf.distribute.MirroredStrategy(["CPU:0"])
OWN = tf.TensorSpec([ROWS // strategy.num_replicas_in_sync, 5])


class Step(tf.Module):
    """A layer, and how it is trained."""

    def __init__(self):
        super().__init__()
        with strategy.scope():
            self.w = tf.Variable(tf.random.stateless_normal([5, 3], [1, 2]), name="w")
            self.b = tf.Variable(tf.zeros([3]), name="b")

    def _step(self, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self(x) ** 2)
        context = tf.distribute.get_replica_context()
        gradients = context.all_reduce("MEAN", tape.gradient(loss, [self.w, self.b]))
        gradients, norm = tf.clip_by_global_norm(gradients, 0.1)
        for variable, gradient in zip([self.w, self.b], gradients, strict=True):
            variable.assign_sub(0.5 * gradient)
        return loss, norm

    def __call__(self, x):
        return tf.sin(x @ self.w + self.b)

    @tf.function(input_signature=[OWN])
    def train(self, x):
        """Returns the loss over all rows before the step, and the norm of its gradient."""
        loss, norm = strategy.run(self._step, (x,))
        return {"loss": strategy.reduce("MEAN", loss, axis=None), "norm": norm}

    @tf.function(input_signature=[OWN])
    def predict(self, x):
        """Returns results for a replica's own rows, which needs no other replica."""
        return self(x)


model = Step()
