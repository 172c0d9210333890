"""A Kalman filter for a point with a velocity: each call takes a measurement, and goes on from the last call's estimate."""

import numpy as np
import tensorflow as tf

MOVE = np.array([[1, 0, 0.1, 0], [0, 1, 0, 0.1], [0, 0, 1, 0], [0, 0, 0, 1]])
SEE = np.eye(2, 4)


class Filter(tf.Module):
    """The estimate is in variables that it writes."""

    def __init__(self):
        super().__init__()
        self.state = tf.Variable(tf.zeros((4,), tf.float64), name="state")
        self.spread = tf.Variable(10 * tf.eye(4, dtype=tf.float64), name="spread")

    @tf.function(input_signature=[tf.TensorSpec((2,), tf.float64, name="measured")])
    def update(self, measured):
        """Returns the new estimate, and the measurement's log-likelihood."""
        state = tf.linalg.matvec(MOVE, self.state)
        spread = MOVE @ self.spread @ MOVE.T + 1e-4 * tf.eye(4, dtype=tf.float64)
        off = measured - tf.linalg.matvec(SEE, state)
        root = tf.linalg.cholesky(SEE @ spread @ SEE.T + 0.09 * tf.eye(2, dtype=tf.float64))
        gain = tf.transpose(tf.linalg.cholesky_solve(root, SEE @ spread))
        state += tf.linalg.matvec(gain, off)
        # Joseph's form stays symmetric and positive.
        rest = tf.eye(4, dtype=tf.float64) - gain @ SEE
        self.state.assign(state)
        self.spread.assign(rest @ spread @ tf.transpose(rest) + 0.09 * gain @ tf.transpose(gain))
        scaled = tf.linalg.triangular_solve(root, off[:, None])
        log = (
            -0.5 * tf.reduce_sum(scaled**2) - tf.reduce_sum(tf.math.log(tf.linalg.diag_part(root))) - np.log(2 * np.pi)
        )
        return {"estimate": state, "likelihood": log}


def model():
    """Returns the module; its functions are entry points."""
    return Filter()
