"""One dense layer with a row of inputs."""

import numpy as np
import tensorflow as tf


class Dense(tf.Module):
    """relu(x·W + b)."""

    def __init__(self) -> None:
        super().__init__()
        draw = np.random.default_rng(1)
        self.kernel = tf.Variable(draw.standard_normal((300, 520), np.float32) / 17, name="kernel")
        self.bias = tf.Variable(draw.standard_normal(520, np.float32), name="bias")

    @tf.function(input_signature=[tf.TensorSpec([1, 300], tf.float32, "x")])
    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Returns [1, 520]."""
        return tf.nn.relu(tf.matmul(x, self.kernel) + self.bias)


model = Dense()
