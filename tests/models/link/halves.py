"""Half of every value. For the smallest normal float, that is a denormal."""

import tensorflow as tf


@tf.function(input_signature=[tf.TensorSpec((4,), tf.float32, name="x")])
def model(x):
    """Returns x / 2."""
    return {"y": x * 0.5}
