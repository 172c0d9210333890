"""A model that can't be exported: its gradient of a loop has no bound, and it computes on strings."""

import tensorflow as tf


@tf.function(input_signature=[tf.TensorSpec([4], tf.float32, "x"), tf.TensorSpec([], tf.int32, "n")])
def model(x, n):
    y = x
    for _ in tf.range(n):
        y = tf.sin(y)
    return {"gradient": tf.gradients(y, x)[0], "length": tf.strings.length(tf.as_string(x)), "text": tf.as_string(x)}
