"""The models in JAX. Inference closes over its weights; training steps take and return theirs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks import definitions
from benchmarks.definitions import Array, Model, Weights

Value = Any


class JaxOps:
    """Evaluates with the given parameters. Without any, draws them and records them in `parameters`."""

    def __init__(self, family: str, parameters: dict[str, Any] | None = None, *, training: bool = False) -> None:
        self._weights = Weights(family)
        self._given = parameters
        self._training = training
        self.parameters: dict[str, Any] = {}

    def _weight(self, name: str, value: Callable[[], Array]) -> Value:
        if self._given is not None:
            return self._given[name]
        return self._drawn(name, value)

    def _drawn(self, name: str, value: Callable[[], Array]) -> Value:
        if name not in self.parameters:
            with jax.ensure_compile_time_eval():  # a concrete value, not a tracer
                self.parameters[name] = jnp.asarray(value())
        return self.parameters[name]

    def _kernel(self, name: str, shape: tuple[int, ...], fan_in: int) -> Value:
        return self._weight(name, lambda: self._weights.kernel(name, shape, fan_in))

    def _vector(self, name: str, size: int, *bounds: float) -> Value:
        return self._weight(name, lambda: self._weights.vector(name, size, *bounds))

    def dense(self, x: Value, units: int, name: str, activation: str = "") -> Value:
        fan_in = x.shape[-1]
        y = x @ self._kernel(name + "/kernel", (fan_in, units), fan_in) + self._vector(name + "/bias", units)
        return self.activation(y, activation) if activation else y

    def conv(
        self,
        x: Value,
        filters: int,
        size: int,
        name: str,
        *,
        stride: int = 1,
        pad: str | int = "valid",
        bias: bool = True,
    ) -> Value:
        channels = x.shape[-1]
        kernel = self._kernel(name + "/kernel", (size, size, channels, filters), size * size * channels)
        y = _convolve(x, kernel, stride, pad)
        return y + self._vector(name + "/bias", filters) if bias else y

    def depthwise(self, x: Value, size: int, name: str, *, stride: int = 1) -> Value:
        channels = x.shape[-1]
        kernel = self._kernel(name + "/kernel", (size, size, channels, 1), size * size)
        return _convolve(x, kernel.reshape(size, size, 1, channels), stride, "same", groups=channels)

    def batch_norm(self, x: Value, name: str) -> Value:
        size = x.shape[-1]
        drawn = self._weights.batch_norm(name, size)
        parts = ("gamma", "beta", "mean", "variance")
        gamma, beta, mean, variance = (
            self._weight(f"{name}/{part}", functools.partial(np.asarray, value))
            for part, value in zip(parts, drawn, strict=True)
        )
        if self._training:
            axes = tuple(range(x.ndim - 1))
            # The moving statistics are updated too, as in every other framework. The caller takes them from `moved`.
            batch_mean, batch_variance = x.mean(axes), x.var(axes)
            self.parameters[name + "/mean"] = lax.stop_gradient(0.99 * mean + 0.01 * batch_mean)
            self.parameters[name + "/variance"] = lax.stop_gradient(0.99 * variance + 0.01 * batch_variance)
            mean, variance = batch_mean, batch_variance
        scale = gamma * lax.rsqrt(variance + definitions.BATCH_NORM_EPSILON)
        return x * scale + (beta - mean * scale)

    def activation(self, x: Value, kind: str) -> Value:
        if kind == "gelu":
            return jax.nn.gelu(x, approximate=False)
        kinds = {
            "relu": jax.nn.relu,
            "relu6": jax.nn.relu6,
            "tanh": jnp.tanh,
            "silu": jax.nn.silu,
            "sigmoid": jax.nn.sigmoid,
        }
        return kinds[kind](x)

    def add(self, x: Value, y: Value) -> Value:
        return x + y

    def gate(self, x: Value, factors: Value) -> Value:
        return x * factors[:, None, None]

    def concat(self, x: Value, y: Value) -> Value:
        return jnp.concatenate([x, y], -1)

    def upsample(self, x: Value) -> Value:
        return x.repeat(2, 1).repeat(2, 2)

    def max_pool(self, x: Value, size: int, stride: int, pad: int) -> Value:
        pads = ((0, 0), (pad, pad), (pad, pad), (0, 0))
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, size, size, 1), (1, stride, stride, 1), pads)

    def spatial_mean(self, x: Value) -> Value:
        return x.mean((1, 2))

    def flatten(self, x: Value) -> Value:
        return x.reshape(x.shape[0], -1)

    def lstm(self, x: Value, units: int, name: str) -> Value:
        batch, _, features = x.shape
        kernel = self._kernel(name + "/kernel", (features, 4 * units), 3 * features)
        recurrent = self._kernel(name + "/recurrent", (units, 4 * units), 6 * units)
        projected = jnp.swapaxes(x @ kernel + self._vector(name + "/bias", 4 * units), 0, 1)

        def step(state: Value, projection: Value) -> tuple[Value, None]:
            h, c = state
            i, f, g, o = jnp.split(projection + h @ recurrent, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

        zero = jnp.zeros((batch, units), x.dtype)
        return lax.scan(step, (zero, zero), projected)[0][0]

    def gru(self, x: Value, units: int, name: str) -> Value:
        batch, _, features = x.shape
        kernel = self._kernel(name + "/kernel", (features, 3 * units), 3 * features)
        recurrent = self._kernel(name + "/recurrent", (units, 3 * units), 6 * units)
        bias = self._vector(name + "/bias", 6 * units)
        projected = jnp.swapaxes(x @ kernel + bias[: 3 * units], 0, 1)

        def step(h: Value, projection: Value) -> tuple[Value, None]:
            z, r, n = jnp.split(projection, 3, axis=-1)
            of_z, of_r, of_n = jnp.split(h @ recurrent + bias[3 * units :], 3, axis=-1)
            z = jax.nn.sigmoid(z + of_z)
            n = jnp.tanh(n + jax.nn.sigmoid(r + of_r) * of_n)
            return z * h + (1 - z) * n, None

        return lax.scan(step, jnp.zeros((batch, units), x.dtype), projected)[0]

    def causal_conv(self, x: Value, filters: int, size: int, name: str, *, dilation: int) -> Value:
        features = x.shape[-1]
        kernel = self._kernel(name + "/kernel", (size, features, filters), size * features)
        y = lax.conv_general_dilated(
            x,
            kernel,
            (1,),
            [((size - 1) * dilation, 0)],
            rhs_dilation=(dilation,),
            dimension_numbers=("NWC", "WIO", "NWC"),
        )
        return y + self._vector(name + "/bias", filters)

    def interact(self, x: Value) -> Value:
        return jnp.einsum("brw,bsw->brs", x, x).reshape(x.shape[0], -1)

    def row_mean(self, x: Value) -> Value:
        return x.mean(1)

    def embed(self, tokens: Value, vocabulary: int, width: int, name: str) -> Value:
        table = self._kernel(name + "/table", (vocabulary, width), 2)
        return table[tokens] + self._kernel(name + "/positions", (tokens.shape[1], width), 2)

    def attention(self, x: Value, heads: int, name: str) -> Value:
        width = x.shape[-1]

        def project(value: Value, part: str) -> Value:
            kernel = self._kernel(f"{name}/{part}/kernel", (width, width), 3 * width)
            return value @ kernel + self._vector(f"{name}/{part}/bias", width)

        query, key, value = (project(x, part) for part in ("query", "key", "value"))
        return project(self.attend(query, key, value, heads), "out")

    def attend(self, query: Value, keys: Value, values: Value, heads: int) -> Value:
        q, k, v = (x.reshape(*x.shape[:2], heads, -1) for x in (query, keys, values))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q / q.shape[-1] ** 0.5, k)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(query.shape)

    def rows(self, x: Value, start: int, count: int) -> Value:
        return x[:, start : start + count]

    def join(self, values: list[Value]) -> Value:
        return jnp.concatenate(values, 1)

    def layer_norm(self, x: Value, name: str) -> Value:
        gamma, beta = self._vector(name + "/gamma", x.shape[-1], 0.8, 1.2), self._vector(name + "/beta", x.shape[-1])
        centred = x - x.mean(-1, keepdims=True)
        variance = jnp.square(centred).mean(-1, keepdims=True)
        return centred * lax.rsqrt(variance + definitions.LAYER_NORM_EPSILON) * gamma + beta


def _convolve(x: Value, kernel: Value, stride: int, pad: str | int, groups: int = 1) -> Value:
    padding = pad.upper() if isinstance(pad, str) else [(pad, pad)] * 2
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups
    )


def inference(model: Model) -> Callable[..., Value]:
    """Returns a compiled function of the input, with the weights as constants."""
    ops = JaxOps(model.family)
    # Weights are drawn while the function is traced, and nothing is computed before it runs.
    call: Callable[..., Value] = jax.jit(lambda value: model.body(ops, value))
    return call


def training(model: Model) -> tuple[Callable[..., tuple[Value, Value]], Value]:
    """Returns a compiled step, (state, x, y) → (loss, state), and its initial state."""
    drawn = JaxOps(model.family)
    jax.eval_shape(lambda value: model.body(drawn, value), definitions.inputs(model)[0])
    state: dict[str, Any] = {"parameters": drawn.parameters}
    if model.optimizer == "adam":
        zeros = {name: jnp.zeros_like(value) for name, value in drawn.parameters.items()}
        state |= {"step": jnp.zeros(()), "m": zeros, "v": {name: jnp.zeros_like(v) for name, v in zeros.items()}}

    def loss_of(parameters: Value, x: Value, y: Value) -> tuple[Value, Value]:
        ops = JaxOps(model.family, parameters, training=True)
        logits = model.body(ops, x)
        return -(y * jax.nn.log_softmax(logits)).sum(-1).mean(), ops.parameters

    def step(state: Value, x: Value, y: Value) -> tuple[Value, Value]:
        (loss, moved), gradients = jax.value_and_grad(loss_of, has_aux=True)(state["parameters"], x, y)
        gradients = {name: value for name, value in gradients.items() if name not in moved}
        new = dict(state["parameters"])
        if model.optimizer == "sgd":
            new |= {name: new[name] - definitions.SGD_RATE * gradient for name, gradient in gradients.items()} | moved
            return loss, {"parameters": new}
        adam = definitions.ADAM
        count = state["step"] + 1
        rate = adam["rate"] * jnp.sqrt(1 - adam["beta2"] ** count) / (1 - adam["beta1"] ** count)
        m, v = dict(state["m"]), dict(state["v"])
        for name, gradient in gradients.items():
            m[name] = adam["beta1"] * m[name] + (1 - adam["beta1"]) * gradient
            v[name] = adam["beta2"] * v[name] + (1 - adam["beta2"]) * gradient**2
            new[name] = new[name] - rate * m[name] / (jnp.sqrt(v[name]) + adam["epsilon"])
        return loss, {"parameters": new | moved, "step": count, "m": m, "v": v}

    return jax.jit(step, donate_argnums=0), state
