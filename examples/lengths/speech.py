"""A front end for speech: a causal convolution over frames, as they come, and a recurrent layer. It keeps its state."""

import numpy as np
import tensorflow as tf

BANDS, WIDTH = 20, 24


class FrontEnd(tf.Module):
    """A causal convolution over frames, then a gated layer. Chunks of any lengths give what the whole recording gives."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)

        def weight(name, *shape):
            return tf.Variable(rng.standard_normal(shape, np.float32) / shape[-2] ** np.float32(0.5), name=name)

        self.kernel, self.gates, self.candidate = (
            weight("kernel", 3, BANDS, WIDTH),
            weight("gates", 2 * WIDTH, 2 * WIDTH),
            weight("candidate", 2 * WIDTH, WIDTH),
        )
        self.tail = tf.Variable(tf.zeros([1, 2, BANDS]), name="tail")
        self.hidden = tf.Variable(tf.zeros([1, WIDTH]), name="hidden")

    @tf.function(input_signature=[tf.TensorSpec((1, None, BANDS), tf.float32, "frames")])
    def __call__(self, frames):
        """Returns the layer's state after each frame."""
        whole = tf.concat([self.tail, frames], 1)
        x = tf.nn.relu(tf.nn.conv1d(whole, self.kernel, 1, "VALID"))

        def step(hidden, x):
            update, reset = tf.split(tf.sigmoid(tf.concat([x, hidden], 1) @ self.gates), 2, 1)
            new = tf.tanh(tf.concat([x, reset * hidden], 1) @ self.candidate)
            return update * hidden + (1 - update) * new

        states = tf.transpose(tf.scan(step, tf.transpose(x, [1, 0, 2]), self.hidden), [1, 0, 2])
        self.tail.assign(tf.gather(whole, tf.shape(frames)[1] + tf.range(2), axis=1))
        self.hidden.assign(states[:, -1])
        return {"states": states}


def model():
    """Returns the front end, whose call is the entry point."""
    return FrontEnd()
