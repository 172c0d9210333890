"""Training on the CTC loss, by the recursion over labels with blanks between them, for inputs and labels with lengths."""

import numpy as np
import tensorflow as tf

BATCH, STEPS, WIDTH, SYMBOLS, LABELS = 3, 14, 8, 6, 4
FAR = -1e9


class Ctc(tf.Module):
    """A layer of scores; symbol 0 is the blank."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        self.kernel = tf.Variable(0.5 * rng.standard_normal((WIDTH, SYMBOLS), np.float32), name="kernel")
        self.bias = tf.Variable(0.1 * rng.standard_normal(SYMBOLS, np.float32), name="bias")

    @tf.function(
        input_signature=[
            tf.TensorSpec((BATCH, STEPS, WIDTH), name="x"),
            tf.TensorSpec((BATCH, LABELS), tf.int32, "labels"),
            tf.TensorSpec((BATCH,), tf.int32, "steps"),
            tf.TensorSpec((BATCH,), tf.int32, "count"),
        ]
    )
    def train(self, x, labels, steps, count):
        """Makes a step of gradient descent."""
        weights = [self.kernel, self.bias]
        path = tf.reshape(tf.stack([tf.zeros_like(labels), labels], 2), (BATCH, 2 * LABELS))
        path = tf.concat([path, tf.zeros((BATCH, 1), tf.int32)], 1)
        fresh = (path != 0) & (path != tf.pad(path, [[0, 0], [2, 0]])[:, :-2])
        with tf.GradientTape() as tape:
            logs = tf.gather(
                tf.nn.log_softmax(x @ self.kernel + self.bias), tf.tile(path[:, None], (1, STEPS, 1)), batch_dims=2
            )
            alpha = tf.where(tf.range(2 * LABELS + 1) < 2, logs[:, 0], FAR)
            for i in range(1, STEPS):
                one = tf.pad(alpha, [[0, 0], [1, 0]], constant_values=FAR)[:, :-1]
                two = tf.where(fresh, tf.pad(alpha, [[0, 0], [2, 0]], constant_values=FAR)[:, :-2], FAR)
                after = tf.reduce_logsumexp(tf.stack([alpha, one, two]), 0) + logs[:, i]
                alpha = tf.where((i < steps)[:, None], after, alpha)
            ends = tf.stack([2 * count, tf.maximum(2 * count - 1, 0)], 1)
            losses = -tf.reduce_logsumexp(tf.gather(alpha, ends, batch_dims=1), 1)
            loss = tf.reduce_mean(losses)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        return {"loss": loss, "losses": losses}


def model():
    """Returns the module; its functions are entry points."""
    return Ctc()


def golden_fn(step, rng):
    """Labels that differ from their neighbors' blanks, and steps enough for them."""
    x = rng.standard_normal((BATCH, STEPS, WIDTH))
    return (
        x,
        rng.integers(1, SYMBOLS, (BATCH, LABELS)),
        rng.integers(9, STEPS + 1, BATCH),
        rng.integers(1, LABELS + 1, BATCH),
    )
