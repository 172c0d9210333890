"""The mean of the sum of two vectors. TensorFlow runs an op after another, and stores the sum; compiled code does not."""

import tensorflow as tf


@tf.function(input_signature=[tf.TensorSpec([4096], tf.float32, "x"), tf.TensorSpec([4096], tf.float32, "y")])
def model(x, y):
    """Returns the mean."""
    return {"mean": tf.reduce_mean(x + y)}
