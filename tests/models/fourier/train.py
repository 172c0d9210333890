"""A step that learns a filter of the spectrum, and transforms inside a loop."""

import tensorflow as tf

v1 = tf.compat.v1


def input_fn():
    """Returns four signals."""
    return v1.placeholder(tf.float32, [4, 64], "x"), ()


def model_fn(x, _):
    """Returns the loss, and a signal that a loop smooths."""
    weight = v1.get_variable("filter", [33], tf.float32, v1.zeros_initializer(), use_resource=True)
    spectrum = tf.signal.rfft(x) * tf.cast(tf.nn.sigmoid(weight), tf.complex64)
    loss = tf.reduce_mean(tf.square(tf.signal.irfft(spectrum) - tf.roll(x, 1, 1)))
    (gradient,) = tf.gradients(loss, [weight])

    def smoothed(i, state):
        return i + 1, tf.math.real(tf.signal.ifft(tf.signal.fft(tf.cast(state, tf.complex64)) * 0.5))

    _, state = tf.while_loop(lambda i, _: i < 3, smoothed, [0, x])
    with tf.control_dependencies([weight.assign_sub(0.5 * gradient)]):
        return {"loss": tf.identity(loss), "state": state}
