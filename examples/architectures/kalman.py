"""A Kalman filter: it follows a point with a velocity through noisy measurements, some of which are missing."""

import numpy as np
import tensorflow as tf

STEPS = 20
MOVE = np.array([[1, 0, 0.1, 0], [0, 1, 0, 0.1], [0, 0, 0.98, 0], [0, 0, 0, 0.98]], np.float32)
SEE = np.eye(2, 4, dtype=np.float32)


@tf.function(input_signature=[tf.TensorSpec((STEPS, 2), name="measured"), tf.TensorSpec((STEPS,), tf.bool, "present")])
def model(measured, present):
    """Returns each state, its uncertainty, and the measurements' log-likelihood."""

    def step(carried, given):
        state, spread, _ = carried
        value, there = given
        state = tf.linalg.matvec(MOVE, state)
        spread = MOVE @ spread @ tf.transpose(MOVE) + 0.01 * tf.eye(4)
        off = value - tf.linalg.matvec(SEE, state)
        within = SEE @ spread @ tf.transpose(SEE) + 0.3 * tf.eye(2)
        gain = spread @ tf.transpose(SEE) @ tf.linalg.inv(within)
        root = tf.linalg.cholesky(within)
        scaled = tf.linalg.triangular_solve(root, off[:, None])
        log = (
            -0.5 * tf.reduce_sum(scaled**2) - tf.reduce_sum(tf.math.log(tf.linalg.diag_part(root))) - np.log(2 * np.pi)
        )
        return (
            tf.where(there, state + tf.linalg.matvec(gain, off), state),
            tf.where(there, (tf.eye(4) - gain @ SEE) @ spread, spread),
            tf.where(there, log, 0.0),
        )

    states, spreads, logs = tf.scan(step, (measured, present), (tf.zeros([4]), tf.eye(4), tf.constant(0.0)))
    return {"states": states, "spreads": tf.linalg.diag_part(spreads), "likelihood": tf.reduce_sum(logs)}
