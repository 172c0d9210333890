"""Models with every kind of thunk, and the contents of tfcompile's header for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

from tests.stages.harness import Exported
from tfaot.compile.program.thunks import header
from tfaot.compile.program.thunks.kinds import CompiledFunction

HEAD = """\
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def inputs(**shapes):
    return [v1.placeholder(dtype, shape, name) for name, (dtype, *shape) in shapes.items()], ()


f32, f64, i32 = tf.float32, tf.float64, tf.int32
"""

MODELS: dict[str, str] = {
    # Copies of arguments, empty arrays, constants, an unused input, and a result that is returned twice.
    "edges": """
def input_fn():
    return inputs(a=(f32, 5), e=(f32, 0, 3), u=(f32,))

def model_fn(xs, _):
    a, e, _ = xs
    v, w = v1.get_variable("v", [5]), v1.get_variable("w", [5])
    with tf.control_dependencies([v.assign(a)]):
        return tf.identity(a), tf.identity(a), e, tf.constant([1.0, 2.0]), tf.reduce_sum(e), w.read_value(), tf.zeros([0, 4])
""",
    # Two variables are swapped: each is read before the other is written.
    "swap": """
def input_fn():
    return inputs(a=(f32, 5))

def model_fn(xs, _):
    v, w = v1.get_variable("v", [5]), v1.get_variable("w", [5])
    x, y = v.read_value(), w.read_value()
    with tf.control_dependencies([x, y]):
        with tf.control_dependencies([v.assign(y), w.assign(x)]):
            return xs[0] + x
""",
    "products": """
def input_fn():
    return inputs(d=(f64, 33, 65), i=(i32, 40, 41), b=(f32, 7, 33, 65), h=(f32, 32, 48))

def model_fn(xs, _):
    d, i, b, h = xs
    half, c = tf.cast(h, tf.float16), tf.complex(h, h * 2.0 - 1.0)
    z = tf.complex(tf.cast(h, f64), tf.cast(h, f64) + 1.0)
    c, z = tf.matmul(c, c, transpose_b=True), tf.matmul(z, z, transpose_a=True)
    return (
        tf.matmul(d, d, transpose_a=True), tf.matmul(i, i, transpose_b=True), tf.matmul(b, b, transpose_b=True),
        tf.cast(tf.matmul(half, half, transpose_b=True), f32), tf.math.real(c), tf.math.imag(c), tf.math.real(z), tf.math.imag(z),
    )
""",
    "convolutions": """
def input_fn():
    return inputs(image=(f32, 2, 12, 12, 4), signal=(f32, 2, 30, 4))

def model_fn(xs, _):
    image, signal = xs
    k, d = v1.get_variable("k", [3, 3, 4, 8]), v1.get_variable("d", [3, 3, 4, 2])
    y = tf.nn.conv2d(image, k, 2, "SAME")
    z = tf.nn.depthwise_conv2d(image, d, [1, 1, 1, 1], "SAME")
    t = tf.nn.conv2d_transpose(y, k, [2, 12, 12, 4], 2)
    loss = tf.reduce_mean(y * y) + tf.reduce_mean(t * t)
    w = tf.nn.conv1d(signal, tf.reshape(tf.range(120, dtype=f32), [5, 4, 6]) / 120.0, 1, "SAME")
    with tf.control_dependencies([v1.assign_sub(k, 0.1 * tf.gradients(loss, k)[0])]):
        return tf.identity(loss), z, w, tf.nn.conv2d(image, tf.ones([3, 3, 4, 2]), 1, "VALID", dilations=2)
""",
    # Operations after products and convolutions: biases, sums with other values, and bounds; in place or not.
    "epilogues": """
def input_fn():
    return inputs(image=(f32, 2, 12, 12, 8), x=(f32, 40, 300), d=(f64, 33, 65))

def model_fn(xs, _):
    image, x, d = xs
    rng = np.random.default_rng(3)

    def weights(*shape):
        return tf.constant(rng.standard_normal(shape).astype("float32"))

    def bias(y):
        return tf.nn.bias_add(y, weights(y.shape[-1]))

    first = tf.nn.relu6(bias(tf.nn.conv2d(image, weights(3, 3, 8, 20), 2, "SAME")))
    y = tf.nn.relu(bias(tf.nn.depthwise_conv2d(first, weights(3, 3, 20, 1), [1, 1, 1, 1], "SAME")))
    narrow = bias(tf.nn.conv2d(y, weights(1, 1, 20, 9), 1, "SAME"))
    wide = tf.nn.relu6(bias(tf.nn.conv2d(narrow, weights(1, 1, 9, 54), 1, "SAME")))
    again = bias(tf.nn.conv2d(wide, weights(1, 1, 54, 9), 1, "SAME")) + narrow
    z = tf.nn.relu(bias(tf.matmul(x, weights(300, 50))))
    u = bias(tf.matmul(z, weights(50, 300))) + x
    f = tf.nn.bias_add(tf.matmul(d, d, transpose_a=True), tf.constant(rng.standard_normal(65)))
    return again, tf.nn.relu(tf.nn.conv2d(again, weights(3, 3, 9, 9), 1, "SAME") + again), u, tf.minimum(f, 1.0)
""",
    # SGD of products' results: of whole and broken tiles, in pieces of the inner dimension, of a gradient that is also a result,
    # and of a matrix that a later product reads.
    "descent": """
def input_fn():
    return inputs(x=(f32, 70, 96), y=(f32, 70, 144), d=(f64, 33, 17), z=(f32, 900, 50))

def model_fn(xs, _):
    x, y, d, z = xs
    assigned = []

    def descend(name, gradient, rate):
        start = np.cos(np.arange(np.prod(gradient.shape))).reshape(gradient.shape)
        v = v1.get_variable(name, dtype=gradient.dtype, initializer=start.astype(gradient.dtype.as_numpy_dtype))
        assigned.append(v1.train.GradientDescentOptimizer(rate).apply_gradients([(gradient, v)]))
        return v

    descend("whole", tf.matmul(x, y, transpose_a=True), 0.25)
    descend("broken", tf.matmul(d, d, transpose_a=True), 0.5)
    descend("pieces", tf.matmul(z, z, transpose_a=True), 0.01)
    kept = tf.matmul(y, x, transpose_a=True)
    descend("kept", kept, 0.125)
    read = v1.get_variable("read", dtype=f32, initializer=np.sin(np.arange(96 * 144, dtype=np.float32)).reshape(96, 144))
    gradient = tf.matmul(x, tf.matmul(x, read), transpose_a=True)
    after = tf.matmul(gradient, read, transpose_b=True)
    with tf.control_dependencies([after]):
        assigned.append(read.assign_sub(0.001 * gradient))
    with tf.control_dependencies(assigned):
        return tf.identity(kept), tf.identity(after)
""",
    # Kernels that share arrays: rules by which optimizers update variables, with every operation that a formula can have. Rows are
    # whole vectors. For values after the last one, XLA's compiler can fuse the other of two products with their sum.
    "updates": """
def input_fn():
    return inputs(g=(f32, 7, 64), d=(f64, 5, 32), rate=(f32,))

def model_fn(xs, _):
    g, d, rate = xs
    assigned = []

    def variable(name, like):
        return v1.get_variable(name, like.shape, like.dtype, initializer=v1.ones_initializer())

    def set_to(v, value):
        assigned.append(v.assign(value))
        return value

    for kind, x in (("f", g), ("d", d)):
        v, m, s = (variable(kind + name, x) for name in "vms")
        m1 = set_to(m, 0.9 * m + 0.1 * x)
        s1 = set_to(s, 0.999 * s + 0.001 * tf.square(x))
        set_to(v, v - tf.cast(rate, x.dtype) * m1 / (tf.sqrt(s1) + 1e-7))
        w, a, u = (variable(kind + name, x) for name in "wau")
        a1 = set_to(a, a + (x - a) * 0.1)
        u1 = set_to(u, tf.maximum(0.99 * u, tf.abs(x)))
        set_to(w, w - 0.01 * tf.where(a1 * x > 0.0, a1, -x * tf.constant(0.5, x.dtype)) / u1)
        y, b, e = (variable(kind + name, x) for name in "ybe")
        c = tf.minimum(tf.maximum(x, -0.5), 0.5)
        e1 = set_to(e, 0.9 * e + 0.1 * c * c)
        b1 = set_to(b, 0.5 * b + 0.01 * c * tf.math.rsqrt(e1 + 1e-3))
        set_to(y, y - b1)
    with tf.control_dependencies(assigned):
        return tf.identity(rate)
""",
    # Constant right sides: with one or more rows, shared, also read elsewhere, transposed, and in other dtypes.
    "constants": """
def input_fn():
    return inputs(image=(f32, 2, 9, 9, 6), x=(f32, 7, 300), d=(f64, 33, 65), i=(i32, 40, 41))

def golden_fn(step, rng):
    return [*(rng.standard_normal(s).astype(t) for s, t in (((2, 9, 9, 6), "f4"), ((7, 300), "f4"), ((33, 65), "f8"))),
            rng.integers(-9, 9, [40, 41], "int32")], ()

def model_fn(xs, _):
    image, x, d, i = xs
    rng = np.random.default_rng(5)

    def weights(*shape, dtype="float32"):
        return tf.constant(rng.standard_normal(shape).astype(dtype))

    shared, seen = weights(300, 300), weights(300, 40)
    y = tf.tanh(tf.matmul(tf.tanh(tf.matmul(x, shared)), shared))
    z = tf.nn.relu(tf.matmul(y, weights(90, 300), transpose_b=True) + weights(90))
    c = tf.nn.conv2d(image, weights(3, 3, 6, 40), [1, 2, 1, 1], "SAME")
    c = tf.nn.relu(tf.nn.conv2d(c, weights(2, 3, 40, 100), 1, "VALID", dilations=2))
    t = tf.nn.conv2d_transpose(c, weights(3, 3, 24, 100), [2, 6, 10, 24], 2)
    return (
        z, t, tf.matmul(x, seen) * tf.gather(seen, tf.abs(i[0, 0])), tf.matmul(x[:1], weights(300, 64)),
        tf.matmul(x, weights(300, 10)), tf.matmul(d, weights(65, 44, dtype="float64")),
        tf.matmul(i, tf.constant(rng.integers(-9, 9, [41, 36], "int32"))),
    )
""",
    "sorts": """
def input_fn():
    return inputs(x=(f32, 3, 50, 4), m=(i32, 300))

def golden_fn(step, rng):
    x = rng.standard_normal([3, 50, 4]).astype("float32").round(1) + np.float32(0)
    return [x, rng.integers(0, 40, [300], "int32")], ()

def model_fn(xs, _):
    x, m = xs
    return (
        tf.sort(x, axis=1), tf.argsort(x, axis=1, stable=True), tf.argsort(m, direction="DESCENDING", stable=True),
        *tf.math.top_k(x, 2), *tf.math.top_k(tf.cast(m, f32), 300), *tf.math.top_k(m, 3), tf.sort(tf.cast(m, f64)),
    )
""",
    "conditionals": """
def input_fn():
    return inputs(x=(f32, 64, 64), n=(i32,))

def golden_fn(step, rng):  # the fourth step names no branch
    return [rng.standard_normal([64, 64]).astype("float32"), np.int32(step if step < 3 else -5)], ()

def model_fn(xs, _):
    x, n = xs
    y = tf.cond(n > 0, lambda: tf.matmul(x, x), lambda: tf.matmul(tf.sort(x), x) + 1.0)
    return y, tf.switch_case(n, [lambda: tf.matmul(x, x), lambda: tf.sort(x), lambda: tf.matmul(tf.sort(x), x) + 1.0])
""",
    # A NaN stays NaN in minima and maxima, including of several values.
    "nans": """
def input_fn():
    return inputs(x=(f32, 8, 4, 6))

def golden_fn(step, rng):
    x = rng.standard_normal([8, 4, 6]).astype("float32")
    x[step, 1, 2] = np.nan
    return [x], ()

def model_fn(xs, _):
    x, = xs
    found = (
        tf.reduce_max(x, 2), tf.reduce_min(x, [1, 2]), tf.reduce_max(x, 0), tf.nn.relu(x),
        tf.clip_by_value(x, -1.0, 1.0), tf.maximum(x, tf.roll(x, 1, 2)), tf.minimum(tf.roll(x, 1, 2), x),
        tf.nn.relu6(tf.matmul(tf.reshape(x, [32, 6]), tf.ones([6, 40])) + tf.range(40, dtype=f32)),
    )
    return tuple(tf.cast(tf.math.is_nan(y), tf.int32) for y in found)
""",
    "loops": """
def input_fn():
    return inputs(x=(f32, 64, 64), n=(i32,))

def golden_fn(step, rng):
    return [rng.standard_normal([64, 64]).astype("float32") * 0.1, np.int32(step)], ()

def model_fn(xs, _):
    x, n = xs

    def body(i, v):
        def inner(j, u):
            above = tf.reduce_sum(u) > 0.0
            return j + 1, tf.cond(above, lambda: tf.matmul(u, x) * 0.5, lambda: tf.matmul(x, u) * 0.2)

        return i + 1, tf.while_loop(lambda j, u: j < 5, inner, (0, tf.matmul(v, x)))[1]

    return tf.while_loop(lambda i, v: tf.logical_and(i < n, tf.reduce_max(tf.matmul(v, v)) < 1e9), body, (0, x))[1]
""",
    # Their compiled code calls functions of its own, and has nested sorts, loops, and products.
    # Loops whose steps multiply by variables, one of them transposed, and one that the loop changes.
    "recurrent": """
def input_fn():
    return inputs(x=(f32, 5, 40), d=(f64, 3, 28))

def model_fn(xs, _):
    x, d = xs
    variables = [v1.get_variable(*each) for each in (("w", [40, 56]), ("u", [40, 56]), ("v", [28, 28]))]
    w, u, v = (each.read_value() for each in variables)
    v = tf.cast(v, f64)

    def step(i, h):
        return i + 1, tf.tanh(tf.matmul(tf.tanh(tf.matmul(h, w)), u, transpose_b=True) + x)

    def changing(i, h, m):
        return i + 1, tf.tanh(tf.matmul(h, v) + tf.matmul(h, m)), tf.tanh(m + 0.1)

    first = tf.while_loop(lambda i, h: i < 20, step, [0, x])[1]
    second = tf.while_loop(lambda i, h, m: i < 9, changing, [0, d, v * 0.5])[1]
    with tf.control_dependencies([first, second]):
        with tf.control_dependencies([each.assign(each * 0.9) for each in variables]):
            return tf.identity(first), tf.identity(second)
""",
    # Products in batches that read heads where they lie: rows and columns of both sides, one query with a cache, two dtypes, and
    # a result that goes back to rows of all heads.
    "heads": """
def input_fn():
    return inputs(q=(f32, 2, 9, 24), k=(f32, 2, 13, 24), v=(f64, 2, 13, 24), cache=(f32, 3, 1, 70, 128), new=(f32, 3, 1, 1, 128))

def model_fn(xs, _):
    q, k, v, cache, new = xs

    def split(x, heads):
        return tf.transpose(tf.reshape(x, (*x.shape[:2], heads, -1)), (0, 2, 1, 3))

    def attend(q, k, v, heads, columns):
        keys = split(k, heads)
        keys = tf.transpose(keys, (0, 1, 3, 2)) if columns else keys
        scores = tf.matmul(split(q, heads), keys, transpose_b=not columns)
        mixed = tf.matmul(tf.nn.softmax(scores), split(v, heads))
        return tf.reshape(tf.transpose(mixed, (0, 2, 1, 3)), q.shape)

    keys, values = (tf.concat([cache[i], new[i]], 1) for i in (1, 2))
    gram = tf.matmul(split(v, 4), split(v, 4), transpose_a=True)
    return (
        attend(q, k, k * 2.0, 3, False), attend(q, k, k, 4, True), tf.cast(attend(v, v, v, 2, False), f32), tf.cast(gram, f32),
        attend(new[0], keys, values, 4, False), attend(new[0], keys, values, 2, True),
    )
""",
    # Copies in another order: of short rows, and of a part; and of long rows, of few values, and of values that don't stay
    # adjacent, which stay XLA's.
    "orders": """
def input_fn():
    return inputs(x=(f32, 10, 12, 13, 3), y=(f32, 20, 30, 4), z=(f32, 40, 30, 64))

def model_fn(xs, _):
    x, y, z = xs
    return (
        tf.transpose(x, (3, 1, 2, 0)), tf.transpose(x, (0, 2, 1, 3)), tf.transpose(y, (1, 0, 2)),
        tf.transpose(y[2:, 1:], (1, 0, 2)), tf.transpose(z, (1, 0, 2)), tf.transpose(y[0]),
    )
""",
    # Gradients of convolutions by their kernels: with few and with many filters, padding, and strides; and one with filters that
    # fill no vector, which stays XLA's.
    "filters": """
def input_fn():
    return inputs(x=(f32, 6, 13, 12, 3), few=(f32, 6, 12, 11, 4), many=(f32, 6, 7, 6, 32), other=(f32, 6, 13, 12, 12))

def model_fn(xs, _):
    x, few, many, other = xs

    def gradient(size, by, stride, padding):
        shape = [size, size, 3, by.shape[3]]
        return tf.raw_ops.Conv2DBackpropFilter(
            input=x, filter_sizes=shape, out_backprop=by, strides=[1, stride, stride, 1], padding=padding
        )

    return gradient(2, few, 1, "VALID"), gradient(3, many, 2, "SAME"), gradient(3, other, 1, "SAME")
""",
    # Layers on one row: constant and fed matrices in both orders, few and single outputs, with a bias, bounds, or neither, and
    # layers in a loop.
    "dense": """
def input_fn():
    return inputs(x=(f32, 1, 10), w=(f32, 13, 37), u=(f32, 3, 64))

def model_fn(xs, _):
    x, w, u = xs
    hidden = tf.nn.relu(tf.matmul(x, np.cos(np.arange(640.0, dtype=np.float32)).reshape(10, 64)) + np.float32(0.125))
    hidden = tf.nn.relu6(tf.matmul(hidden, np.sin(np.arange(4096.0, dtype=np.float32)).reshape(64, 64)))
    bias = np.cos(np.arange(64.0, dtype=np.float32))
    hidden = tf.nn.relu(tf.matmul(hidden, np.sin(np.arange(2.0, 4098.0, dtype=np.float32)).reshape(64, 64)) + bias)
    one = tf.matmul(hidden, np.cos(np.arange(64.0, dtype=np.float32)).reshape(64, 1)) - 3.0
    few = tf.matmul(hidden, u, transpose_b=True)
    wide = tf.matmul(tf.matmul(few, w[:3, :13]), w)

    def step(i, state):
        return i + 1, tf.nn.relu(tf.matmul(state, np.sin(np.arange(256.0, dtype=np.float32)).reshape(16, 16)) + bias[:16])

    return one, few, wide, tf.while_loop(lambda i, _: i < 20, step, [0, hidden[:, :16]])[1]
""",
    # Sums of blocks of rows, the first of which is shorter, of images, and of few columns; and sums that no call replaces: along
    # rows, of products, and of few values.
    "columns": """
def input_fn():
    return inputs(x=(f32, 81, 9, 9, 4), y=(f32, 8, 50, 40), z=(f32, 400, 3))

def model_fn(xs, _):
    x, y, z = xs
    v = v1.get_variable("v", [400, 3])
    with tf.control_dependencies([v.assign_add(z)]):
        return (
            tf.reduce_sum(x, (0, 1, 2)), tf.reduce_sum(y, 0), tf.reduce_sum(y, 1), tf.reduce_sum(z, 0), tf.reduce_sum(z, 1),
            tf.reduce_sum(tf.exp(y), 0), tf.reduce_sum(z[:20], 0),
        )
""",
    # Softmax along the last axis: of scores in four dimensions with and without a factor, of one row, of rows with masked values,
    # and along another axis, which stays XLA's.
    "softmax": """
def input_fn():
    return inputs(x=(f32, 2, 3, 7, 37), y=(f32, 1, 19), z=(f32, 5, 16))

def model_fn(xs, _):
    x, y, z = xs
    masked = tf.where(z > 0.5, z, tf.fill(z.shape, -1e9))
    return (
        tf.nn.softmax(x), tf.nn.softmax(x * 0.125), tf.nn.softmax(y * -3.0), tf.nn.softmax(masked), tf.nn.softmax(z, axis=0),
    )
""",
    # Products less their largest value, in rows that a mask covers, partly or whole: a mask before its scale, in every op that
    # has such a difference, and a factor that isn't constant. Rows of 40 values have a mask in pieces.
    "masks": """
def input_fn():
    return inputs(s=(f32, 8, 40), mask=(f32, 8, 40), t=(f32,))

def golden_fn(step, rng):
    mask = np.zeros([8, 40], "float32")
    mask[1:3, 5:30] = mask[3:] = [-1e9, -1e30, np.finfo("float32").min, 0.0][step]
    return [rng.standard_normal([8, 40]).astype("float32"), mask, np.float32(0.3)], ()

def model_fn(xs, _):
    s, mask, t = xs
    whole, labels = s + mask, np.arange(8, dtype=np.int32)
    scaled = whole * 32.0 ** -0.5
    less = scaled - tf.stop_gradient(tf.reduce_max(scaled, -1, keepdims=True))
    return (
        tf.nn.softmax(scaled), tf.nn.softmax(whole * t), tf.nn.softmax(whole * 0.125), tf.exp(tf.nn.log_softmax(scaled)),
        tf.nn.softmax(mask * 0.3), tf.nn.softmax(-mask * -0.7), tf.exp(less) / tf.reduce_sum(tf.exp(less), -1, keepdims=True),
        tf.nn.softmax(tf.transpose(scaled), axis=0), tf.exp(scaled - tf.reduce_logsumexp(scaled, -1, keepdims=True)),
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scaled),
        tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax(s), scaled),
    )
""",
    # Norms of rows: of a sum, with moments; with moments of which one is a result, too; without means, in rows that end in a part
    # of a vector; of few values, which stays XLA's; and of columns. And activations, with a bias and without.
    "norms": """
def input_fn():
    return inputs(x=(f32, 2, 180, 96), y=(f32, 360, 96), z=(f32, 70, 650), b=(f32, 96), g=(f32, 650), large=(f32, 101, 650))

def model_fn(xs, _):
    x, y, z, b, g, large = xs
    total = x + (tf.reshape(y, x.shape) + b)

    def norm(value):
        mean, variance = tf.nn.moments(value, -1, keepdims=True)
        return tf.nn.batch_normalization(value, mean, variance, b, b + 1.0, 1e-5), variance

    root = z * tf.math.rsqrt(tf.reduce_mean(z * z, -1, keepdims=True) + 1e-6) * g
    centered = z - tf.reduce_mean(z, -1, keepdims=True)
    few = x[0, :8] - tf.reduce_mean(x[0, :8], -1, keepdims=True)
    columns = y - tf.reduce_mean(y, 0, keepdims=True)
    biased = tf.nn.silu(large + g), tf.nn.gelu(3.0 * large - g)
    plain = tf.sigmoid(-large), tf.nn.gelu(4.0 * large), tf.tanh(3.0 * large)
    return norm(total)[0], *norm(y), root, centered * centered, few * few, columns * columns, *biased, *plain
""",
    # Rows that XLA reduces in windows, and in windows of windows: sums, root mean squares, softmaxes, and norms.
    "long_rows": """
def input_fn():
    a, b, c, d, e = (33, 1021), (3, 1025), (26, 1280), (2, 5, 2080), (8, 4096)
    return inputs(a=(f32, *a), b=(f32, *b), c=(f32, *c), d=(f32, *d), e=(f32, *e), g=(f32, 1280), h=(f32, 1021))

def model_fn(xs, _):
    a, b, c, d, e, g, h = xs

    def norm(value, scale):
        mean, variance = tf.nn.moments(value, -1, keepdims=True)
        return tf.nn.batch_normalization(value, mean, variance, scale, scale - 1.0, 1e-5)

    root = e * tf.math.rsqrt(tf.reduce_mean(e * e, -1, keepdims=True) + 1e-6)
    return norm(a, h), norm(c, g), root, tf.nn.softmax(b), tf.nn.softmax(d * -0.25), tf.reduce_sum(e, -1)
""",
    "algebra": """
def input_fn():
    return inputs(x=(f32, 24, 24))

def model_fn(xs, _):
    x = xs[0] + 4.0 * tf.eye(24)
    s = tf.matmul(x, x, transpose_b=True)
    return tf.linalg.cholesky(s), tf.abs(tf.linalg.qr(x)[1]), tf.linalg.svd(x, compute_uv=False), tf.linalg.inv(x)
""",
}
"""Together they have every kind of thunk, except random state, which the export stage replaces, and calls."""


@contextlib.contextmanager
def keeping_header(exported: Exported) -> Iterator[None]:
    """Makes the compile stage keep tfcompile's header next to its outputs, as `tfcompile.h`."""
    read = header.parse

    def keep(text: str) -> CompiledFunction:
        (exported.folder / "tfcompile.h").write_text(text)
        return read(text)

    with mock.patch.object(header, "parse", keep):  # the compiler's child inherits it
        yield
