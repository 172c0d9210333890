"""A decision forest as three products: which conditions hold, which leaf's conditions all hold, and the leaves' votes."""

import numpy as np
import tensorflow as tf

FEATURES, DEPTH, TREES, CLASSES = 6, 3, 5, 3
NODES, LEAVES = 2**DEPTH - 1, 2**DEPTH
RNG = np.random.default_rng(0)
CHOSEN = np.eye(FEATURES, dtype=np.float32)[RNG.integers(0, FEATURES, (TREES, NODES))].transpose(0, 2, 1)
LIMITS = RNG.standard_normal((TREES, 1, NODES), np.float32)
VOTES = RNG.standard_normal((TREES, LEAVES, CLASSES), np.float32)
PATHS, LEFT = np.zeros((NODES, LEAVES), np.float32), np.zeros(LEAVES, np.float32)
for leaf in range(LEAVES):
    node = 0
    for bit in reversed(range(DEPTH)):
        right = leaf >> bit & 1
        PATHS[node, leaf] = -1 if right else 1
        LEFT[leaf] += 1 - right
        node = 2 * node + 1 + right


@tf.function(input_signature=[tf.TensorSpec((16, FEATURES), name="x")])
def model(x):
    """Returns the classes' probabilities, and how many trees vote for each leaf."""
    held = tf.cast(tf.einsum("bf,tfn->tbn", x, CHOSEN) < LIMITS, tf.float32)
    leaves = tf.cast(tf.equal(held @ PATHS, LEFT), tf.float32)
    return {"shares": tf.nn.softmax(tf.reduce_sum(leaves @ VOTES, 0)), "leaves": tf.argmax(leaves, 2)}
