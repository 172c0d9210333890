"""Exports small programs of JAX, with inputs and JAX's own results: `jax_operations.py FILE.zip`."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax
from jaxlib import _jax

import tfaot.jax
from tfaot.core import programs as files

FROM_HLO = "from_hlo"
"""The program that was HLO."""

RANDOM = np.random.RandomState(0)
Case = tuple[Callable[..., Any], tuple[Any, ...]]


def f(*shape: int) -> Any:
    """Draws floats."""
    return RANDOM.randn(*shape).astype(np.float32)


def i(*shape: int) -> Any:
    """Draws integers."""
    return RANDOM.randint(-9, 9, shape).astype(np.int32)


def u(*shape: int) -> Any:
    """Draws unsigned integers."""
    return RANDOM.randint(0, 2**32, shape, dtype=np.uint64).astype(np.uint32)


HALVES = np.array([-3.5, -2.5, -1.5, -0.5, 0, 0.5, 1.5, 2.5, 3.7, 1e9], np.float32)
COUNTS = np.array([0, 1, 2, 31, 32, 33, 3, 40], np.int32)


def conv(x: Any, w: Any, strides: tuple[int, int] = (1, 1), padding: Any = "SAME", **more: Any) -> Any:
    """A convolution of images with channels last."""
    return lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC"), **more)


def pool(x: Any, start: float, operation: Any, size: int, stride: int, padding: str) -> Any:
    """Pooling of images with channels last."""
    return lax.reduce_window(x, start, operation, (1, size, size, 1), (1, stride, stride, 1), padding)


def elementwise() -> dict[str, Case]:
    """Operations on each value, at values where conventions differ."""
    positive = np.abs(f(9)) + np.float32(0.5)
    result: dict[str, Case] = {
        "rounding": (lambda x: (jnp.ceil(x), jnp.floor(x), lax.round(x), jnp.round(x), jnp.sign(x)), (HALVES,)),
        "functions": (
            lambda x: (
                jnp.exp(x),
                jnp.expm1(x),
                jnp.sin(x),
                jnp.tan(x),
                jnp.tanh(x),
                lax.cbrt(x),
                jnp.sinh(x),
                jnp.arctan(x),
            ),
            (f(9),),
        ),
        "positive": (lambda x: (jnp.log(x), jnp.sqrt(x), lax.rsqrt(x), lax.lgamma(x), lax.digamma(x)), (positive,)),
        "special": (lambda x: (lax.erf(x), lax.erf_inv(x / 9), jnp.arcsin(x / 9), lax.logistic(x)), (f(9),)),
        "floats": (lambda a, b: (a - b, a / b, lax.rem(a, b), a % b, a // b, jnp.arctan2(a, b)), (f(9), f(9))),
        "integers": (
            lambda a, b: (a - b, lax.div(a, b), lax.rem(a, b), a % b, a // b),
            (i(8), np.array([3, -3] * 4, np.int32)),
        ),
        "unsigned": (lambda a, b: (a - b, lax.div(a, b), lax.rem(a, b), lax.max(a, b)), (u(8), u(8) | 1)),
        "shifts": (
            lambda a, n: (lax.shift_left(a, n), lax.shift_right_logical(a, n), lax.shift_right_arithmetic(a, n)),
            (np.array([-1, 1, -7, 7, -1, 1, -9, 9], np.int32), COUNTS),
        ),
        "bits": (lambda a, b: (a & b, a | b, a ^ b, ~a, lax.population_count(a), lax.clz(a)), (i(8), i(8))),
        "nans": (
            lambda a, b: (jnp.maximum(a, b), a < b, a == b, a != b, jnp.isfinite(a)),
            (np.array([1, np.nan, 2, np.inf], np.float32), np.array([1, 1, 3, np.nan], np.float32)),
        ),
        "casts": (lambda x: (x.astype("int32"), x.astype("int8"), x.astype("bool"), x.astype("float16")), (f(9) * 50,)),
        "select": (lambda a, b, c: (jnp.where(a, b, c), lax.clamp(-0.5, b, 0.5)), (f(3, 4) > 0, f(3, 4), f(1, 4))),
        "bfloat16": (lambda x: x.astype("bfloat16"), (f(5),)),
        "complex": (lambda x, y: (lax.complex(x, y) * lax.complex(y, x)).imag, (f(4), f(4))),
    }
    return result


def products() -> dict[str, Case]:
    """Matrix products, convolutions, and their gradients."""
    return {
        "matmul": (lambda a, b: a @ b, (f(2, 3, 4), f(2, 4, 5))),
        "vectors": (lambda a, b, c: (a @ b, c @ b), (f(4), f(4), f(3, 4))),
        "einsum": (lambda a, b: jnp.einsum("bqhd,bkhd->bhqk", a, b), (f(2, 3, 2, 4), f(2, 5, 2, 4))),
        "of_integers": (lambda a, b: a @ b, (i(3, 4), i(4, 5))),
        "conv": (conv, (f(2, 8, 8, 3), f(3, 3, 3, 4))),
        "conv_strided": (lambda x, w: conv(x, w, (2, 1), [(1, 2), (0, 1)]), (f(2, 8, 8, 3), f(3, 3, 3, 4))),
        "conv_dilated": (lambda x, w: conv(x, w, rhs_dilation=(2, 2)), (f(2, 8, 8, 3), f(3, 3, 3, 4))),
        "conv_grouped": (lambda x, w: conv(x, w, feature_group_count=2), (f(2, 8, 8, 4), f(3, 3, 2, 6))),
        "conv_depthwise": (lambda x, w: conv(x, w, feature_group_count=4), (f(2, 8, 8, 4), f(3, 3, 1, 4))),
        "conv_transposed": (
            lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
            (f(2, 4, 4, 3), f(3, 3, 3, 4)),
        ),
        "conv_gradient": (
            jax.grad(lambda x, w: jnp.sum(conv(x, w, (2, 2)) ** 2), (0, 1)),
            (f(2, 8, 8, 3), f(3, 3, 3, 4)),
        ),
    }


def shapes() -> dict[str, Case]:
    """Operations that reduce, move, and find values."""
    return {
        "reduce": (
            lambda x: (
                x.sum(),
                x.max((0, 2)),
                x.min(2),
                x.prod(1),
                (x > 0).any(1),
                (x > 0).all(2),
                x.argmax(1),
                x.argmin(2),
            ),
            (f(2, 3, 4),),
        ),
        "reduce_two": (
            lambda x: lax.reduce((x, x), (np.float32(0), np.float32(1)), lambda a, b: (a[0] + b[0], a[1] * b[1]), (1,)),
            (f(3, 4),),
        ),
        "pools": (
            lambda x: (pool(x, -jnp.inf, lax.max, 3, 2, "SAME"), pool(x, 0.0, lax.add, 3, 1, "SAME"), jnp.cumsum(x, 1)),
            (f(2, 8, 8, 3),),
        ),
        "pool_gradients": (
            jax.grad(
                lambda x: jnp.sum(pool(x, -jnp.inf, lax.max, 2, 2, "VALID") ** 2 + pool(x, 0.0, lax.add, 2, 2, "VALID"))
            ),
            (f(2, 8, 8, 3),),
        ),
        "move": (
            lambda a, b: (
                jnp.concatenate([a, b], 1),
                jnp.tile(a, (2, 1)),
                a[::-1, 1:4:2],
                jnp.roll(a, 1, 0),
                a.T,
                jnp.eye(3),
            ),
            (f(3, 4), f(3, 2)),
        ),
        "pad": (
            lambda a: (lax.pad(a, 0.0, ((1, 1, 1), (0, 2, 2))), lax.pad(a, 1.0, ((-1, 1, 0), (0, -1, 0)))),
            (f(3, 4),),
        ),
        "take": (
            lambda t, ix: (t[ix], jnp.take(t, ix, 0, mode="clip"), t.at[ix].get(mode="fill", fill_value=0), t[ix, 1]),
            (f(5, 4), np.array([0, -1, 7, -9, 3], np.int32)),
        ),
        "dynamic": (
            lambda t, k: (lax.dynamic_slice(t, (k, 0), (2, 3)), lax.dynamic_update_slice(t, t[:1] * 2, (k, 1))),
            (f(5, 4), np.int32(4)),
        ),
        "dynamic_negative": (lambda t, k: lax.dynamic_slice(t, (k, 0), (2, 3)), (f(5, 4), np.int32(-2))),
        "scatter": (
            lambda t, ix, v: (t.at[ix].set(v), t.at[ix].add(v), t.at[ix].max(v), t.at[:, 2].add(1.0)),
            (f(5, 4), np.array([0, 7, -1], np.int32), f(3, 4)),
        ),
        "sort": (lambda x: (jnp.sort(x, 1), jnp.argsort(x, 1), jnp.median(x, 1), lax.top_k(x, 2)), (f(3, 5),)),
        "iota": (lambda a: (a + jnp.arange(4, dtype="uint32"), jnp.arange(3, dtype="int8")), (u(4),)),
    }


def programs() -> dict[str, Case]:
    """Control flow, random numbers, and parts of models."""

    def cell(state: Any, x: Any, w: Any) -> Any:
        state = jnp.tanh(state @ w + x)
        return state, jnp.sort(state)

    return {
        "loop": (
            lambda x, n: lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, jnp.sort(s[1]) * x), (0, x))[1],
            (f(4), np.int32(3)),
        ),
        "scan": (lambda x, w: lax.scan(lambda s, a: cell(s, a, w), jnp.zeros(4), x), (f(6, 4), f(4, 4))),
        "scan_gradient": (
            jax.grad(lambda w, x: jnp.sum(lax.scan(lambda s, a: cell(s, a, w), jnp.zeros(4), x)[0])),
            (f(4, 4), f(6, 4)),
        ),
        "branches": (
            lambda p, x: lax.switch(
                p, [lambda a: a, lambda a: lax.fori_loop(0, 2, lambda j, b: b * x, a), jnp.square], x
            ),
            (np.int32(1), f(4)),
        ),
        "random": (
            lambda s: (jax.random.normal(jax.random.key(s), (5,)), jax.random.permutation(jax.random.key(s), 6)),
            (np.int32(-7),),
        ),
        "attention": (
            lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True),
            (f(1, 6, 2, 4), f(1, 6, 2, 4), f(1, 6, 2, 4)),
        ),
        "activations": (
            lambda x: (jax.nn.gelu(x, approximate=False), jax.nn.softmax(x), jax.nn.logsumexp(x)),
            (f(3, 4),),
        ),
        "resize": (lambda x: jax.image.resize(x, (1, 6, 6, 2), "bilinear"), (f(1, 4, 4, 2),)),
        "fft": (
            lambda x, y: (
                jnp.fft.fft(x).real,
                jnp.fft.irfft(2 * jnp.fft.rfft(x)),
                jnp.fft.ifftn(y).imag,
                jnp.fft.irfft2(jnp.fft.rfft2(y) + 1, (3, 4)),
            ),
            (f(6), f(2, 3, 4)),
        ),
        "conv3d": (volumes, (f(2, 5, 6, 7, 4), f(2, 3, 2, 2, 6))),
        "same": (lambda a: (a, a, jnp.ones(2)), (f(3),)),
    }


def volumes(x: Any, w: Any) -> Any:
    """Returns a convolution in three dimensions with groups, strides, dilations, and any padding, and its gradients."""

    def convolved(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(
            x,
            w,
            (1, 2, 1),
            [(1, 1), (-1, 2), (1, 0)],
            rhs_dilation=(2, 1, 1),
            feature_group_count=2,
            dimension_numbers=("NDHWC", "DHWIO", "NDHWC"),
        )

    def plain(x: Any, w: Any) -> Any:
        strides = (2, 1, 2)
        y = jax.lax.conv_general_dilated(x, w, strides, "SAME", dimension_numbers=("NDHWC", "DHWIO", "NDHWC"))
        return jnp.sum(jnp.sin(y))

    return convolved(x, w), jax.grad(plain, (0, 1))(x, jnp.concatenate([w, w], 3))


def linear() -> dict[str, Case]:
    """Decompositions and solvers, for which JAX calls LAPACK. Signs of vectors are arbitrary."""
    a, b, w = f(5, 5), f(5, 2), f(2, 6, 4)
    spd = a @ a.T + np.eye(5, dtype=np.float32)

    def products(w: Any, s: Any) -> Any:
        left, values, right = jnp.linalg.svd(w, full_matrices=False)
        eigenvalues, vectors = jnp.linalg.eigh(s)
        return (left * values[..., None, :]) @ right, values, (vectors * eigenvalues) @ vectors.T, eigenvalues

    @jax.jit
    def _sqrtm(x: Any) -> Any:
        return jax.scipy.linalg.schur(x, output="complex")[0]

    def roots(w: Any, s: Any) -> Any:
        batch = jax.vmap(jax.scipy.linalg.sqrtm)(w @ jnp.swapaxes(w, 1, 2) + 2 * jnp.eye(w.shape[1]))
        last = jnp.stack([s, s + jnp.triu(s)], 2)
        moved = jax.vmap(jax.scipy.linalg.sqrtm, in_axes=2)(last)
        parts = batch, jax.scipy.linalg.sqrtm(s), jnp.trace(_sqrtm(s)), moved
        return [(x.real, x.imag) for x in parts]

    def loss(a: Any, b: Any, s: Any) -> Any:
        parts = [jnp.linalg.solve(a, b), jnp.linalg.cholesky(s), jnp.linalg.det(a), products(b, s)[2]]
        return sum(jnp.sum(jnp.sin(part)) for part in parts)

    def general(w: Any, z: Any) -> Any:
        (values, vectors), root = jnp.linalg.eig(w), jax.scipy.linalg.sqrtm(z)
        largest = jnp.take_along_axis(vectors, jnp.argmax(jnp.abs(vectors), -2)[:, None], -2)
        left, right = jax.lax.linalg.eig(z)[1:]
        upper, unitary = jax.scipy.linalg.schur(z)
        real = jax.scipy.linalg.schur(w[0], output="complex")
        parts = (
            jnp.sort(jnp.abs(values)),
            w @ vectors - vectors * values[:, None],
            largest.imag,
            jnp.abs((left.conj().T @ right).diagonal()).sum(),
            root,
            unitary @ upper @ unitary.conj().T,
            real[1] @ real[0] @ real[1].conj().T,
            jnp.linalg.eigvals(z).sum(),
        )
        return jax.tree.map(lambda x: (x.real, x.imag) if x.dtype == jnp.complex64 else x, parts)

    return {
        "factors": (
            lambda w: (jnp.linalg.qr(w), jnp.linalg.qr(w, mode="complete"), jnp.linalg.svd(w, compute_uv=False)),
            (w,),
        ),
        "gradients_of_factors": (jax.grad(loss, (0, 1, 2)), (a, b, spd)),
        "lu": (
            lambda a, w: (jax.scipy.linalg.lu(a), jax.scipy.linalg.lu_factor(w[:, :3]), jax.scipy.linalg.lu_factor(w)),
            (a, w),
        ),
        "general": (general, (w[:, :4], (spd + 1j * a).astype(np.complex64))),
        "products_of_factors": (products, (w, spd)),
        "square_roots": (roots, (w, spd)),
        "solvers": (
            lambda a, b, s: (
                jnp.linalg.solve(a, b),
                jnp.linalg.inv(a),
                jnp.linalg.slogdet(a),
                jnp.linalg.lstsq(a, b)[0],
                jnp.linalg.pinv(b),
                jax.scipy.linalg.expm(a),
                jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(s), b),
                lax.linalg.tridiagonal_solve(a[0], jnp.abs(a[1]) + 9, a[2], b),
            ),
            (a, b, spd),
        ),
        "triangles": (
            lambda s, b, z: (
                jax.scipy.linalg.solve_triangular(s, b, trans=1, lower=True),
                lax.linalg.triangular_solve(s, b.T, left_side=False, lower=False, unit_diagonal=True),
                lax.linalg.triangular_solve(z, z @ z, left_side=False, lower=True, transpose_a=True, conjugate_a=True),
                jnp.linalg.cholesky(z @ z.conj().T + 9 * jnp.eye(5)),
            ),
            (spd, b, (spd + 1j * a).astype(np.complex64)),
        ),
    }


def main(path: str) -> None:
    """Writes `NAME.mlir` and `NAME.npz` for each program, and those of tests about what TensorFlow can't read or compile."""
    jax.config.update("jax_num_cpu_devices", 4)
    cases = elementwise() | products() | shapes() | programs() | linear()
    cases[FROM_HLO] = (lambda x, w, n: {"y": jnp.tanh(x @ w) + n, "n": n // 2}, (f(4, 3), f(3, 5), i(5)))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, (function, arguments) in cases.items():
            compiled = jax.jit(function)
            specs = [jax.ShapeDtypeStruct(np.shape(value), np.asarray(value).dtype) for value in arguments]
            if name == FROM_HLO:  # as docs/guide/stablehlo.md converts HLO
                hlo = compiled.lower(*specs).compiler_ir("hlo").as_serialized_hlo_module_proto()
                out.writestr(f"{name}.mlir", _jax.mlir.hlo_to_stablehlo(hlo))
            else:
                out.writestr(f"{name}.mlir", export.export(compiled, platforms=["cpu"])(*specs).mlir_module())
            results = [np.asarray(value) for value in jax.tree.leaves(compiled(*arguments))]
            values = io.BytesIO()
            np.savez(
                values,
                **{f"input_{index}": value for index, value in enumerate(arguments)},
                **{f"output_{index}": _stored(value) for index, value in enumerate(results)},
            )
            out.writestr(f"{name}.npz", values.getvalue())
        spec = jax.ShapeDtypeStruct((3, 3), np.float32)
        newer = export.export(jax.jit(lambda x: lax.top_k(x, 2)), platforms=["cpu"])(spec)
        out.writestr("newer.mlirbc", newer.mlir_module_serialized)
        library = export.export(jax.jit(lambda x: jax.scipy.linalg.schur(x, "real")), platforms=["cpu"])(spec)
        out.writestr("library.mlir", library.mlir_module())
        own = export.export(jax.jit(lambda x: jnp.linalg.cholesky(x @ x.T)), platforms=["tpu"])(spec)
        out.writestr("no_library.mlir", own.mlir_module())
        both = export.export(jax.jit(jnp.sin), platforms=["cpu", "cuda"])(spec)
        out.writestr("both.mlir", both.mlir_module())

        def transformed(x: Any) -> Any:
            spectrum = jnp.fft.rfft(x)
            return jnp.abs(spectrum)

        once = export.export(jax.jit(transformed), platforms=["cpu"])(spec)
        out.writestr("transformed.mlir", once.mlir_module())
        out.writestr("transformed.mlirbc", once.mlir_module_serialized)
        repeated = jax.jit(lambda x: lax.fori_loop(0, 3, lambda _, y: y.at[:, :2].set(transformed(y)), x))
        out.writestr("transformed_loop.mlir", export.export(repeated, platforms=["cpu"])(spec).mlir_module())
        key = jax.ShapeDtypeStruct((), jax.random.key(0).dtype)
        for name, shardy in (("key", True), ("key_without_shardy", False)):
            jax.config.update("jax_use_shardy_partitioner", shardy)
            drawn = export.export(jax.jit(lambda k: jax.random.uniform(k, (3,))), platforms=["cpu"])(key)
            out.writestr(f"{name}.mlir", drawn.mlir_module())
        jax.config.update("jax_use_shardy_partitioner", True)
        add_models(out)
        (size,) = export.symbolic_shape("size")
        opened = export.export(jax.jit(jnp.tanh), platforms=["cpu"])(jax.ShapeDtypeStruct((size,), np.float32))
        out.writestr("opened.mlirbc", opened.mlir_module_serialized)


def add_models(out: zipfile.ZipFile) -> None:
    """Adds models that `tfaot.jax` exports, `NAME.jax`, with inputs and JAX's results in `NAME.models`."""
    (batch,) = export.symbolic_shape("batch")
    shape = jax.ShapeDtypeStruct
    weights = {"dense": [f(4, 3), f(3)], "scale": np.float32(0.5)}

    def step(weights: Any, count: Any, x: Any) -> Any:
        loss, gradient = jax.value_and_grad(
            lambda w: jnp.mean(jnp.tanh(x @ w["dense"][0] + w["dense"][1]) ** 2 * w["scale"])
        )(weights)
        return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradient), {"loss": loss, "n": count + 1}

    def predict(weights: Any, *, x: Any) -> Any:
        return x @ weights["dense"][0]

    state = {"weights": "0", "count": "1/n"}
    training = tfaot.jax.export(step, weights, np.int32(0), shape((5, 4), np.float32), state=state, name="step")
    reading = tfaot.jax.export(predict, weights, x=shape((2, 4), np.float32), state=state, name="predict")
    x, y = f(5, 4), f(2, 4)
    once, _ = step(weights, 0, x)
    twice, last = step(once, 1, x)
    add(out, "step", [training, reading], {"x": x, "y": y, "loss": last["loss"], "output": predict(twice, x=y)})

    def drawn(key: Any, fast: Any, n: Any) -> Any:
        key, own = jax.random.split(key)
        return {"key": key, "x": jax.random.uniform(own, (3,)) + n, "bits": jax.random.bits(fast, (4,))}

    keys = jax.random.key(7), jax.random.key(8, impl="rbg")
    n = np.float32(2)
    add(out, "keys", [tfaot.jax.export(drawn, *keys, n, state=["key"])], {"n": n, **drawn(*keys, n)})

    def rows(x: Any, images: Any, table: Any) -> Any:
        def cell(state: Any, value: Any) -> Any:
            state = jnp.tanh(state @ table[:3] + value @ table)
            return state, jnp.sort(state, 1)

        last, all_ = lax.scan(cell, jnp.zeros((x.shape[0], 3)), jnp.swapaxes(x, 0, 1))
        taps = jnp.linspace(-1, 1, 36, dtype=np.float32).reshape(3, 3, 1, 4)
        pooled = pool(conv(images, taps, (2, 2)), -jnp.inf, lax.max, 2, 2, "VALID")
        best = lax.top_k(last, 2)[1]
        return {"all": jnp.swapaxes(all_, 0, 1), "best": best, "pooled": pooled.reshape(pooled.shape[0], -1)}

    shapes = shape((batch, 5, 4), np.float32), shape((batch, 8, 8, 1), np.float32), shape((4, 3), np.float32)
    values = f(7, 5, 4), f(7, 8, 8, 1), f(4, 3)
    names = dict(zip(("x", "images", "table"), values, strict=True))
    add(out, "rows", [tfaot.jax.export(rows, *shapes)], {**names, **rows(*values)})
    few = f(4, 3).astype(jnp.float8_e4m3fn), (4 * f(4, 3)).astype(jnp.int4)

    def narrow(x: Any) -> Any:
        eight, four = x.astype(jnp.float8_e5m2).astype(np.float32), (x * 2).astype(jnp.uint4).astype(np.float32)
        exact = jnp.dot(x.astype(jnp.float8_e4m3fn), few[0], preferred_element_type=np.float32)
        return {"eight": eight, "four": four, "dot": exact, "weights": x @ few[1].astype(np.float32)}

    x = np.abs(f(2, 4))
    add(out, "narrow", [tfaot.jax.export(narrow, shape((2, 4), np.float32))], {"x": x, **jax.jit(narrow)(x)})
    mean = tfaot.jax.export(lambda x: x - x.mean(0), shape((batch, 3), np.float32))
    add(out, "mean", [mean], {})
    add_sizes(out)
    add_shards(out)
    large = f(300, 300)
    add(out, "large", [tfaot.jax.export(lambda x: x @ large, shape((2, 300), np.float32))], {"x": f(2, 300)})


def add_sizes(out: zipfile.ZipFile) -> None:
    """Adds models with several symbolic sizes, and JAX's results for inputs of some: `NUMBER/NAME`."""
    words, weights, taps = f(20, 6), f(6, 6), f(3, 6, 6)
    shape = jax.ShapeDtypeStruct

    def translate(source: Any, target: Any) -> Any:
        read, x = jnp.asarray(words)[source], jnp.asarray(words)[target]
        length = x.shape[1]
        own = jnp.where(jnp.tril(jnp.ones((length, length), bool)), jnp.einsum("btd,bsd->bts", x @ weights, x), -1e9)
        x = x + jax.nn.softmax(own) @ x
        x = x + jax.nn.softmax(jnp.einsum("btd,bsd->bts", x @ weights, read)) @ read
        both = jnp.concatenate([read, x], 1)
        return {
            "last": x[:, -1],
            "mean": x.mean(1),
            "pairs": jnp.reshape(read[:, :, None] * x[:, None], (x.shape[0], -1, 6)).sum(1),
            "positions": x[:, :, 0] + jnp.arange(length) * jnp.float32(read.shape[1]),
            "spread": jnp.tanh(both - both.mean(1, keepdims=True)),
        }

    batch, s, t = export.symbolic_shape("b, s, t", constraints=["t <= s"])
    calls = [(translate, [RANDOM.randint(0, 20, (2, n), np.int32) for n in pair]) for pair in SIZES]
    translating = tfaot.jax.export(translate, shape((batch, s), np.int32), shape((batch, t), np.int32))
    add(out, "translate", [translating], called(calls, ("source", "target")))

    def image(x: Any) -> Any:
        halved = lax.conv_general_dilated(x, taps, (2,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))
        groups = x.reshape(x.shape[0], x.shape[1] // 4, 4, 6).max(2)
        return {"halved": jnp.tanh(halved), "groups": groups}

    batch, t = export.symbolic_shape("b, t", constraints=["mod(t, 4) == 0"])
    calls = [(image, [f(2, n, 6)]) for n in (4, 8, 12, 16)]
    add(out, "groups", [tfaot.jax.export(image, shape((batch, t, 6), np.float32))], called(calls, ("x",)))
    batch, t = export.symbolic_shape("b, t")
    unknown = shape((batch, t, 2), np.float32)
    add(out, "front", [tfaot.jax.export(lambda x: x[:, :15], unknown)], {})

    def longest(x: Any) -> Any:
        return {
            "flipped": jnp.flip(x, 1),
            "fourth": jnp.take(x, jnp.array([3]), 1, mode="clip"),
            "positions": x[:, :1, 0] + jnp.arange(jax.core.max_dim(x.shape[1], 15)),
        }

    def windows(x: Any) -> Any:
        w, pool = x.shape[-1], (1, 3, 1)
        kernel, ones = jnp.asarray(taps[:, :w, :w]), jnp.ones_like(x)
        sizes = {"dimension_numbers": ("NWC", "WIO", "NWC")}
        ties = jnp.where(x > 1, jnp.nan, jnp.where(x < -0.7, -0.0, jnp.where(x < 0, 0.0, x)))
        sums = [lax.reduce_window(y, 0.0, lax.add, pool, (1, 2, 1), "SAME") for y in (x, ones)]
        return {
            "average": sums[0] / sums[1],
            "causal": lax.conv_general_dilated(x, kernel, (1,), [(4, 0)], rhs_dilation=(2,), **sizes),
            "descent": jax.grad(lambda x: jnp.mean(jnp.tanh(x)))(x),
            "first": x.at[:, 0].set(2.0),
            "from_second": x.at[:, 1:].add(3.0),
            "greatest": lax.cummax(x, 1),
            "median": jnp.median(x, 1),
            "order": jnp.argsort(x, 1),
            "pooled": lax.reduce_window(x, -jnp.inf, lax.max, pool, (1, 2, 1), "SAME"),
            "remainder": lax.rem(x, jnp.float32(0.7)),
            "reverse": lax.cumsum(x, 1, reverse=True),
            "rolled": jnp.roll(x, 1, 1),
            "ranks": lax.top_k(jnp.swapaxes(x, 1, 2), x.shape[1])[1],
            "scattered": x.at[:, jnp.arange(x.shape[1]) // 2].max(x),
            "halved": lax.conv_general_dilated(x, kernel, (2,), "SAME", **sizes),
            "longer": lax.conv_transpose(x, kernel, (2,), "SAME", **sizes),
            "low": jnp.quantile(x, 0.3, 1),
            "logs": lax.cumlogsumexp(x, 1),
            "ordered": jnp.argsort(ties, 1, descending=True),
            "strided": lax.conv_general_dilated(x, kernel, (2,), [(1, 1)], **sizes),
            "to_half": lax.fori_loop(0, x.shape[1] // 2, lambda i, a: a + lax.dynamic_slice_in_dim(x, i, 1, 1), x),
        }

    calls = [(windows, [jnp.asarray(f(2, n, 2))]) for n in (2, 3, 7, 8, 9)]
    batch, t = export.symbolic_shape("b, t", constraints=["t >= 2"])
    several = tfaot.jax.export(windows, shape((2, t, 2), np.float32))
    add(out, "windows", [several], called(calls, ("x",)))
    (many,) = export.symbolic_shape("t", constraints=["mod(t, 997) == 0"])
    add(out, "many", [tfaot.jax.export(lambda x: x * 2, shape((many,), np.float32))], {})
    rows, columns = export.symbolic_shape("r, c", constraints=["r*c >= 8"])
    matrix = tfaot.jax.export(lambda x: x.reshape(-1).sum(), shape((rows, columns), np.float32))
    add(out, "matrix", [matrix], {})
    calls = [(longest, [f(2, n, 2)]) for n in (1, 14, 15, 16, 40)]
    add(out, "longest", [tfaot.jax.export(longest, unknown)], called(calls, ("x",)))


SIZES = ((1, 1), (3, 1), (4, 4), (5, 4), (5, 5), (9, 3), (9, 9), (8, 2))
"""Sizes of two inputs."""


def called(calls: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Returns arguments and results of calls."""
    result: dict[str, Any] = {}
    for number, (function, arguments) in enumerate(calls):
        pairs = [*zip(names, arguments, strict=True), *function(*arguments).items()]
        result |= {f"{number}/{name}": value for name, value in pairs}
    return result


def add_shards(out: zipfile.ZipFile) -> None:
    """Adds a step that two devices run, each with its own rows, and what JAX computes with both."""
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices()[:2])
    rows, columns, all_ = (jax.sharding.PartitionSpec(*axes) for axes in (("data",), (None, "data"), ()))

    def step(weights: Any, x: Any) -> Any:
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean((x @ w) ** 2))(weights)
        rank = lax.axis_index("data")
        return (
            weights - lax.pmean(gradient, "data"),
            {
                "all_to_all": lax.all_to_all(x, "data", 0, 1, tiled=True),
                "bits": lax.all_gather(x.view(jnp.uint32), "data", tiled=True),
                "bytes": lax.psum((x > 0).astype(jnp.uint8), "data"),
                "complex": jnp.imag(lax.psum(lax.complex(x, 2 * x), "data")),
                "gather": lax.all_gather(jnp.sin(x), "data", tiled=True),
                "gather_columns": lax.all_gather(x, "data", axis=1),
                "gather_last": lax.all_gather(x.reshape(2, 4, 3), "data", axis=2, tiled=True),
                "half": lax.pmax(x.astype(jnp.bfloat16), "data").astype(jnp.float32),
                "integers": lax.psum(jnp.round(9 * x).astype(jnp.int32), "data"),
                "rank": rank[None] + 3 * lax.axis_size("data"),
                "ring": lax.ppermute(x, "data", [(0, 1), (1, 0)]),
                "scatter": lax.psum_scatter(x, "data", tiled=True),
                "scatter_last": lax.psum_scatter(x.reshape(2, 3, 4), "data", tiled=True, scatter_dimension=2),
                "scatter_columns": lax.psum_scatter(x.T, "data", tiled=True, scatter_dimension=1),
                "shift": lax.ppermute(x, "data", [(0, 1)]),
                "sign": lax.pmin(jnp.where(x > rank, 1, -1), "data"),
            },
            lax.pmean(loss, "data"),
        )

    _, others, _ = jax.eval_shape(
        jax.shard_map(step, mesh=mesh, in_specs=(all_, rows), out_specs=(all_, rows, all_), check_vma=False),
        f(6, 3),
        f(8, 6),
    )
    others = {key: columns if key == "scatter_columns" else rows for key in others}
    specs = {"in_specs": (all_, rows), "out_specs": (all_, others, all_)}
    both = jax.jit(jax.shard_map(step, mesh=mesh, check_vma=False, **specs))
    weights, x = f(6, 3), f(8, 6)
    updated, results, loss = both(weights, x)

    def decayed(weights: Any, x: Any) -> Any:
        new, *rest = both(weights, x)
        return 0.5 * new, *rest  # what isn't split can be computed outside

    add(
        out,
        "shards",
        [tfaot.jax.export(decayed, weights, jax.ShapeDtypeStruct(x.shape, x.dtype), state={"weights": "0"})],
        {"x": x, "weights": 0.5 * updated, "loss": loss, **results},
    )

    add_mesh(out)

    def outside(x: Any) -> Any:
        return both(weights, x)[1]["ring"] * 2

    add(out, "outside", [tfaot.jax.export(outside, jax.ShapeDtypeStruct(x.shape, x.dtype))], {})


def add_mesh(out: zipfile.ZipFile) -> None:
    """Adds a program of four devices in a mesh, which exchange values along one axis of it, also in loops."""
    mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    blocks, all_ = jax.sharding.PartitionSpec("data", "model"), jax.sharding.PartitionSpec(("data", "model"))

    def step(x: Any) -> Any:
        def turn(carry: Any, row: Any) -> Any:
            carry = jnp.cos(carry + lax.psum(row, "data"))
            return carry, lax.pmax(carry, ("data", "model"))

        final, rows = lax.scan(turn, jnp.zeros_like(x[0]), x)
        return {
            "all_to_all": lax.all_to_all(x, "model", 0, 1, tiled=True),
            "data": lax.psum(x, "data"),
            "final": final[None],
            "gather": lax.all_gather(x, "model", tiled=True),
            "gather_both": lax.all_gather(x[:2], ("model", "data"), tiled=True),
            "loop": lax.fori_loop(0, 3, lambda i, y: jnp.sin(lax.pmean(y, "model") + i), x),
            "model": lax.pmean(x, "model"),
            "rank": (10 * lax.axis_index("data") + lax.axis_index("model"))[None],
            "ring": lax.ppermute(x, "model", [(0, 1), (1, 0)]),
            "rows": rows,
            "scatter": lax.psum_scatter(x, "data", tiled=True, scatter_dimension=0),
        }

    x = f(8, 6)
    every = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=blocks, out_specs=all_, check_vma=False))
    add(out, "mesh", [tfaot.jax.export(every, jax.ShapeDtypeStruct(x.shape, x.dtype))], {"x": x, **every(x)})

    def until(x: Any) -> Any:
        return lax.while_loop(lambda y: y.sum() < 9, lambda y: y + lax.psum(y, "data"), x)

    shards = jax.jit(jax.shard_map(until, mesh=mesh, in_specs=blocks, out_specs=blocks, check_vma=False))
    add(out, "until", [tfaot.jax.export(shards, jax.ShapeDtypeStruct(x.shape, x.dtype))], {})


def add(out: zipfile.ZipFile, name: str, exported: Any, values: dict[str, Any]) -> None:
    """Adds a model."""
    file, arrays = io.BytesIO(), io.BytesIO()
    files.write(file, tfaot.jax.joined(exported, source=f"{name}.py"))
    out.writestr(f"{name}.jax", file.getvalue())
    keys = {
        key: jax.random.key_data(value) for key, value in values.items() if hasattr(value, "dtype") and _is_key(value)
    }
    saved: dict[str, Any] = {key: np.asarray(value) for key, value in {**values, **keys}.items()}
    np.savez(arrays, **saved)
    out.writestr(f"{name}.models", arrays.getvalue())


def _is_key(value: Any) -> bool:
    return bool(jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key))


def _stored(value: Any) -> Any:
    """Returns a value in a dtype that NumPy's files have."""
    return value.astype(np.float32) if value.dtype == jnp.bfloat16 else value


if __name__ == "__main__":
    main(sys.argv[1])
