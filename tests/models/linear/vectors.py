"""Eigenvectors, singular vectors, and square roots, whose signs don't depend on the library, with gradients."""

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
    """Returns values and vectors."""
    a, _, w = (features[name] for name in "abw")
    spd = a @ tf.linalg.matrix_transpose(a) + tf.eye(6)
    z = tf.complex(a, a[:, ::-1])
    values, vectors = tf.linalg.eigh(spd)
    s, u, v = tf.linalg.svd(w)
    complex_u, complex_v = tf.linalg.svd(tf.complex(w, w[::-1]))[1:]
    loss = tf.reduce_sum((vectors * tf.sin(values)[:, None]) @ tf.linalg.matrix_transpose(vectors))
    outputs = {
        "complex_u": parts_of(complex_u),
        "complex_v": parts_of(complex_v),
        "complex_vectors": parts_of(tf.linalg.eigh(z + tf.linalg.adjoint(z))[1]),
        "gradient": tf.gradients(loss, a)[0],
        "singular_gradient": tf.gradients(tf.reduce_sum((u * tf.sin(s)) @ tf.transpose(v)), w)[0],
        "s": s,
        "u": u,
        "v": v,
        "values": values,
        "values_alone": tf.linalg.eigvalsh(spd),
        "vectors": vectors,
    }
    _, outputs["tall_u"], outputs["tall_v"] = tf.linalg.svd(w, full_matrices=True)
    _, outputs["wide_u"], outputs["wide_v"] = tf.linalg.svd(tf.transpose(w), full_matrices=True)

    def root(i, x):
        e, v = tf.linalg.eigh(x)
        return i + 1, tf.matmul(v * tf.sqrt(tf.abs(e))[:, None], v, transpose_b=True)

    e, right = tf.linalg.eig(a)
    outputs["eigenvalues"] = parts_of(e)
    outputs["eigenvalues_alone"] = parts_of(tf.linalg.eigvals(z))
    outputs["right"] = parts_of(right)
    outputs["square_root"] = tf.linalg.sqrtm(spd)
    outputs["complex_square_root"] = parts_of(tf.linalg.sqrtm(z))
    outputs["root_gradient"] = tf.gradients(tf.reduce_sum(tf.sin(tf.linalg.sqrtm(spd[0]))), a)[0]
    product = tf.matmul(right * tf.exp(e)[:, None], tf.linalg.inv(right))
    outputs["general_gradient"] = tf.gradients(tf.reduce_sum(tf.math.real(product)), a)[0]

    outputs["roots"] = tf.while_loop(lambda i, _: i < 3, root, [0, spd])[1]
    return outputs
