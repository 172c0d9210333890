"""Decompositions and solvers of batches, in real and complex numbers, with gradients."""

import tensorflow as tf

v1 = tf.compat.v1


def input_fn():
    """Returns matrices."""
    return {
        "a": v1.placeholder(tf.float32, [3, 6, 6], "a"),
        "b": v1.placeholder(tf.float32, [3, 6, 2], "b"),
        "w": v1.placeholder(tf.float64, [5, 3], "w"),
    }, ()


def parts_of(x):
    """Returns a complex tensor as real and imaginary parts."""
    return tf.stack([tf.math.real(x), tf.math.imag(x)])


def model_fn(features, _):
    """Returns factors and solutions."""
    a, b, w = (features[name] for name in "abw")
    spd = a @ tf.linalg.matrix_transpose(a) + tf.eye(6)
    z = tf.complex(a, a[:, ::-1])
    factor = tf.linalg.cholesky(spd)
    hermitian = z @ tf.linalg.adjoint(z) + tf.eye(6, dtype=z.dtype)
    lu, order = tf.linalg.lu(a)
    q, r = tf.linalg.qr(w)
    full_q, full_r = tf.linalg.qr(w, full_matrices=True)
    sign, log = tf.linalg.slogdet(a)
    loss = (
        tf.reduce_sum(tf.linalg.logdet(spd))
        + tf.reduce_sum(tf.sin(tf.linalg.solve(spd, b)))
        + tf.reduce_sum(tf.linalg.qr(a)[1] ** 2)
    )
    return {
        "cholesky": factor,
        "gradients": tf.concat(tf.gradients(loss, [a, b]), -1),
        "complex_determinant": parts_of(tf.linalg.det(z)),
        "complex_inverse": parts_of(tf.linalg.inv(z)),
        "complex_q": parts_of(tf.linalg.qr(z)[0]),
        "determinant": tf.linalg.det(a),
        "expm": tf.linalg.expm(w[:3]),
        "full_q": full_q,
        "full_r": full_r,
        "inverse": tf.linalg.inv(a),
        "least_squares": tf.linalg.lstsq(w, w[:, :1] + 1, fast=False),
        "log": log,
        "lu": lu,
        "order": order,
        "pseudo_inverse": tf.linalg.pinv(w),
        "q": q,
        "r": r,
        "sign": sign,
        "solution": tf.linalg.solve(a, b, adjoint=True),
        # Factors of transposed matrices, of which the runtime reads and writes the upper half.
        "upper": tf.linalg.matrix_transpose(tf.linalg.cholesky(tf.linalg.matrix_transpose(spd))),
        "complex_upper": parts_of(tf.linalg.cholesky(tf.linalg.adjoint(hermitian))),
        "triangular": tf.linalg.triangular_solve(factor[0], b, adjoint=True),
    }
