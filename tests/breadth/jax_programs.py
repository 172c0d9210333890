"""Exports programs of many kinds with `tfaot.jax`, and JAX's own results: `jax_programs.py OUT.zip`. See jax_breadth.py."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.ode
import jax.numpy as jnp
import jax.scipy as jsp
import jax.scipy.optimize
import jax.scipy.sparse.linalg
import numpy as np
from jax import lax, nn, random

import tfaot.jax
from tfaot.core import programs

DRAW = np.random.RandomState(0)


def f(*shape: int) -> Any:
    """Floats."""
    return DRAW.randn(*shape).astype(np.float32)


def i(*shape: int, to: int = 5) -> Any:
    """Integers."""
    return DRAW.randint(0, to, shape).astype(np.int32)


def spd(n: int) -> Any:
    """A positive definite matrix."""
    a = f(n, n)
    return a @ a.T + n * np.eye(n, dtype=np.float32)


X, V, W, IMAGE, KEY = f(6, 8), f(8), f(8, 8) / 3, f(2, 8, 8, 3), np.array([1, 2], np.uint32)
S = spd(6)


def key(bits: Any) -> Any:
    """A key from its bits."""
    return random.wrap_key_data(bits)


def loss(w: Any, x: Any) -> Any:
    """A loss to differentiate."""
    return jnp.mean(jnp.tanh(x @ w) ** 2)


def adam(w: Any, m: Any, v: Any, n: Any, x: Any) -> Any:
    """A step of Adam."""
    g = jax.grad(loss)(w, x)
    m, v, n = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g, n + 1
    return w - 0.01 * (m / (1 - 0.9**n)) / (jnp.sqrt(v / (1 - 0.999**n)) + 1e-8), m, v, n


def rk4(y: Any, w: Any) -> Any:
    """A solver with fixed steps."""

    def step(y: Any, _: Any) -> Any:
        d = lambda y: jnp.tanh(w @ y) - y  # noqa: E731
        a = d(y)
        b = d(y + 0.05 * a)
        c = d(y + 0.05 * b)
        y = y + 0.1 / 6 * (a + 2 * b + 2 * c + d(y + 0.1 * c))
        return y, y

    return lax.scan(step, y, None, 20)


def kalman(x: Any, p: Any, z: Any) -> Any:
    """A filter of one measurement after another."""

    def step(state: Any, z: Any) -> Any:
        x, p = state
        p = p + 0.1 * jnp.eye(6)
        gain = p[:, :1] / (p[0, 0] + 0.5)
        return (x + gain[:, 0] * (z - x[0]), p - gain @ p[:1]), x[0]

    return lax.scan(step, (x, p), z)


def mpc(x: Any, a: Any) -> Any:
    """Gradient descent on the controls of a horizon."""

    def cost(u: Any) -> Any:
        last, costs = lax.scan(lambda x, u: (jnp.tanh(a @ x) + u, jnp.sum(x**2) + 0.1 * jnp.sum(u**2)), x, u)
        return costs.sum() + jnp.sum(last**2)

    return lax.fori_loop(0, 10, lambda _, u: u - 0.05 * jax.grad(cost)(u), jnp.zeros((5, 8)))


def metropolis(bits: Any, x: Any) -> Any:
    """A random walk."""

    def step(x: Any, k: Any) -> Any:
        a, b = random.split(k)
        y = x + 0.3 * random.normal(a, x.shape)
        take = jnp.log(random.uniform(b)) < (jnp.sum(x**2) - jnp.sum(y**2)) / 2
        return jnp.where(take, y, x), take

    return lax.scan(step, x, random.split(key(bits), 16))


def attention(x: Any, w: Any) -> Any:
    """A block of a transformer."""
    q, k, v = (x @ jnp.roll(w, n) for n in range(3))
    x = x + nn.softmax(q @ k.T / 3 + jnp.where(jnp.tri(6) > 0, 0, -1e9)) @ v
    return x + nn.gelu(nn.standardize(x) @ w) @ w.T


def decode(cache: Any, at: Any, x: Any) -> Any:
    """A step of a decoder with a cache."""
    cache = lax.dynamic_update_slice(cache, x[None], (at, 0))
    weights = nn.softmax(jnp.where(jnp.arange(6) <= at, cache @ x, -jnp.inf))
    return cache, jnp.argmax(weights @ cache)


def conv(x: Any, w: Any, *, n: int = 2, **more: Any) -> Any:
    """A convolution."""
    axes = ("NWC", "WIO", "NWC") if n == 1 else ("NHWC", "HWIO", "NHWC") if n == 2 else ("NDHWC", "DHWIO", "NDHWC")
    return lax.conv_general_dilated(x, w, more.pop("strides", (1,) * n), "SAME", dimension_numbers=axes, **more)


Case = tuple[Callable[..., Any], tuple[Any, ...]]
FAMILIES: dict[str, dict[str, Case]] = {
    "optimizers": {
        "adam": (adam, (W, W, W * W, np.float32(1), X)),
        "sgd": (lambda w, x: w - 0.1 * jax.grad(loss)(w, x), (W, X)),
        "second order": (lambda w, x: jax.hessian(lambda v: loss(v[:, None], x))(w[0]), (W, X)),
        "clipping": (lambda w, x: nn.relu(1 - jnp.linalg.norm(jax.grad(loss)(w, x))) * w, (W, X)),
    },
    "loops and branches": {
        "scan": (lambda x, w: lax.scan(lambda s, v: (jnp.tanh(s @ w + v), s.sum()), V, x), (X, W)),
        "scan, gradient": (
            jax.grad(lambda w, x: lax.scan(lambda s, v: (jnp.tanh(s @ w + v), 0), V, x)[0].sum()),
            (W, X),
        ),
        "while": (lambda x: lax.while_loop(lambda s: s[0] < 9, lambda s: (s[0] * 2, s[1] * 0.9), (1, x))[1], (X,)),
        "switch": (lambda n, x: lax.switch(n, [jnp.sin, jnp.cos, jnp.tanh], x), (np.int32(1), X)),
        "associative scan": (lambda x: lax.associative_scan(jnp.multiply, x), (X,)),
        "map": (lambda x: lax.map(lambda v: jnp.sort(v), x), (X,)),
        "remat": (jax.grad(lambda w, x: jax.checkpoint(loss)(w, x)), (W, X)),
        "custom rule": (jax.grad(lambda x: jax.nn.relu6(x).sum()), (X,)),
    },
    "sorts and searches": {
        "sort": (lambda x: (jnp.sort(x, 1), jnp.argsort(x, 0)), (X,)),
        "top_k": (lambda x: lax.top_k(x, 3), (X,)),
        "median": (lambda x: (jnp.median(x, 1), jnp.quantile(x, 0.3, axis=0)), (X,)),
        "searchsorted": (lambda x, v: jnp.searchsorted(jnp.sort(v), x), (X, V)),
        "unique": (lambda n: jnp.unique(n, size=5, fill_value=-1), (i(9),)),
        "nonzero": (lambda x: jnp.nonzero(x > 0, size=9, fill_value=-1), (X,)),
        "lexsort": (lambda n, v: jnp.lexsort((v, n)), (i(8), V)),
    },
    "scatters and gathers": {
        "set, add, max": (lambda x, n, v: (x.at[n].set(v), x.at[n].add(v), x.at[n].max(v)), (X, i(3), f(3, 8))),
        "multiply": (lambda x, n, v: x.at[n].multiply(v), (X, np.array([0, 2, 4], np.int32), f(3, 8))),
        "segment sum": (lambda x, n: jax.ops.segment_sum(x, n, 5), (X, i(6))),
        "bincount": (lambda n: jnp.bincount(n, length=5), (i(20),)),
        "histogram": (lambda x: jnp.histogram(x, 7, (-2.0, 2.0))[0], (X,)),
        "take along": (lambda x, n: jnp.take_along_axis(x, n, 1), (X, i(6, 2))),
        "dynamic slice": (lambda x, n: lax.dynamic_slice(x, (n, 1), (2, 3)), (X, np.int32(3))),
        "embedding, gradient": (jax.grad(lambda t, n: jnp.sum(t[n] ** 2)), (X, i(9))),
    },
    "Fourier transforms": {
        "fft": (lambda x: jnp.abs(jnp.fft.fft(x)), (X,)),
        "rfft, irfft": (lambda x: jnp.fft.irfft(jnp.fft.rfft(x) * 0.5), (X,)),
        "fft2, fftn": (lambda x: (jnp.fft.fft2(x).real, jnp.fft.ifftn(x).imag), (X,)),
        "fftconvolve": (lambda x, v: jsp.signal.fftconvolve(x[0], v), (X, V)),
        "stft": (lambda x: jnp.abs(jsp.signal.stft(x, nperseg=16)[2]), (f(64),)),
        "dct": (lambda x: jsp.fft.dct(x), (X,)),
    },
    "convolutions": {
        "1-D": (lambda x, w: conv(x, w, n=1), (f(2, 9, 3), f(3, 3, 4))),
        "2-D": (conv, (IMAGE, f(3, 3, 3, 4))),
        "2-D, strided, gradient": (
            jax.grad(lambda w, x: jnp.sum(conv(x, w, strides=(2, 2)) ** 2)),
            (f(3, 3, 3, 4), IMAGE),
        ),
        "dilated": (lambda x, w: conv(x, w, rhs_dilation=(2, 2)), (IMAGE, f(3, 3, 3, 4))),
        "depthwise": (lambda x, w: conv(x, w, feature_group_count=3), (IMAGE, f(3, 3, 1, 3))),
        "transposed": (lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME"), (IMAGE, f(3, 3, 3, 4))),
        "3-D": (lambda x, w: conv(x, w, n=3), (f(1, 4, 5, 6, 2), f(2, 3, 2, 2, 3))),
        "pooling, gradient": (
            jax.grad(
                lambda x: jnp.sum(lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") ** 2)
            ),
            (IMAGE,),
        ),
        "correlate": (lambda x, v: jnp.convolve(x[0], v, "same"), (X, V)),
        "resize": (lambda x: jax.image.resize(x, (2, 5, 11, 3), "cubic"), (IMAGE,)),
    },
    "linear algebra": {
        "cholesky": (jnp.linalg.cholesky, (S,)),
        "triangular solve": (lambda a, b: jsp.linalg.solve_triangular(a, b, lower=True), (np.tril(S), f(6, 2))),
        "solve": (jnp.linalg.solve, (S, f(6, 2))),
        "cho_solve": (lambda a, b: jsp.linalg.cho_solve(jsp.linalg.cho_factor(a), b), (S, f(6))),
        "inverse": (jnp.linalg.inv, (S,)),
        "determinant": (lambda a: (jnp.linalg.det(a), jnp.linalg.slogdet(a)), (S,)),
        "lu": (lambda a: jsp.linalg.lu(a)[2], (S,)),
        "qr": (lambda a: jnp.abs(jnp.linalg.qr(a)[1]), (S,)),
        "lstsq": (lambda a, b: jnp.linalg.lstsq(a, b)[0], (f(8, 3), V)),
        "svd": (lambda a: jnp.linalg.svd(a, compute_uv=False), (X,)),
        "eigh": (jnp.linalg.eigvalsh, (S,)),
        "pinv": (jnp.linalg.pinv, (f(5, 3),)),
        "expm": (jsp.linalg.expm, (W,)),
        "matrix power": (lambda a: jnp.linalg.matrix_power(a, 5), (W,)),
        "einsum": (lambda a, b: jnp.einsum("bij,bjk->bik", a, b), (f(3, 4, 5), f(3, 5, 2))),
        "norms": (lambda x: (jnp.linalg.norm(x), jnp.linalg.norm(x, axis=1), jnp.trace(x[:, :6])), (X,)),
        "solve, gradient": (jax.grad(lambda a, b: jnp.linalg.solve(a, b).sum()), (S, f(6))),
    },
    "random numbers": {
        "uniform, normal": (lambda k: (random.uniform(key(k), (9,)), random.normal(key(k), (9,))), (KEY,)),
        "integers": (lambda k: (random.randint(key(k), (9,), 0, 7), random.permutation(key(k), 9)), (KEY,)),
        "categorical": (lambda k, x: random.categorical(key(k), x), (KEY, X)),
        "gamma": (lambda k: random.gamma(key(k), 2.0, (3,)), (KEY,)),
        "poisson": (lambda k: random.poisson(key(k), 3.0, (9,)), (KEY,)),
        "truncated": (lambda k: random.truncated_normal(key(k), -1.0, 1.0, (9,)), (KEY,)),
        "typed key": (lambda k: random.bits(k, (5,)), (random.key(3),)),
        "rbg": (lambda k: random.uniform(k, (5,)), (random.key(3, impl="rbg"),)),
        "dropout": (lambda k, x: jnp.where(random.bernoulli(key(k), 0.8, x.shape), x / 0.8, 0), (KEY, X)),
    },
    "special functions": {
        "erf, gamma": (
            lambda x: (jsp.special.erf(x), jsp.special.gammaln(abs(x) + 1), jsp.special.digamma(abs(x) + 1)),
            (X,),
        ),
        "bessel": (lambda x: (jsp.special.i0e(x), jsp.special.i1e(x)), (X,)),
        "betainc": (lambda x: jsp.special.betainc(2.0, 3.0, nn.sigmoid(x)), (X,)),
        "zeta": (lambda x: jsp.special.zeta(abs(x) + 2, 1.0), (X,)),
        "logsumexp": (lambda x: (jsp.special.logsumexp(x, 1), nn.log_softmax(x)), (X,)),
        "ndtri": (lambda x: jsp.special.ndtri(nn.sigmoid(x)), (X,)),
    },
    "dtypes": {
        "bfloat16": (lambda x: (x.astype(jnp.bfloat16) @ W.astype(jnp.bfloat16)).astype(jnp.float32), (X,)),
        "float16": (lambda x: x.astype(jnp.float16).sum().astype(jnp.float32), (X,)),
        "int8": (lambda x: (x * 9).astype(jnp.int8) // jnp.int8(2), (X,)),
        "uint32": (lambda n: (n << 3) ^ (n >> 1), (KEY,)),
        "bool": (lambda x: (x > 0) & (x < 1), (X,)),
        "complex": (lambda x: jnp.exp(1j * x).imag, (X,)),
        "int4": (lambda x: (x * 2).astype(jnp.int4).astype(jnp.float32), (X,)),
        "float8": (lambda x: x.astype(jnp.float8_e4m3fn).astype(jnp.float32), (X,)),
        "bitcast": (lambda x: lax.bitcast_convert_type(x, np.int32), (X,)),
        "population count": (lambda n: (lax.population_count(n), lax.clz(n)), (KEY,)),
    },
    "science and control": {
        "rk4": (rk4, (V, W)),
        "odeint": (
            lambda y, w: jax.experimental.ode.odeint(lambda y, t: jnp.tanh(w @ y) - y, y, jnp.linspace(0.0, 1.0, 4)),
            (V, W),
        ),
        "kalman filter": (kalman, (f(6), S, f(9))),
        "mpc": (mpc, (V, W)),
        "metropolis": (metropolis, (KEY, V)),
        "interpolation": (lambda x, v: jnp.interp(x, jnp.arange(8.0), v), (X, V)),
        "finite differences": (lambda x: jnp.gradient(x), (X,)),
        "jacobian": (lambda x, w: jax.jacfwd(lambda v: jnp.tanh(w @ v))(x), (V, W)),
        "bfgs": (
            lambda x: (
                jsp.optimize.minimize(lambda v: jnp.sum((v - 1) ** 2), x, method="BFGS", options={"maxiter": 5}).x
            ),
            (V,),
        ),
        "conjugate gradients": (lambda a, b: jsp.sparse.linalg.cg(lambda v: a @ v, b, maxiter=9)[0], (S, f(6))),
    },
    "networks": {
        "transformer": (attention, (X, W)),
        "decoder with cache": (decode, (X, np.int32(2), V)),
        "dot_product_attention": (
            lambda q: nn.dot_product_attention(q, q, q, is_causal=True),
            (f(1, 6, 2, 4),),
        ),
        "patches of a ViT": (
            lambda x, w: x.reshape(2, 2, 4, 2, 4, 3).transpose(0, 1, 3, 2, 4, 5).reshape(2, 4, 48) @ w,
            (IMAGE, f(48, 8)),
        ),
        "batch norm": (lambda x: (x - x.mean((0, 1, 2))) * lax.rsqrt(x.var((0, 1, 2)) + 1e-5), (IMAGE,)),
        "cross entropy": (
            jax.grad(lambda x, n: -jnp.mean(jnp.take_along_axis(nn.log_softmax(x), n[:, None], 1))),
            (X, i(6)),
        ),
        "vmap": (jax.vmap(lambda x, n: x[n], (0, None)), (X, np.int32(2))),
        "top-p sampling": (
            lambda k, x: random.categorical(key(k), jnp.where(jnp.cumsum(jnp.sort(nn.softmax(x))) > 0.1, x, -jnp.inf)),
            (KEY, V),
        ),
    },
    "what can't be compiled": {
        "callback": (lambda x: jax.pure_callback(np.sin, x, x), (X,)),
        "print": (lambda x: (jax.debug.print("{}", x), x)[1], (X,)),
        "eig": (lambda a: jnp.abs(jnp.linalg.eigvals(a)).sum(), (W,)),
    },
}


def main(path: str) -> None:
    """Writes `INDEX.jax` and `INDEX.npz`, and `index.json`: family, name, and the error of the export."""
    index = []
    with zipfile.ZipFile(path, "w") as out:
        for family, cases in FAMILIES.items():
            for name, (function, arguments) in cases.items():
                error, number = "", len(index)
                try:
                    exported = tfaot.jax.export(function, *arguments)
                    file, arrays = io.BytesIO(), io.BytesIO()
                    programs.write(file, tfaot.jax.joined([exported], source=name))
                    leaves = jax.tree.leaves((arguments, jax.jit(function)(*arguments)))
                    np.savez(arrays, *(np.asarray(random.key_data(x) if tfaot.jax.is_key(x) else x) for x in leaves))
                    out.writestr(f"{number}.jax", file.getvalue())
                    out.writestr(f"{number}.npz", arrays.getvalue())
                except Exception as caught:  # what JAX refuses is a row of the table
                    error = f"{type(caught).__name__}: {caught}".splitlines()[0]
                index.append((family, name, error))
        out.writestr("index.json", json.dumps({"jax": jax.__version__, "programs": index}))


if __name__ == "__main__":
    main(sys.argv[1])
