"""A GRU that keeps its state between chunks, and holds it where a mask is zero."""

import numpy as np
import tensorflow as tf

WIDTH = 8


class Gru(tf.Module):
    """A recurrent layer over sequences in two rows."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)

        def weight(name, *shape):
            return tf.Variable(rng.standard_normal(shape, np.float32), name=name)

        self.input, self.inner = weight("input", 6, 3 * WIDTH), weight("inner", WIDTH, 3 * WIDTH)
        self.hidden = tf.Variable(tf.zeros([2, WIDTH]), name="hidden")

    @tf.function(input_signature=[tf.TensorSpec((2, None, 6), name="x"), tf.TensorSpec((2, None), name="mask")])
    def __call__(self, x, mask):
        """Returns the state after each place, and what the proof that padding is harmless doesn't follow, so XLA bounds its size.

        Places of the second half of a sequence count from the end, and the reshape mixes rows.
        """

        def step(hidden, now):
            x, there = now
            update, reset, new = tf.split(x @ self.input, 3, 1)
            held_update, held_reset, held_new = tf.split(hidden @ self.inner, 3, 1)
            update, reset = tf.sigmoid(update + held_update), tf.sigmoid(reset + held_reset)
            new = update * hidden + (1 - update) * tf.tanh(new + reset * held_new)
            return tf.where(there[:, None] > 0, new, hidden)

        states = tf.scan(step, (tf.transpose(x, [1, 0, 2]), tf.transpose(mask)), self.hidden)
        self.hidden.assign(states[-1])
        time = tf.shape(states)[0]
        halves = tf.concat([states[time // 2 :], states[: time // 2]], 0)
        averages = tf.cumsum(halves) / tf.range(1.0, tf.cast(time + 1, tf.float32))[:, None, None]
        states = tf.transpose(states, [1, 0, 2])
        mixed = tf.reshape(states, [time, 2 * WIDTH])
        return {"averages": tf.transpose(averages, [1, 0, 2]), "mixed": tf.nn.softmax(mixed, 0), "states": states}


def model():
    """Returns the layer, whose call is the entry point."""
    return Gru()


def golden_fn(step, rng):
    """Chunks with gaps."""
    length = [1, 16, 4, 5, 15][step % 5]
    return rng.standard_normal((2, length, 6)), rng.integers(0, 2, (2, length))
