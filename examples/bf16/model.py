"""bfloat16 and complex numbers at the edge, and a result whose size is known only at run time."""

import tensorflow as tf

scale = tf.Variable(tf.cast([0.5, 1.5, -2.0, 3.0], tf.bfloat16), name="scale")


@tf.function(input_signature=[tf.TensorSpec((8, 4), tf.bfloat16), tf.TensorSpec((8,), tf.complex64)])
def model(x, signal):
    """Scales rows, turns a signal by 90 degrees, and finds the large values."""
    scaled = x * scale
    return {
        "large": tf.where(scaled > 1),
        "scaled": scaled,
        "turned": signal * tf.constant(1j, tf.complex64),
    }
