"""A filter and a recurrent gate for audio in blocks of 64 or 256 samples: each call continues where the last one ended."""

import numpy as np
import tensorflow as tf

TAPS, FRAME, UNITS = 32, 16, 8


class Gate(tf.Module):
    """Filters the signal, and lowers it where the network says so. Its state is in variables that it writes."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        self.taps = tf.Variable(rng.standard_normal((TAPS, 1, 1), np.float32) / TAPS**0.5, name="taps")
        self.kernel = tf.Variable(0.4 * rng.standard_normal((FRAME + UNITS, 2 * UNITS), np.float32), name="kernel")
        self.out = tf.Variable(rng.standard_normal((UNITS, 1), np.float32), name="out")
        self.past = tf.Variable(tf.zeros((TAPS - 1,)), name="past")
        self.state = tf.Variable(tf.zeros((1, UNITS)), name="state")

    def block(self, samples):
        """Returns as many samples as it gets."""
        signal = tf.concat([self.past, samples], 0)
        self.past.assign(signal[-(TAPS - 1) :])
        filtered = tf.nn.conv1d(signal[None, :, None], self.taps, 1, "VALID")
        frames = tf.reshape(filtered, (-1, FRAME))
        state, gains = self.state.read_value(), []
        for i in range(frames.shape[0]):
            update, new = tf.split(tf.concat([frames[i : i + 1], state], 1) @ self.kernel, 2, 1)
            keep = tf.sigmoid(update)
            state = keep * state + (1 - keep) * tf.tanh(new)
            gains.append(tf.sigmoid(state @ self.out))
        self.state.assign(state)
        return {"out": tf.reshape(frames * tf.concat(gains, 0), (-1,))}

    @tf.function(input_signature=[tf.TensorSpec((64,), name="samples")])
    def block_64(self, samples):
        """The next 64 samples."""
        return self.block(samples)

    @tf.function(input_signature=[tf.TensorSpec((256,), name="samples")])
    def block_256(self, samples):
        """The next 256 samples, with the same state."""
        return self.block(samples)

    @tf.function(input_signature=[])
    def reset(self):
        """Starts with silence."""
        self.past.assign(tf.zeros_like(self.past))
        self.state.assign(tf.zeros_like(self.state))
        return ()


def model():
    """Returns the module; its functions are entry points."""
    return Gate()
