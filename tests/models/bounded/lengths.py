"""Values whose length is an input: ops that XLA computes wrongly at lengths that are known only at run time."""

import numpy as np
import tensorflow as tf

LONGEST = 64
PLACES = np.linspace(0, 1, 80, dtype=np.float32)[:, None]


@tf.function
def sums(x):
    """A function of values whose length only run time knows."""
    return tf.cumsum(x, 1), x[:, -3:]


@tf.function(input_signature=[tf.TensorSpec((2, LONGEST, 8), name="x"), tf.TensorSpec((), tf.int32, name="n")])
def model(x, n):
    """Cumulative ops, slices that count from the end, averages over windows, and other orders."""
    x = x[:, :n]
    total, tail = sums(x)
    return {
        "averages": tf.nn.avg_pool1d(x, 3, 1, "SAME"),
        "backwards": x[:, -2::-1],
        "count": tf.reduce_sum(tf.ones_like(x)),
        "log": tf.math.cumulative_logsumexp(x, 1, exclusive=True),
        "middle": x[:, 2:-1],
        "part": tf.reduce_mean(tf.slice(tf.pad(x, [[0, 0], [5, 2], [0, 0]]), [0, 2, 0], [2, 5, 8]), 1),
        "places": x + tf.constant(PLACES)[: tf.shape(x)[1]],
        "product": tf.math.cumprod(tf.tanh(x) + 1, 1, reverse=True),
        "reversed": tf.reverse_sequence(x, tf.minimum([40, 5], tf.shape(x)[1]), seq_axis=1),
        "rolled": tf.roll(x, [3, -1], [1, 2]),
        "sum": total,
        "tail": tail,
        "total": tf.reduce_sum(tf.cumsum(x, 1)[:, :3], 1),
    }


def golden_fn(step, rng):
    """Lengths at the bound, below it, zero, and beyond it, where TensorFlow takes all there is."""
    return rng.standard_normal((2, LONGEST, 8)), np.int32([LONGEST, 37, 1, 0, LONGEST + 9, -60][step % 6])
