"""A model whose edge has dtypes that a C++ class stores as others, including a variable."""

import tensorflow as tf

scale = tf.Variable(tf.cast([0.5, 1.5, -2.0, 3.0], tf.bfloat16), name="scale")


@tf.function(input_signature=[tf.TensorSpec((8, 4), tf.bfloat16), tf.TensorSpec((8,), tf.complex64)])
def model(x, signal):
    """Moves the variable, scales rows, and rotates a signal by 90 degrees."""
    scale.assign_add(tf.reduce_mean(x, axis=0))
    return {"scaled": x * scale, "turned": signal * tf.constant(1j, tf.complex64)}
