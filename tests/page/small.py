"""A small model with two layers, for its report."""

import numpy as np
import tensorflow as tf

_RNG = np.random.default_rng(5)


class Small(tf.Module):
    """Kernels, and the layers that use them."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels = [tf.Variable(_RNG.standard_normal([16, 16], np.float32), name=f"kernel{i}") for i in range(2)]

    @tf.function(input_signature=[tf.TensorSpec([8, 16], tf.float32, name="x")])
    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Returns a softmax, whose gather clamps indices."""
        for index, kernel in enumerate(self.kernels):
            with tf.name_scope(f"layer{index}"):
                x = tf.nn.relu(tf.matmul(x, kernel, name="product"), name="activation")
        chosen = tf.gather(x, tf.argmax(x, axis=1) % 8)
        return tf.nn.softmax(chosen)


model = Small()
