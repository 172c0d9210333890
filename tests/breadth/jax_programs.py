"""Exports programs of many kinds with `tfaot.jax`, and JAX's own results: `jax_programs.py OUT.zip`. See jax_programs_test.py."""

from __future__ import annotations

import contextlib
import functools
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
S, N, PAIR = spd(6), np.int32(3), (f(4, 4) + 1j * f(4, 4)).astype(np.complex64)


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


def momentum(w: Any, m: Any, x: Any, *, nesterov: bool = False) -> Any:
    """A step with momentum."""
    g = jax.grad(loss)(w, x)
    m = 0.9 * m + g
    return w - 0.1 * (g + 0.9 * m if nesterov else m), m


def adaptive(w: Any, v: Any, x: Any, *, decay: float = 1) -> Any:
    """A step of Adagrad, or of RMSProp with a decay."""
    g = jax.grad(loss)(w, x)
    v = decay * v + (1 if decay == 1 else 1 - decay) * g * g
    return w - 0.1 * g * lax.rsqrt(v + 1e-7), v


def sign_of_momentum(w: Any, m: Any, x: Any) -> Any:
    """A step of Lion, with weight decay."""
    g = jax.grad(loss)(w, x)
    return w - 0.01 * (jnp.sign(0.9 * m + 0.1 * g) + 0.1 * w), 0.99 * m + 0.01 * g


def accumulated(w: Any, x: Any) -> Any:
    """The mean of gradients of parts of a batch."""
    return lax.scan(lambda g, part: (g + jax.grad(loss)(w, part), loss(w, part)), jnp.zeros_like(w), x.reshape(3, 2, 8))


def gauss_newton(p: Any, x: Any, y: Any) -> Any:
    """Levenberg and Marquardt's steps for a curve."""
    residual = lambda p: p[0] * jnp.exp(-p[1] * x) + p[2] - y  # noqa: E731

    def step(_: Any, p: Any) -> Any:
        j, r = jax.jacfwd(residual)(p), residual(p)
        return p - jnp.linalg.solve(j.T @ j + 0.1 * jnp.eye(3), j.T @ r)

    return lax.fori_loop(0, 4, step, p)


def riccati(a: Any, b: Any) -> Any:
    """The gain of a linear quadratic regulator."""

    def step(p: Any, _: Any) -> Any:
        gain = jnp.linalg.solve(jnp.eye(2) + b.T @ p @ b, b.T @ p @ a)
        return jnp.eye(4) + a.T @ p @ (a - b @ gain), gain

    return lax.scan(step, jnp.eye(4), None, 9)[1][-1]


def extended_kalman(x: Any, p: Any, z: Any) -> Any:
    """A filter of an angle and its speed, linearized at each measurement."""
    move = lambda x: jnp.stack([x[0] + 0.1 * x[1], x[1] - 0.1 * jnp.sin(x[0])])  # noqa: E731

    def step(state: Any, z: Any) -> Any:
        x, p = state
        f = jax.jacfwd(move)(x)
        x, p = move(x), f @ p @ f.T + 0.01 * jnp.eye(2)
        h = jax.grad(lambda x: jnp.sin(x[0]))(x)
        gain = p @ h / (h @ p @ h + 0.1)
        return (x + gain * (z - jnp.sin(x[0])), p - jnp.outer(gain, h @ p)), x

    return lax.scan(step, (x, p), z)[1]


def adaptive_steps(y: Any) -> Any:
    """An ODE whose solver chooses its steps."""

    def step(s: Any) -> Any:
        t, y, h = s
        k = -5 * y * jnp.cos(t)
        low, high = y + h * k, y + h / 2 * (k - 5 * (y + h * k) * jnp.cos(t + h))
        error = jnp.max(jnp.abs(high - low)) + 1e-9
        good = error < 1e-3
        return jnp.where(good, t + h, t), jnp.where(good, high, y), h * jnp.clip(0.9 * (1e-3 / error) ** 0.5, 0.3, 2)

    return lax.while_loop(lambda s: s[0] < 1, step, (jnp.float32(0), y, jnp.float32(0.05)))[1]


def leapfrog(q: Any, bits: Any) -> Any:
    """A step of Hamiltonian Monte Carlo."""
    energy = lambda q: jnp.sum(q**2 / 2 + jnp.cos(q))  # noqa: E731
    a, b = random.split(key(bits))
    p = random.normal(a, q.shape)

    def move(_: Any, s: Any) -> Any:
        q, p = s
        p = p - 0.05 * jax.grad(energy)(q)
        q = q + 0.1 * p
        return q, p - 0.05 * jax.grad(energy)(q)

    new, pushed = lax.fori_loop(0, 5, move, (q, p))
    change = energy(q) + jnp.sum(p**2) / 2 - energy(new) - jnp.sum(pushed**2) / 2
    return jnp.where(jnp.log(random.uniform(b)) < change, new, q)


def particles(bits: Any, z: Any) -> Any:
    """A particle filter that resamples."""

    def step(x: Any, each: Any) -> Any:
        k, z = each
        a, b = random.split(k)
        x = x + 0.1 * random.normal(a, x.shape)
        return x[random.categorical(b, -((x - z) ** 2) * 5, shape=x.shape)], x.mean()

    return lax.scan(step, jnp.zeros(32), (random.split(key(bits), 6), z))[1]


def viterbi(a: Any, b: Any) -> Any:
    """The likeliest path of a hidden Markov model."""
    last, back = lax.scan(lambda s, e: ((s[:, None] + a).max(0) + e, (s[:, None] + a).argmax(0)), b[0], b[1:])
    return lax.scan(lambda i, p: (p[i], i), jnp.argmax(last), back, reverse=True)[1]


def sinkhorn(c: Any) -> Any:
    """A plan of transport."""
    k = jnp.exp(-jnp.abs(c))
    u, v = lax.fori_loop(0, 20, lambda _, s: (1 / (k @ s[1]), 1 / (k.T @ s[0])), (jnp.ones(6), jnp.ones(8)))
    return u[:, None] * k * v


def gru(x: Any, w: Any) -> Any:
    """A recurrent layer with gates."""

    def cell(h: Any, x: Any) -> Any:
        z, r = nn.sigmoid(x @ w + h @ w.T), nn.sigmoid(h @ w + x @ w.T)
        h = z * h + (1 - z) * jnp.tanh(x @ w + (r * h) @ w)
        return h, h

    return lax.scan(cell, V, x)


def experts(x: Any, w: Any) -> Any:
    """A mixture of experts, the best two of each row."""
    gates, which = lax.top_k(nn.softmax(x[:, :4]), 2)
    out = jnp.einsum("nd,edk->nek", x, jnp.stack([jnp.roll(w, n, 0) for n in range(4)]))
    return jnp.sum(jnp.take_along_axis(out, which[..., None], 1) * gates[..., None], 1)


def rotary(x: Any) -> Any:
    """Positions as rotations."""
    angles = jnp.arange(6)[:, None] / 100 ** (jnp.arange(4) / 4)
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * jnp.cos(angles) - b * jnp.sin(angles), a * jnp.sin(angles) + b * jnp.cos(angles)], -1)


def vit(x: Any, w: Any, v: Any) -> Any:
    """A vision transformer of one block, and a gradient of its loss."""

    def loss_of(w: Any) -> Any:
        tokens = conv(x, w, strides=(4, 4)).reshape(2, 4, 8)
        tokens = jax.vmap(lambda t: t + nn.softmax(t @ v @ t.T) @ t)(nn.standardize(tokens))
        return -nn.log_softmax(tokens.mean(1))[:, 0].mean()

    return jax.value_and_grad(loss_of)(w)


def beams(x: Any, w: Any) -> Any:
    """A beam search of three steps."""

    def step(state: Any, _: Any) -> Any:
        score, last = state
        total = score[:, None] + nn.log_softmax(x[last % 6] @ w)
        score, flat = lax.top_k(total.ravel(), 3)
        return (score, flat % 8), flat

    return lax.scan(step, (jnp.array([0, -9.0, -9.0]), jnp.zeros(3, jnp.int32)), None, 3)


def speculative(bits: Any, p: Any, q: Any) -> Any:
    """Tokens of a draft that are accepted."""
    a, b = random.split(key(bits))
    drawn = random.categorical(a, q)
    p, q = nn.softmax(p), nn.softmax(q)
    ratio = jnp.take_along_axis(p / q, drawn[:, None], 1)[:, 0]
    accepted = jnp.cumprod(random.uniform(b, ratio.shape) < ratio)
    return drawn, accepted.sum()


def smoother(x: Any, p: Any, z: Any) -> Any:
    """A Kalman filter, and Rauch's smoother backward."""
    a, q = jnp.eye(4) + 0.1 * jnp.eye(4, k=1), 0.1 * jnp.eye(4)

    def forward(state: Any, z: Any) -> Any:
        x, p = a @ state[0], a @ state[1] @ a.T + q
        gain = jnp.linalg.solve(p[:2, :2] + jnp.eye(2), p[:2]).T
        new = x + gain @ (z - x[:2]), p - gain @ p[:2]
        return new, (*new, x, p)

    def backward(state: Any, seen: Any) -> Any:
        x, p, ahead, spread = seen
        gain = jnp.linalg.solve(spread, a @ p).T
        new = x + gain @ (state[0] - ahead), p + gain @ (state[1] - spread) @ gain.T
        return new, new

    last, seen = lax.scan(forward, (x, p), z)
    later = jax.tree.map(lambda v: jnp.roll(v, -1, 0), seen[2:])
    return lax.scan(backward, last, (*(v[:-1] for v in seen[:2]), *(v[:-1] for v in later)), reverse=True)[1]


def splitting(h: Any, g: Any) -> Any:
    """A quadratic program of a controller, by ADMM with a factor that is made once."""
    factor = jsp.linalg.cho_factor(h + jnp.eye(6))

    def step(state: Any, _: Any) -> Any:
        z, u = state
        x = jsp.linalg.cho_solve(factor, z - u - g)
        z = jnp.clip(x + u, -0.1, 0.1)
        return (z, u + x - z), jnp.linalg.norm(x - z)

    return lax.scan(step, (g * 0, g * 0), None, 20)


def radiance(rays: Any, w: Any, v: Any) -> Any:
    """A radiance field, and its gradient."""

    def colors(w: Any) -> Any:
        at = rays[:, None, :3] + rays[:, None, 3:6] * jnp.linspace(0.1, 1, 8)[:, None]
        waves = at[..., None] * 2.0 ** jnp.arange(4)
        hidden = nn.relu(jnp.concatenate([jnp.sin(waves), jnp.cos(waves)], -1).reshape(*at.shape[:2], 24) @ w)
        density, color = nn.softplus(hidden[..., 0]), nn.sigmoid(hidden @ v)
        opaque = 1 - jnp.exp(-density / 8)
        through = jnp.cumprod(jnp.concatenate([jnp.ones((6, 1)), 1 - opaque[:, :-1] + 1e-10], 1), 1)
        return jnp.sum((opaque * through)[..., None] * color, 1)

    return colors(w), jax.grad(lambda w: jnp.mean(colors(w) ** 2))(w)


def graph_attention(x: Any, a: Any, b: Any) -> Any:
    """Attention along the edges of a graph."""

    def layer(w: Any) -> Any:
        h = x @ w
        score = nn.leaky_relu(h[a, 0] + h[b, 1])
        weight = jnp.exp(score - jax.ops.segment_max(score, b, 6)[b])
        weight = weight / (jax.ops.segment_sum(weight, b, 6)[b] + 1e-6)
        return jax.ops.segment_sum(weight[:, None] * h[a], b, 6)

    return layer(W), jax.grad(lambda w: jnp.sum(layer(w) ** 2))(W)


def equilibrium(w: Any, x: Any) -> Any:
    """The gradient of a fixed point, by the implicit function theorem."""

    @jax.custom_vjp
    def fixed(w: Any, x: Any) -> Any:
        return lax.while_loop(
            lambda s: (jnp.max(jnp.abs(s[0] - s[1])) > 1e-6) & (s[2] < 60),
            lambda s: (jnp.tanh(s[0] @ w + x), s[0], s[2] + 1),
            (jnp.tanh(x), x, 0),
        )[0]

    def forward(w: Any, x: Any) -> Any:
        z = fixed(w, x)
        return z, (w, x, z)

    def backward(saved: Any, cotangent: Any) -> Any:
        w, x, z = saved
        _, pull = jax.vjp(lambda w, x, z: jnp.tanh(z @ w + x), w, x, z)
        u = lax.fori_loop(0, 40, lambda _, u: cotangent + pull(u)[2], cotangent)
        return pull(u)[:2]

    fixed.defvjp(forward, backward)
    return jax.value_and_grad(lambda w: jnp.sum(fixed(w, x) ** 2))(w)


def mixed_precision(w: Any, scale: Any, x: Any) -> Any:
    """A training step in bfloat16 with weights in float32, which is skipped if a gradient isn't finite."""
    g = jax.grad(
        lambda w: scale * jnp.mean((x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)).astype(jnp.float32) ** 2)
    )(w)
    finite = jnp.all(jnp.isfinite(g))
    return jnp.where(finite, w - 0.1 * g / scale, w), jnp.where(finite, scale * 2, scale / 2)


def fourier_operator(x: Any, w: Any) -> Any:
    """A layer of a Fourier neural operator, and its gradient."""

    def layer(w: Any) -> Any:
        modes = jnp.fft.rfft2(x, axes=(1, 2))[:, :4, :4]
        mixed = jnp.einsum("bxyi,xyio->bxyo", modes, lax.complex(w[0], w[1]))
        return nn.gelu(jnp.fft.irfft2(jnp.pad(mixed, ((0, 0), (0, 4), (0, 1), (0, 0))), (8, 8), (1, 2)) + x)

    return layer(w), jax.grad(lambda w: jnp.sum(layer(w) ** 2))(w)


def state_space(x: Any, rate: Any) -> Any:
    """A diagonal state space model with complex states, in parallel."""
    decay = jnp.broadcast_to(jnp.exp(lax.complex(-jnp.exp(rate), rate)), x.shape)
    join = lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1])  # noqa: E731
    return lax.associative_scan(join, (decay, x.astype(jnp.complex64)))[1].real


def lanczos(a: Any, v: Any) -> Any:
    """The largest eigenvalues of a matrix, from few products."""

    def step(state: Any, _: Any) -> Any:
        v, before, beta = state
        u = a @ v - beta * before
        alpha = u @ v
        u = u - alpha * v
        beta = jnp.linalg.norm(u) + 1e-6
        return (u / beta, v, beta), (alpha, beta)

    _, (alpha, beta) = lax.scan(step, (v / jnp.linalg.norm(v), v * 0, 0.0), None, 4)
    return jnp.linalg.eigvalsh(jnp.diag(alpha) + jnp.diag(beta[:-1], 1) + jnp.diag(beta[:-1], -1))


def alignment(x: Any, y: Any) -> Any:
    """The rotation between two clouds of points, and its gradient."""

    def distance(x: Any) -> Any:
        u, _, v = jnp.linalg.svd((x - x.mean(0)).T @ (y - y.mean(0)))
        turn = u @ jnp.diag(jnp.array([1, 1, 1.0]).at[2].set(jnp.sign(jnp.linalg.det(u @ v)))) @ v
        return jnp.sum(((x - x.mean(0)) @ turn - (y - y.mean(0))) ** 2)

    return jax.value_and_grad(distance)(x)


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
        "momentum": (momentum, (W, W, X)),
        "Nesterov": (functools.partial(momentum, nesterov=True), (W, W, X)),
        "Adagrad": (adaptive, (W, W * W, X)),
        "RMSProp": (functools.partial(adaptive, decay=0.9), (W, W * W, X)),
        "Lion": (sign_of_momentum, (W, W, X)),
        "accumulated": (accumulated, (W, X)),
        "Levenberg-Marquardt": (gauss_newton, (np.ones(3, np.float32), V, f(8))),
        "schedule": (lambda n: jnp.where(n < 10, n / 10, 0.5 * (1 + jnp.cos(n / 100 * jnp.pi))), (np.float32(20),)),
        "moving average": (lambda p, w: jax.tree.map(lambda a, b: 0.99 * a + 0.01 * b, p, w), ({"w": W}, {"w": W.T})),
        "loss scale": (lambda w, x: jax.grad(lambda w: 128 * loss(w.astype(jnp.float16), x))(w) / 128, (W, X)),
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
        "nested scans": (lambda x: lax.scan(lambda s, v: lax.scan(lambda t, u: (t + u * s, t), s, v), 0.0, x), (X,)),
        "reversed scan": (lambda x: lax.scan(lambda s, v: (s * 0.5 + v, s), V, x, reverse=True), (X,)),
        "unrolled scan": (lambda x: lax.scan(lambda s, v: (s * 0.5 + v, s), V, x, unroll=2), (X,)),
        "while of a batch": (
            jax.vmap(lambda v: lax.while_loop(lambda s: s.sum() < 9, lambda s: s + abs(s) + 1, v)),
            (X,),
        ),
        "branch of a batch": (jax.vmap(lambda v: lax.cond(v[0] > 0, jnp.sin, jnp.cos, v)), (X,)),
        "branch, gradient": (jax.grad(lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x).sum()), (X,)),
        "fixed point": (
            lambda w: lax.custom_root(
                lambda y: jnp.cos(y) - y,
                w,
                lambda f, y: lax.fori_loop(0, 9, lambda _, y: jnp.cos(y), y),
                lambda g, y: y / g(jnp.ones_like(y)),
            ),
            (V,),
        ),
        "cumulative": (lambda x: (jnp.cumsum(x, 1), lax.cummax(x), lax.cumlogsumexp(x, 1, reverse=True)), (X,)),
        "one device": (jax.pmap(lambda x: lax.psum(x, "d"), axis_name="d"), (X[None],)),
        "custom rule": (jax.grad(lambda x: jax.nn.relu6(x).sum()), (X,)),
    },
    "sorts and searches": {
        "sort": (lambda x: (jnp.sort(x, 1), jnp.argsort(x, 0)), (X,)),
        "top_k": (lambda x: lax.top_k(x, 3), (X,)),
        "median": (lambda x: (jnp.median(x, 1), jnp.quantile(x, 0.3, axis=0)), (X,)),
        "searchsorted": (lambda x, v: jnp.searchsorted(jnp.sort(v), x), (X, V)),
        "unique": (lambda n: jnp.unique(n, size=5, fill_value=-1), (i(9),)),
        "nonzero": (lambda x: jnp.nonzero(x > 0, size=9, fill_value=-1), (X,)),
        "argmax, argmin": (lambda x: (jnp.argmax(x, 1), jnp.nanargmin(x)), (X,)),
        "partition": (lambda x: jnp.sort(jnp.partition(x, 3, 1)[:, :3], 1), (X,)),
        "sort, gradient": (jax.grad(lambda x: jnp.sum(jnp.sort(x, 1) * jnp.arange(8))), (X,)),
        "sort by key": (lambda n, v: lax.sort((n, v, v * 2), num_keys=2), (i(8), V)),
        "isin": (lambda n: jnp.isin(n, jnp.array([1, 3])), (i(9),)),
        "mode": (lambda n: jnp.argmax(jnp.bincount(n, length=5)), (i(20),)),
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
        "in two dimensions": (lambda x, n: x.at[n[:, 0], n[:, 1]].add(1.0), (X, i(4, 2))),
        "out of range": (
            lambda x, n: (x.at[n].get(mode="fill", fill_value=7), x.at[n].set(1, mode="drop")),
            (X, i(5, to=12)),
        ),
        "mask": (lambda x: jnp.where(x > 0, x, 0).at[:, ::2].set(-1), (X,)),
        "one hot": (lambda n: nn.one_hot(n, 7), (i(6),)),
        "segment max": (lambda x, n: jax.ops.segment_max(x, n, 5), (X, i(6))),
        "scatter, gradient": (jax.grad(lambda x, n: jnp.sum(jnp.zeros((5, 8)).at[n].add(x) ** 2)), (X, i(6))),
        "roll, flip, tile": (lambda x: (jnp.roll(x, 2, 1), x[::-1], jnp.tile(x, (2, 1))), (X,)),
        "update of a slice": (lambda x, v, n: lax.dynamic_update_slice(x, v[None], (n, 0)), (X, V, N)),
        "embedding, gradient": (jax.grad(lambda t, n: jnp.sum(t[n] ** 2)), (X, i(9))),
    },
    "Fourier transforms": {
        "fft": (lambda x: jnp.abs(jnp.fft.fft(x)), (X,)),
        "rfft, irfft": (lambda x: jnp.fft.irfft(jnp.fft.rfft(x) * 0.5), (X,)),
        "fft2, fftn": (lambda x: (jnp.fft.fft2(x).real, jnp.fft.ifftn(x).imag), (X,)),
        "fftconvolve": (lambda x, v: jsp.signal.fftconvolve(x[0], v), (X, V)),
        "stft": (lambda x: jnp.abs(jsp.signal.stft(x, nperseg=16)[2]), (f(64),)),
        "fft, gradient": (jax.grad(lambda x: jnp.sum(jnp.abs(jnp.fft.rfft(x)) ** 2)), (X,)),
        "istft": (lambda x: jsp.signal.istft(jsp.signal.stft(x, nperseg=16)[2], nperseg=16)[1], (f(64),)),
        "prime length": (lambda x: jnp.fft.rfft(x).imag, (f(3, 101),)),
        "rfftn": (lambda x: jnp.fft.irfftn(jnp.fft.rfftn(x) * 2, x.shape), (f(4, 5, 6),)),
        "hilbert": (lambda x: jnp.fft.ifft(jnp.fft.fft(x) * (jnp.arange(8) < 4)).imag, (X,)),
        "periodogram": (lambda x: jsp.signal.welch(x, nperseg=16)[1], (f(64),)),
        "idct": (lambda x: jsp.fft.idct(jsp.fft.dct(x, norm="ortho"), norm="ortho"), (X,)),
        "fftshift": (lambda x: jnp.fft.fftshift(jnp.fft.fft2(x)).real, (X,)),
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
        "3-D, gradient": (
            jax.grad(lambda w, x: jnp.sum(conv(x, w, n=3, strides=(1, 2, 2)) ** 2)),
            (f(2, 3, 2, 2, 3), f(1, 4, 5, 6, 2)),
        ),
        "grouped": (lambda x, w: conv(x, w, feature_group_count=2), (f(2, 8, 8, 4), f(3, 3, 2, 6))),
        "channels first": (lambda x, w: lax.conv(x, w, (1, 1), "SAME"), (f(2, 3, 8, 8), f(4, 3, 3, 3))),
        "patches": (
            lambda x: lax.conv_general_dilated_patches(
                x, (2, 2), (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
            ),
            (IMAGE,),
        ),
        "average pooling": (
            lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME") / 9,
            (IMAGE,),
        ),
        "3-D pooling": (
            lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 2, 1), (1, 2, 2, 2, 1), "VALID"),
            (f(1, 4, 6, 6, 2),),
        ),
        "causal, dilated": (
            lambda x, w: lax.conv_general_dilated(
                x, w, (1,), [(4, 0)], rhs_dilation=(2,), dimension_numbers=("NWC", "WIO", "NWC")
            ),
            (f(2, 9, 3), f(3, 3, 4)),
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
        "lu of a tall matrix": (lambda a: jsp.linalg.lu_factor(a), (f(9, 4),)),
        "eig": (lambda a: jnp.sort(jnp.abs(jnp.linalg.eigvals(a))), (W,)),
        "eigenvectors": (lambda a: abs(a @ jnp.linalg.eig(a)[1] - jnp.linalg.eig(a)[1] * jnp.linalg.eig(a)[0]), (W,)),
        "sqrtm": (lambda a: jsp.linalg.sqrtm(a).real, (S,)),
        "schur": (lambda a: (lambda t, z: abs(z @ t @ z.conj().T - a))(*jsp.linalg.schur(a, output="complex")), (W,)),
        "eigh, gradient": (jax.grad(lambda a: jnp.sum(jnp.sin(jnp.linalg.eigvalsh(a)))), (S,)),
        "svd, gradient": (jax.grad(lambda a: jnp.sum(jnp.linalg.svd(a, compute_uv=False) ** 3)), (X,)),
        "qr, gradient": (jax.grad(lambda a: jnp.sum(jnp.linalg.qr(a)[1] ** 2)), (S,)),
        "cholesky, gradient": (jax.grad(lambda a: jnp.sum(jnp.sin(jnp.linalg.cholesky(a)))), (S,)),
        "complex solve": (lambda a: abs(jnp.linalg.solve(a, a[:, :1] + 1)), (PAIR,)),
        "batched": (lambda a: (jnp.linalg.inv(a), jnp.linalg.det(a)), (f(3, 4, 4) + 3 * np.eye(4, dtype=np.float32),)),
        "polar": (lambda a: jsp.linalg.polar(a)[1], (S,)),
        "toeplitz": (lambda v: jsp.linalg.toeplitz(v), (V,)),
        "block_diag, kron": (lambda a, b: (jsp.linalg.block_diag(a, b), jnp.kron(a[:2], b[:2])), (X, W)),
        "tridiagonal solve": (lambda v, b: lax.linalg.tridiagonal_solve(v, abs(v) + 9, v, b), (V, f(8, 2))),
        "low rank update": (lambda a, v: lax.linalg.cholesky_update(jnp.linalg.cholesky(a), v[:6]), (S, V)),
        "matrix rank, cond": (lambda a: (jnp.linalg.matrix_rank(a), jnp.linalg.cond(a)), (S,)),
        "multi_dot": (lambda x, w: jnp.linalg.multi_dot([x, w, w.T, x.T]), (X, W)),
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
        "exponential, laplace": (lambda k: (random.exponential(key(k), (9,)), random.laplace(key(k), (9,))), (KEY,)),
        "beta, dirichlet": (
            lambda k: (random.beta(key(k), 2, 3, (4,)), random.dirichlet(key(k), V[:3] ** 2 + 1)),
            (KEY,),
        ),
        "choice": (lambda k: random.choice(key(k), 9, (4,), replace=False), (KEY,)),
        "multivariate normal": (lambda k: random.multivariate_normal(key(k), jnp.zeros(6), S), (KEY,)),
        "binomial": (lambda k: random.binomial(key(k), 9, 0.4, (5,)), (KEY,)),
        "gumbel, logistic": (lambda k: (random.gumbel(key(k), (9,)), random.logistic(key(k), (9,))), (KEY,)),
        "split, fold_in": (lambda k, n: random.bits(random.fold_in(random.split(key(k))[1], n), (3,)), (KEY, N)),
        "rademacher, ball": (lambda k: (random.rademacher(key(k), (9,)), random.ball(key(k), 3)), (KEY,)),
        "student, cauchy": (lambda k: (random.t(key(k), 4.0, (5,)), random.cauchy(key(k), (5,))), (KEY,)),
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
        "distributions": (
            lambda x: (jsp.stats.norm.logpdf(x), jsp.stats.beta.logpdf(nn.sigmoid(x), 2, 3), jsp.stats.t.logpdf(x, 4)),
            (X,),
        ),
        "igamma": (lambda x: (jsp.special.gammainc(2.0, abs(x)), jsp.special.gammaincc(2.0, abs(x))), (X,)),
        "entropy": (
            lambda x: (
                jsp.special.xlogy(abs(x), abs(x)),
                jsp.special.entr(abs(x)),
                jsp.special.rel_entr(abs(x), x * x),
            ),
            (X,),
        ),
        "activations": (lambda x: (nn.gelu(x), nn.silu(x), nn.mish(x), nn.selu(x), nn.softplus(x)), (X,)),
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
        "int4, packed": (lambda x: (x * 2).astype(jnp.uint4).astype(jnp.int32), (np.abs(X),)),
        "float8, product": (
            lambda x: (x.astype(jnp.float8_e5m2) @ W.astype(jnp.float8_e5m2)).astype(jnp.float32),
            (X,),
        ),
        "int8 product": (lambda x: lax.dot(x, x.T, preferred_element_type=jnp.int32), (i(6, 8).astype(np.int8),)),
        "int64 of int32": (lambda n: (n * n).astype(jnp.uint8), (i(9, to=99),)),
        "quantized weights": (lambda x, q: x @ (q.astype(jnp.float32) * 0.01), (X, i(8, 4).astype(np.int8))),
        "reduce_precision": (lambda x: lax.reduce_precision(x, 5, 4), (X,)),
        "complex product": (lambda a: (a @ a.conj().T).real, (PAIR,)),
        "NaN and infinity": (
            lambda x: (jnp.nan_to_num(x / 0), jnp.isfinite(jnp.log(x)), jnp.nanmean(jnp.log(x))),
            (X,),
        ),
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
        "Riccati equation": (riccati, (f(4, 4) / 3, f(4, 2))),
        "extended kalman filter": (extended_kalman, (f(2), np.eye(2, dtype=np.float32), f(9))),
        "adaptive steps": (adaptive_steps, (V,)),
        "hamiltonian monte carlo": (leapfrog, (V, KEY)),
        "particle filter": (particles, (KEY, f(6))),
        "hidden Markov model": (viterbi, (f(4, 4), f(6, 4))),
        "optimal transport": (sinkhorn, (X,)),
        "gaussian process": (
            lambda x, y: jsp.linalg.cho_solve(jsp.linalg.cho_factor(jnp.exp(-((x[:, None] - x) ** 2)) + jnp.eye(8)), y),
            (V, f(8)),
        ),
        "implicit layer": (jax.grad(lambda a, b: jsp.sparse.linalg.cg(lambda v: a @ v, b)[0].sum()), (S, f(6))),
        "gmres": (lambda a, b: jsp.sparse.linalg.gmres(lambda v: a @ v, b, maxiter=4)[0], (S, f(6))),
        "heat equation": (
            lambda u: lax.fori_loop(0, 20, lambda _, u: u + 0.1 * (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) - 2 * u), u),
            (X,),
        ),
        "bodies": (
            lambda x: jax.grad(lambda x: jnp.sum(1 / jnp.sqrt(jnp.sum((x[:, None] - x) ** 2, -1) + 0.1)))(x),
            (f(5, 3),),
        ),
        "hessian product": (
            lambda x, v: jax.jvp(jax.grad(lambda x: jnp.sum(jnp.tanh(W @ x))), (x,), (v,))[1],
            (V, f(8)),
        ),
        "conjugate gradients": (lambda a, b: jsp.sparse.linalg.cg(lambda v: a @ v, b, maxiter=9)[0], (S, f(6))),
        "kalman smoother": (smoother, (f(4), np.eye(4, dtype=np.float32), f(9, 2))),
        "mpc, ADMM": (splitting, (S, f(6))),
        "lanczos": (lanczos, (S, f(6))),
        "alignment of points": (alignment, (f(9, 3), f(9, 3))),
        "spherical harmonics": (
            lambda t, p: jsp.special.sph_harm_y(jnp.array([3]), jnp.array([2]), t, p, n_max=3),
            (abs(f(1)), f(1)),
        ),
        "likelihood of a gaussian process": (
            jax.grad(lambda s, x: jsp.stats.multivariate_normal.logpdf(x, x * 0, jnp.exp(s) * S)),
            (np.float32(0.3), f(6)),
        ),
        "normalizing flow": (jax.grad(lambda w: jnp.linalg.slogdet(jnp.eye(8) + w)[1]), (W,)),
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
        "ViT, training": (vit, (IMAGE, f(4, 4, 3, 8), W)),
        "gru": (gru, (X, W)),
        "gru, gradient": (jax.grad(lambda w, x: gru(x, w)[1].sum()), (W, X)),
        "mixture of experts": (experts, (X, W)),
        "rotary positions": (rotary, (X,)),
        "beam search": (beams, (X, W)),
        "speculative decoding": (speculative, (KEY, X, f(6, 8))),
        "RMS norm, gated": (
            lambda x, w: nn.silu(x @ w) * (x * lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6)),
            (X, W),
        ),
        "grouped queries": (
            lambda q, k: jnp.einsum("thgd,shd->hgts", q, k).max(-1),
            (f(6, 2, 2, 4), f(6, 2, 4)),
        ),
        "U-Net, gradient": (
            jax.grad(
                lambda w, x: jnp.sum(jax.image.resize(nn.relu(conv(x, w, strides=(2, 2))), (2, 8, 8, 3), "nearest") * x)
            ),
            (f(3, 3, 3, 3), IMAGE),
        ),
        "graph network": (
            lambda x, a, b: jax.ops.segment_sum(jnp.tanh(x[a] @ W - x[b]), b, 6),
            (X, i(12, to=6), i(12, to=6)),
        ),
        "graph attention": (graph_attention, (X, i(12, to=6), i(12, to=6))),
        "radiance field": (radiance, (f(6, 6), f(24, 8), f(8, 3))),
        "deep equilibrium": (equilibrium, (W / 3, X)),
        "mixed precision": (mixed_precision, (W, np.float32(128), X)),
        "Fourier operator": (fourier_operator, (IMAGE, f(2, 4, 4, 3, 3) / 4)),
        "state space model": (state_space, (f(9, 8), V)),
        "low-rank adapters": (lambda x, a, b: x @ W + (x @ a) @ b * 0.5, (X, f(8, 2), f(2, 8))),
        "top-p sampling": (
            lambda k, x: random.categorical(key(k), jnp.where(jnp.cumsum(jnp.sort(nn.softmax(x))) > 0.1, x, -jnp.inf)),
            (KEY, V),
        ),
    },
}

REFUSED: dict[str, tuple[str, Case, Case]] = {
    "callbacks": (
        "compute it in JAX, or return what you want to print",
        (lambda x: jax.pure_callback(np.sin, x, x), (X,)),
        (jnp.sin, (X,)),
    ),
    "printing": (
        "compute it in JAX, or return what you want to print",
        (lambda x: (jax.debug.print("{}", x), x)[1], (X,)),
        (lambda x: {"x": x, "printed": x}, (X,)),
    ),
    "sizes that depend on values": (
        "give the operation a bound: size= of jnp.nonzero, unique, and where, and total_repeat_length= of jnp.repeat",
        (lambda x: jnp.nonzero(x > 0)[0], (X,)),
        (lambda x: jnp.nonzero(x > 0, size=48)[0], (X,)),
    ),
    "gradients of loops without a bound": (
        "use lax.scan, or lax.fori_loop with Python integers",
        (jax.grad(lambda x: lax.while_loop(lambda s: s.sum() < 99, lambda s: s * s + 1, x).sum()), (X,)),
        (jax.grad(lambda x: lax.fori_loop(0, 3, lambda _, s: s * s / 9, x).sum()), (X,)),
    ),
    "strings": (
        "bind other values before the export: functools.partial",
        (lambda x, name: x if name == "a" else -x, (X, "a")),
        (functools.partial(lambda x, name: x if name == "a" else -x, name="a"), (X,)),
    ),
    "the real Schur form": (
        'use jax.scipy.linalg.schur(a, output="complex")',
        (lambda a: jsp.linalg.schur(a), (S,)),
        (lambda a: (lambda t, z: abs(z @ t @ z.conj().T))(*jsp.linalg.schur(a, output="complex")), (S,)),
    ),
    "functions of matrices (funm)": (
        'use jax.scipy.linalg.schur(a, output="complex")',
        (lambda a: jsp.linalg.funm(a, jnp.exp, disp=False)[0].real, (S / 9,)),
        (lambda a: (lambda w, v: ((v * jnp.exp(w)) @ jnp.linalg.inv(v)).real)(*jnp.linalg.eig(a)), (S / 9,)),
    ),
    "approximate top k": (
        "use jax.lax.top_k",
        (lambda x: lax.approx_max_k(x, 2)[0], (X,)),
        (lambda x: lax.top_k(x, 2)[0], (X,)),
    ),
}
"""What can't be compiled: the advice of its error, and the program that follows it."""


def main(path: str) -> None:
    """Writes `INDEX.jax` and `INDEX.npz`, and `index.json`: family, name, and the error of the export."""
    index = []
    families = {**FAMILIES, "refused": {name: refused for name, (_, refused, _) in REFUSED.items()}}
    families["advised"] = {name: advised for name, (_, _, advised) in REFUSED.items()}
    with zipfile.ZipFile(path, "w") as out:
        for family, cases in families.items():
            for name, (function, arguments) in cases.items():
                error, number, leaves = "", len(index), []
                with contextlib.suppress(Exception):
                    leaves = jax.tree.leaves((arguments, jax.jit(function)(*arguments)))
                try:
                    exported = tfaot.jax.export(function, *arguments)
                    file, arrays = io.BytesIO(), io.BytesIO()
                    programs.write(file, tfaot.jax.joined([exported], source=name))
                    np.savez(arrays, *(np.asarray(random.key_data(x) if tfaot.jax.is_key(x) else x) for x in leaves))
                    out.writestr(f"{number}.jax", file.getvalue())
                    out.writestr(f"{number}.npz", arrays.getvalue())
                except Exception as caught:  # what JAX refuses is a row of the table
                    error = str(caught) or type(caught).__name__
                index.append((family, name, error, bool(leaves)))
        advice = {name: text for name, (text, _, _) in REFUSED.items()}
        out.writestr("index.json", json.dumps({"jax": jax.__version__, "programs": index, "advice": advice}))


if __name__ == "__main__":
    main(sys.argv[1])
