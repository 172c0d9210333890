"""Two functions with any number of rows, over one variable."""

import tensorflow as tf


class Model(tf.Module):
    """Scales rows."""

    def __init__(self):
        self.w = tf.Variable([1.0, 2.0], name="w")

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32)])
    def forward(self, x):
        """Returns x w."""
        return x * self.w


model = Model()
