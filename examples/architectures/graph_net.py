"""A graph network: messages along edges, summed at their targets, and a training step on the nodes' classes."""

import numpy as np
import tensorflow as tf

NODES, EDGES, WIDTH, CLASSES = 20, 60, 16, 4


class GraphNet(tf.Module):
    """Two rounds of messages."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        shapes = {"message_0": (2 * WIDTH, WIDTH), "message_1": (2 * WIDTH, WIDTH), "update_0": (2 * WIDTH, WIDTH)}
        shapes |= {"update_1": (2 * WIDTH, WIDTH), "classes": (WIDTH, CLASSES)}
        self.weights = {
            name: tf.Variable(rng.standard_normal(shape).astype(np.float32) / shape[0] ** 0.5, name=name)
            for name, shape in shapes.items()
        }

    def logits(self, nodes, senders, receivers):
        """Returns a score for each node and class."""
        for i in range(2):
            ends = tf.concat([tf.gather(nodes, senders), tf.gather(nodes, receivers)], 1)
            messages = tf.nn.relu(ends @ self.weights[f"message_{i}"])
            count = tf.math.unsorted_segment_sum(tf.ones([EDGES]), receivers, NODES)
            total = tf.math.unsorted_segment_sum(messages, receivers, NODES) / tf.maximum(count, 1.0)[:, None]
            nodes += tf.tanh(tf.concat([nodes, total], 1) @ self.weights[f"update_{i}"])
        return nodes @ self.weights["classes"]

    @tf.function(
        input_signature=[
            tf.TensorSpec((NODES, WIDTH), name="nodes"),
            tf.TensorSpec((EDGES,), tf.int32, "senders"),
            tf.TensorSpec((EDGES,), tf.int32, "receivers"),
            tf.TensorSpec((NODES,), tf.int32, "classes"),
        ]
    )
    def train(self, nodes, senders, receivers, classes):
        """Makes a step of gradient descent."""
        weights = list(self.weights.values())
        with tf.GradientTape() as tape:
            logits = self.logits(nodes, senders, receivers)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(classes, logits))
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        return {"loss": loss, "best": tf.argmax(logits, 1)}


def model():
    """Returns the module; its functions are entry points."""
    return GraphNet()
