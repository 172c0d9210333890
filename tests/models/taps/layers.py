"""A sequence of layers: three inline, one in a function that is called, and one in a loop."""

import numpy as np
import tensorflow as tf

_RNG = np.random.default_rng(3)
_GAINS = (0.75, 1.2345678, 0.8, 0.9)  # altered.pb has a different one in layer1


class Layers(tf.Module):
    """Kernels, and the layers that use them."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels = [tf.Variable(_RNG.standard_normal([8, 8], np.float32), name=f"kernel{i}") for i in range(4)]

    def _layer(self, x: tf.Tensor, index: int) -> tf.Tensor:
        with tf.name_scope(f"layer{index}"):
            product = tf.matmul(x, self.kernels[index], name="product")
            return tf.tanh(product * _GAINS[index], name="activation")

    @tf.function
    def called(self, x: tf.Tensor) -> tf.Tensor:
        """Returns a layer in its own function."""
        return self._layer(x, 3)

    @tf.function(input_signature=[tf.TensorSpec([4, 8], tf.float32, name="x")])
    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Returns all layers."""
        for index in range(3):
            x = self._layer(x, index)
        x = self.called(x)
        for _ in tf.range(tf.cast(tf.reduce_sum(x), tf.int32) % 2 + 2):
            x = tf.sin(x, name="in_loop")
        return x


model = Layers()
