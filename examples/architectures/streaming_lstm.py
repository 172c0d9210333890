"""An LSTM for streams: each call takes a chunk, and continues from the state that the last one left in variables."""

import numpy as np
import tensorflow as tf

CHUNK, INPUTS, UNITS = 5, 6, 12


class Stream(tf.Module):
    """The layer, and its state."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        self.kernel = tf.Variable(0.3 * rng.standard_normal((INPUTS + UNITS, 4 * UNITS), np.float32), name="kernel")
        self.bias = tf.Variable(0.1 * rng.standard_normal(4 * UNITS, np.float32), name="bias")
        self.hidden = tf.Variable(tf.zeros((1, UNITS)), name="hidden")
        self.cell = tf.Variable(tf.zeros((1, UNITS)), name="cell")
        self.steps = tf.Variable(0, name="steps")

    @tf.function(input_signature=[tf.TensorSpec((1, CHUNK, INPUTS), name="x")])
    def feed(self, x):
        """Returns the layer's results for a chunk."""
        hidden, cell = self.hidden.read_value(), self.cell.read_value()
        results = []
        for i in range(CHUNK):
            entry, forget, new, out = tf.split(tf.concat([x[:, i], hidden], 1) @ self.kernel + self.bias, 4, 1)
            cell = tf.sigmoid(forget + 1) * cell + tf.sigmoid(entry) * tf.tanh(new)
            hidden = tf.sigmoid(out) * tf.tanh(cell)
            results.append(hidden)
        self.hidden.assign(hidden)
        self.cell.assign(cell)
        return {"results": tf.stack(results, 1), "steps": self.steps.assign_add(CHUNK)}

    @tf.function(input_signature=[])
    def reset(self):
        """Starts a new stream."""
        for variable in (self.hidden, self.cell, self.steps):
            variable.assign(tf.zeros_like(variable))
        return ()


def model():
    """Returns the module; its functions are entry points."""
    return Stream()
