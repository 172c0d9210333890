"""What random nets are written in: weights, and operations that can round as float32 does, but at random.

A net's file is this text, then the nets. `D` is the dtype in which all of it computes. With `NOISE`, which is only used in
float64, each operation whose result depends on the order of sums, or on a library's approximation, is off by as much as one
in float32 may be. So a few runs with noise show how far apart two correct programs can be at each value.
"""

import numpy as np
import tensorflow as tf

D = tf.float32
NOISE = 0.0
"""The size of an error, relative to the sum of absolute terms; 0 for none."""


def weight(seed, shape, scale, low=None):
    """Returns a constant: normal, or uniform from `low` on."""
    draw = np.random.default_rng(seed)
    value = draw.normal(size=shape) * scale if low is None else draw.uniform(low, low + scale, shape)
    return tf.constant(value.astype(np.float32), D)


def variable(seed, shape, scale, low=None):
    return tf.Variable(weight(seed, shape, scale, low), name="v" + "_".join(map(str, seed)))


def error(size):
    return tf.random.uniform(tf.shape(size), -NOISE, NOISE, D) * size


@tf.custom_gradient
def _noisy_both_ways(value):
    return (
        value + error(tf.abs(value)),
        lambda grad: (
            grad
            + error(
                tf.abs(grad) + 0.25 * tf.reduce_max(tf.abs(grad), -1, keepdims=True)
                if grad.shape.rank
                else tf.abs(grad)
            )
        ),
    )


def n(value):
    """A result of an approximation: exponentials, roots, and so on."""
    return _noisy_both_ways(value) if NOISE else value


def summed(value, terms):
    """A sum, with a function that adds the absolute values of its terms."""
    return _noisy_both_ways(value + tf.stop_gradient(error(terms()))) if NOISE else value


def mm(a, b, **how):
    return summed(tf.matmul(a, b, **how), lambda: tf.matmul(tf.abs(a), tf.abs(b), **how))


def total(a, axis=-1, keepdims=True):
    return summed(tf.reduce_sum(a, axis, keepdims), lambda: tf.reduce_sum(tf.abs(a), axis, keepdims))


def mean(a, axis=-1, keepdims=True):
    return summed(tf.reduce_mean(a, axis, keepdims), lambda: tf.reduce_mean(tf.abs(a), axis, keepdims))


def conv2d(a, k, **how):
    return summed(tf.nn.conv2d(a, k, **how), lambda: tf.nn.conv2d(tf.abs(a), tf.abs(k), **how))


def depthwise(a, k, **how):
    return summed(tf.nn.depthwise_conv2d(a, k, **how), lambda: tf.nn.depthwise_conv2d(tf.abs(a), tf.abs(k), **how))


def conv1d(a, k, **how):
    return summed(tf.nn.conv1d(a, k, **how), lambda: tf.nn.conv1d(tf.abs(a), tf.abs(k), **how))


def layer_norm(a, gamma, beta, eps=1e-5):
    center = a - mean(a)
    return center * n(tf.math.rsqrt(mean(center * center) + eps)) * gamma + beta


def rms_norm(a, gamma, eps=1e-6):
    return a * n(tf.math.rsqrt(mean(tf.square(a)) + eps)) * gamma


def moments_norm(a, gamma, beta, eps=1e-5, axes=(-1,)):
    if NOISE:
        average = mean(a, list(axes))
        variance = mean(tf.math.squared_difference(a, tf.stop_gradient(average)), list(axes))
        scale = n(tf.math.rsqrt(variance + eps)) * gamma
        return n(a * scale) + (beta - n(average * scale))  # as TensorFlow does, and these cancel
    average, variance = tf.nn.moments(a, list(axes), keepdims=True)
    return tf.nn.batch_normalization(a, average, variance, beta, gamma, eps)


def inference_norm(a, seed):
    size = a.shape[-1]
    return tf.nn.batch_normalization(
        a, weight([seed, 1], size, 0.3), weight([seed, 2], size, 1.0, 0.5), weight([seed, 3], size, 0.3),
        weight([seed, 4], size, 1.0, 0.5), 1e-3,
    )  # fmt: skip


def softmax(a, axis=-1):
    return n(tf.nn.softmax(a, axis))


def heads(a, count):
    """[batch, time, width] as [batch, heads, time, width of a head]."""
    return tf.transpose(tf.reshape(a, [*a.shape[:-1], count, a.shape[-1] // count]), [0, 2, 1, 3])


def joined(a):
    a = tf.transpose(a, [0, 2, 1, 3])
    return tf.reshape(a, [*a.shape[:-2], a.shape[-2] * a.shape[-1]])


def causal(rows, columns):
    return tf.constant(np.tril(np.ones((rows, columns), np.float32), columns - rows), D)


def calm(a, limit=1.0):
    """Values that decompositions and transforms take: finite ones, which are small with the default limit."""
    return tf.where(tf.abs(a) < 1e3, n(tf.tanh(a)), 0.3) if limit == 1.0 else tf.where(tf.abs(a) < limit, a, 0.3)


def off(a, axes):
    """An operand that is off by rounding errors of the size of its norm, as that of a stable algorithm."""
    if not NOISE:
        return a
    norm = tf.sqrt(tf.reduce_sum(a * a, axes, keepdims=True) / a.shape[-1])
    return a + error(tf.zeros_like(a) + tf.maximum(norm, tf.reduce_max(tf.abs(a), axes, keepdims=True)))


def regular(a, turn=0):
    """Matrices that are far from singular, and whose pivots are elsewhere than on the diagonal if they are turned."""
    matrix = calm(a) + tf.eye(a.shape[-1], dtype=D) * (a.shape[-1] + 1)
    return off(tf.roll(matrix, turn, -2), [-2, -1])


def positive(a):
    small = calm(a)
    return off(mm(small, small, transpose_b=True) + tf.eye(a.shape[-1], dtype=D), [-2, -1])


def factor(a):
    return off(tf.linalg.cholesky(positive(a)), [-2, -1])


def triangular(a, b, **how):
    return off(tf.linalg.triangular_solve(factor(a), off(calm(b), [-2, -1]), **how), [-2])


def solved(a, b, turn, **how):
    return off(tf.linalg.solve(regular(a, turn), off(calm(b), [-2]), **how), [-2])


def inverse(a, turn):
    return off(tf.linalg.inv(regular(a, turn)), [-2, -1])


def scaled(a, turn):
    sign, size = tf.linalg.slogdet(regular(a, turn))
    return calm(a) * (sign + n(tf.tanh(n(size))) + n(tf.linalg.det(regular(a) / (a.shape[-1] + 1.0))))[..., None, None]


def orthogonal(a, turn):
    """Q and R, with signs for which R's diagonal is positive."""
    q, r = tf.linalg.qr(regular(a, turn))
    sign = tf.sign(tf.linalg.diag_part(r))
    return off(q * sign[..., None, :], [-2, -1]) + off(r * sign[..., None], [-2, -1])


def of_eigenvalues(a):
    small = calm(a)
    values, vectors = tf.linalg.eigh(off(small + tf.linalg.matrix_transpose(small), [-2, -1]))
    return off(tf.matmul(vectors * n(tf.tanh(values))[..., None, :], vectors, transpose_b=True), [-2, -1])


def of_singular_values(a):
    s, u, v = tf.linalg.svd(off(calm(a), [-2, -1]))
    return off(tf.matmul(u * (s / (s + 1.0))[..., None, :], v, transpose_b=True), [-2, -1])


def filtered(a, b):
    """Rows whose spectrum is multiplied."""
    spectrum = tf.signal.rfft(off(calm(a, 1e30), [-1]))
    gate = tf.cast(n(tf.sigmoid(b[: a.shape[-1] // 2 + 1])), spectrum.dtype)
    return off(tf.signal.irfft(spectrum * gate, [a.shape[-1]]), [-1])


def spectrum(a, rank):
    """Parts of a complex transform, and of the real one, over the last axes."""
    axes = list(range(-rank, 0))
    x = off(calm(a, 1e30), axes)
    whole = {1: tf.signal.fft, 2: tf.signal.fft2d}[rank](tf.complex(x, tf.reverse(x, [-1])))
    half = {1: tf.signal.rfft, 2: tf.signal.rfft2d}[rank](x)
    real = tf.concat([tf.math.real(half), tf.math.imag(half)], -1)
    return off(tf.concat([tf.math.real(whole), tf.math.imag(whole), real], -1), axes)


def lstm(x, mask, seed, width, kind="lstm", steps=None):
    """A recurrent net over [batch, time, width] as a loop. Where `mask` [batch, time] is 0, the state stays."""
    batch, time, depth = x.shape
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[kind]
    w, u = (
        weight([seed, 1], (depth, gates * width), depth**-0.5),
        weight([seed, 2], (width, gates * width), width**-0.5),
    )
    b = weight([seed, 3], (gates * width,), 0.2)

    def step(i, h, c, out):
        x_i = x[:, i]
        z = mm(x_i, w) + b
        if kind == "lstm":
            z += mm(h, u)
            in_gate, forget, new, out_gate = tf.split(z, 4, -1)
            c_new = n(tf.sigmoid(forget + 1)) * c + n(tf.sigmoid(in_gate)) * n(tf.tanh(new))
            h_new = n(tf.sigmoid(out_gate)) * n(tf.tanh(c_new))
        elif kind == "gru":
            r = mm(h, u)
            update = n(tf.sigmoid(z[:, :width] + r[:, :width]))
            reset = n(tf.sigmoid(z[:, width : 2 * width] + r[:, width : 2 * width]))
            new = n(tf.tanh(z[:, 2 * width :] + reset * r[:, 2 * width :]))
            h_new = update * h + (1 - update) * new
            c_new = c
        else:
            h_new, c_new = n(tf.tanh(z + mm(h, u))), c
        if mask is not None:
            keep = mask[:, i, None] > 0.5
            h_new, c_new = tf.where(keep, h_new, h), tf.where(keep, c_new, c)
        return i + 1, h_new, c_new, out.write(i, h_new)

    zero = tf.zeros([batch, width], D)
    limit = time if steps is None else steps
    out = tf.TensorArray(D, time, element_shape=[batch, width])
    _, h, _, out = tf.while_loop(
        lambda i, *_: i < limit, step, (tf.constant(0), zero, zero, out), maximum_iterations=time
    )
    return tf.transpose(out.stack(), [1, 0, 2]), h


def clip(grads, how):
    if how == "norm":
        norm = n(tf.sqrt(tf.add_n([total(tf.square(g), None, False) for g in grads])))
        return [g * (0.5 / tf.maximum(norm, 0.5)) for g in grads]
    return [tf.clip_by_value(g, -0.1, 0.1) for g in grads] if how == "value" else grads


def slots(variables, seed):
    """Returns an optimizer's two slots for each variable, which aren't zero."""
    return [
        (
            tf.Variable(weight([seed, i, 7], v.shape, 0.01), name=f"m{seed}_{i}"),
            tf.Variable(weight([seed, i, 8], v.shape, 0.01, 0.001), name=f"s{seed}_{i}"),
        )
        for i, v in enumerate(variables)
    ]


def update(variables, slots, grads, how):
    """Takes one step of an optimizer."""
    for v, (m, s), g in zip(variables, slots, grads, strict=True):
        if how == "sgd":
            v.assign_sub(0.05 * g)
        elif how == "momentum":
            m.assign(0.9 * m + g)
            v.assign_sub(0.05 * m)
        elif how == "adam":
            m.assign_add((g - m) * 0.1)
            s.assign_add((tf.square(g) - s) * 0.001)
            v.assign_sub(0.01 * m / (n(tf.sqrt(s)) + 1e-7))
        elif how == "adamw":
            m.assign(0.9 * m + 0.1 * g)
            s.assign(0.999 * s + 0.001 * g * g)
            v.assign(v - 0.01 * (m * n(tf.math.rsqrt(s + 1e-8)) + 0.1 * v))
        elif how == "rmsprop":
            s.assign(0.9 * s + 0.1 * tf.square(g))
            v.assign_sub(0.01 * g * n(tf.math.rsqrt(s + 1e-7)))
        else:
            s.assign_add(tf.square(g))
            v.assign_sub(0.01 * g / n(tf.sqrt(s + 1e-7)))
