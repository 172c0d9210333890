"""Fourier transforms of single rows, of lengths for each way of the runtime: stages, chirps, and the definition."""

import tensorflow as tf

v1 = tf.compat.v1
LENGTHS = (1, 2, 17, 100, 127, 256, 1000, 1021)


def input_fn():
    """Returns real and imaginary parts, and real values, of each length."""
    parts = {f"x{n}": v1.placeholder(tf.float32, [2, 1, n], f"x{n}") for n in LENGTHS}
    return parts | {f"r{n}": v1.placeholder(tf.float32, [n], f"r{n}") for n in LENGTHS}, ()


def parts_of(x):
    """Returns a complex tensor as real and imaginary parts."""
    return tf.stack([tf.math.real(x), tf.math.imag(x)])


def model_fn(features, _):
    """Returns each transform."""
    outputs = {}
    for n in LENGTHS:
        x = tf.complex(*tf.unstack(features[f"x{n}"]))
        outputs[f"fft{n}"] = parts_of(tf.signal.fft(x))
        outputs[f"ifft{n}"] = parts_of(tf.signal.ifft(x))
        outputs[f"rfft{n}"] = parts_of(tf.signal.rfft(features[f"r{n}"]))
        outputs[f"irfft{n}"] = tf.signal.irfft(x[:, : n // 2 + 1], [n])
    return outputs
