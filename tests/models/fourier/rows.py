"""Fourier transforms of many rows and in several dimensions, in both precisions, with lengths that cut off or fill up."""

import tensorflow as tf

v1 = tf.compat.v1
DTYPES = (tf.float32, tf.float64)


def input_fn():
    """Returns real and imaginary parts, and real values, of each dtype."""
    parts = {f"x_{dtype.name}": v1.placeholder(dtype, [2, 3, 6, 5, 14], f"x_{dtype.name}") for dtype in DTYPES}
    return parts | {f"r_{dtype.name}": v1.placeholder(dtype, [2, 37, 12], f"r_{dtype.name}") for dtype in DTYPES}, ()


def parts_of(x):
    """Returns a complex tensor as real and imaginary parts."""
    return tf.stack([tf.math.real(x), tf.math.imag(x)])


def model_fn(features, _):
    """Returns each transform."""
    outputs = {}
    for name in (dtype.name for dtype in DTYPES):
        x = tf.complex(*tf.unstack(features[f"x_{name}"]))
        real = features[f"r_{name}"]
        outputs[f"fft_{name}"] = parts_of(tf.signal.fft(x))
        outputs[f"ifft2d_{name}"] = parts_of(tf.signal.ifft2d(x))
        outputs[f"fft3d_{name}"] = parts_of(tf.signal.fft3d(x))
        outputs[f"irfft3d_{name}"] = tf.signal.irfft3d(x, [6, 5, 26])
        outputs[f"rfft2d_{name}"] = parts_of(tf.signal.rfft2d(real))
        outputs[f"cut_{name}"] = parts_of(tf.signal.rfft(real, [7]))
        outputs[f"filled_{name}"] = parts_of(tf.signal.rfft2d(real, [40, 16]))
        outputs[f"irfft2d_{name}"] = tf.signal.irfft2d(x, [6, 8])
        outputs[f"constant_{name}"] = (
            parts_of(tf.signal.rfft(tf.constant([1.0, 3.0, 2.0, 5.0], real.dtype))) + real[0, 0, 0]
        )
    return outputs
