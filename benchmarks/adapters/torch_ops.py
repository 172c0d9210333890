"""The models in PyTorch. Images are NCHW tensors in the channels-last layout, so NHWC arrays need no copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from benchmarks import definitions
from benchmarks.definitions import Array, Model, Weights

Value = Any


class TorchOps:
    """Draws a weight at its first use and keeps it. Uses PyTorch's modules for layers that have one."""

    def __init__(self, family: str) -> None:
        self._weights = Weights(family)
        self._made: dict[str, Any] = {}

    def parameters(self) -> list[Any]:
        """Returns everything that is trained."""
        result = []
        for made in self._made.values():
            result += list(made.parameters())
        return result

    def train(self) -> None:
        """From now on, batch norm uses the batch's statistics."""
        for made in self._made.values():
            made.train()

    def _module(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._made:
            self._made[name] = make().eval()
        return self._made[name]

    def dense(self, x: Value, units: int, name: str, activation: str = "") -> Value:
        def make() -> Any:
            fan_in = x.shape[-1]
            layer = torch.nn.Linear(fan_in, units)
            _set(layer.weight, self._weights.kernel(name + "/kernel", (fan_in, units), fan_in).T)
            _set(layer.bias, self._weights.vector(name + "/bias", units))
            return layer

        y = self._module(name, make)(x)
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
        channels = x.shape[1]
        x, zeros = _padded(x, size, stride, pad)

        def make() -> Any:
            layer = torch.nn.Conv2d(channels, filters, size, stride, zeros, bias=bias)
            layer = layer.to(memory_format=torch.channels_last)
            kernel = self._weights.kernel(name + "/kernel", (size, size, channels, filters), size * size * channels)
            _set(layer.weight, kernel.transpose(3, 2, 0, 1))
            if bias:
                _set(layer.bias, self._weights.vector(name + "/bias", filters))
            return layer

        return self._module(name, make)(x)

    def depthwise(self, x: Value, size: int, name: str, *, stride: int = 1) -> Value:
        channels = x.shape[1]
        x, zeros = _padded(x, size, stride, "same")

        def make() -> Any:
            layer = torch.nn.Conv2d(channels, channels, size, stride, zeros, groups=channels, bias=False)
            layer = layer.to(memory_format=torch.channels_last)
            kernel = self._weights.kernel(name + "/kernel", (size, size, channels, 1), size * size)
            _set(layer.weight, kernel.transpose(2, 3, 0, 1))
            return layer

        return self._module(name, make)(x)

    def batch_norm(self, x: Value, name: str) -> Value:
        def make() -> Any:
            kind = torch.nn.BatchNorm2d if x.ndim == 4 else torch.nn.BatchNorm1d
            layer = kind(x.shape[1], eps=definitions.BATCH_NORM_EPSILON, momentum=0.01)
            values = self._weights.batch_norm(name, x.shape[1])
            targets = (layer.weight, layer.bias, layer.running_mean, layer.running_var)
            for target, value in zip(targets, values, strict=True):
                _set(target, value)
            return layer

        return self._module(name, make)(x)

    def activation(self, x: Value, kind: str) -> Value:
        kinds = {
            "relu": functional.relu,
            "relu6": functional.relu6,
            "tanh": torch.tanh,
            "gelu": functional.gelu,
            "silu": functional.silu,
            "sigmoid": torch.sigmoid,
        }
        return kinds[kind](x)

    def add(self, x: Value, y: Value) -> Value:
        return x + y

    def gate(self, x: Value, factors: Value) -> Value:
        return x * factors[:, :, None, None]

    def concat(self, x: Value, y: Value) -> Value:
        return torch.cat([x, y], 1)

    def upsample(self, x: Value) -> Value:
        return functional.interpolate(x, scale_factor=2, mode="nearest")

    def max_pool(self, x: Value, size: int, stride: int, pad: int) -> Value:
        return functional.max_pool2d(x, size, stride, pad)

    def spatial_mean(self, x: Value) -> Value:
        return x.mean((2, 3))

    def flatten(self, x: Value) -> Value:
        return x.permute(0, 2, 3, 1).flatten(1)  # no copy in the channels-last layout

    def lstm(self, x: Value, units: int, name: str) -> Value:
        def make() -> Any:
            features = x.shape[-1]
            layer = torch.nn.LSTM(features, units, batch_first=True)
            _set(layer.weight_ih_l0, self._weights.kernel(name + "/kernel", (features, 4 * units), 3 * features).T)
            _set(layer.weight_hh_l0, self._weights.kernel(name + "/recurrent", (units, 4 * units), 6 * units).T)
            _set(layer.bias_ih_l0, self._weights.vector(name + "/bias", 4 * units))
            # The second bias of PyTorch's LSTM. No other framework has it, so it stays zero and untrained.
            _set(layer.bias_hh_l0, np.zeros(4 * units, np.float32))
            layer.bias_hh_l0.requires_grad_(False)
            return layer

        return self._module(name, make)(x)[0][:, -1]

    def gru(self, x: Value, units: int, name: str) -> Value:
        def gates(value: Array) -> Array:
            z, r, n = np.split(value, 3, axis=-1)
            return np.concatenate([r, z, n], axis=-1)

        def make() -> Any:
            features = x.shape[-1]
            layer = torch.nn.GRU(features, units, batch_first=True)
            bias = self._weights.vector(name + "/bias", 6 * units).reshape(2, 3 * units)
            kernel = self._weights.kernel(name + "/kernel", (features, 3 * units), 3 * features)
            _set(layer.weight_ih_l0, gates(kernel).T)
            _set(layer.weight_hh_l0, gates(self._weights.kernel(name + "/recurrent", (units, 3 * units), 6 * units)).T)
            _set(layer.bias_ih_l0, gates(bias[0]))
            _set(layer.bias_hh_l0, gates(bias[1]))
            return layer

        return self._module(name, make)(x)[0][:, -1]

    def causal_conv(self, x: Value, filters: int, size: int, name: str, *, dilation: int) -> Value:
        def make() -> Any:
            features = x.shape[-1]
            layer = torch.nn.Conv1d(features, filters, size, dilation=dilation)
            kernel = self._weights.kernel(name + "/kernel", (size, features, filters), size * features)
            _set(layer.weight, kernel.transpose(2, 1, 0))
            _set(layer.bias, self._weights.vector(name + "/bias", filters))
            return layer

        padded = functional.pad(x.transpose(1, 2), [(size - 1) * dilation, 0])
        return self._module(name, make)(padded).transpose(1, 2)

    def interact(self, x: Value) -> Value:
        return (x @ x.transpose(1, 2)).flatten(1)

    def row_mean(self, x: Value) -> Value:
        return x.mean(1)

    def embed(self, tokens: Value, vocabulary: int, width: int, name: str) -> Value:
        def make(part: str, rows: int) -> Any:
            layer = torch.nn.Embedding(rows, width)
            _set(layer.weight, self._weights.kernel(f"{name}/{part}", (rows, width), 2))
            return layer

        count = tokens.shape[1]
        places = self._module(name + "/positions", lambda: make("positions", count)).weight
        return self._module(name, lambda: make("table", vocabulary))(tokens) + places

    def attention(self, x: Value, heads: int, name: str) -> Value:
        width = x.shape[-1]

        def project(value: Value, part: str) -> Value:
            def make() -> Any:
                layer = torch.nn.Linear(width, width)
                _set(layer.weight, self._weights.kernel(f"{name}/{part}/kernel", (width, width), 3 * width).T)
                _set(layer.bias, self._weights.vector(f"{name}/{part}/bias", width))
                return layer

            return self._module(f"{name}/{part}", make)(value)

        query, key, value = (project(x, part) for part in ("query", "key", "value"))
        return project(self.attend(query, key, value, heads), "out")

    def attend(self, query: Value, keys: Value, values: Value, heads: int) -> Value:
        split = (x.view(*x.shape[:2], heads, -1).transpose(1, 2) for x in (query, keys, values))
        mixed = functional.scaled_dot_product_attention(*split)
        return mixed.transpose(1, 2).reshape(query.shape)

    def rows(self, x: Value, start: int, count: int) -> Value:
        return x[:, start : start + count]

    def join(self, values: list[Value]) -> Value:
        return torch.cat(values, 1)

    def layer_norm(self, x: Value, name: str) -> Value:
        def make() -> Any:
            width = x.shape[-1]
            layer = torch.nn.LayerNorm(width, eps=definitions.LAYER_NORM_EPSILON)
            _set(layer.weight, self._weights.vector(name + "/gamma", width, 0.8, 1.2))
            _set(layer.bias, self._weights.vector(name + "/beta", width))
            return layer

        return self._module(name, make)(x)


def _set(target: Any, value: Array) -> None:
    with torch.no_grad():
        target.copy_(torch.from_numpy(np.array(value)))


def _padded(x: Value, size: int, stride: int, pad: str | int) -> tuple[Value, int]:
    """Pads explicitly where PyTorch's convolution can't, because the two sides differ."""
    if isinstance(pad, int):
        return x, pad
    if pad == "valid":
        return x, 0
    sides = []
    for length in (x.shape[3], x.shape[2]):
        total = max((-(-length // stride) - 1) * stride + size - length, 0)
        sides += [total // 2, total - total // 2]
    if len({*sides}) == 1:
        return x, sides[0]
    return functional.pad(x, sides), 0


def to_edge(value: Array) -> Value:
    """Converts an input: images to the channels-last layout."""
    tensor = torch.from_numpy(value)
    return tensor.permute(0, 3, 1, 2) if tensor.ndim == 4 else tensor


def inference(model: Model) -> Callable[[Value], Value]:
    """Returns a function of the input."""
    ops = TorchOps(model.family)

    def call(x: Value) -> Value:
        return model.body(ops, x)

    with torch.no_grad():
        call(to_edge(definitions.inputs(model)[0]))  # creates the modules
    return call


def training(model: Model, compiler: Callable[..., Any]) -> Callable[[Value, Value], Value]:
    """Returns a step, (x, y) → loss. `compiler` applies to the loss; the optimizer is PyTorch's own fused one."""
    ops = TorchOps(model.family)
    with torch.no_grad():
        model.body(ops, to_edge(definitions.inputs(model)[0]))  # creates the modules; must not update batch norm yet
    ops.train()
    parameters = [parameter for parameter in ops.parameters() if parameter.requires_grad]
    optimizer: Any
    if model.optimizer == "adam":
        adam = definitions.ADAM
        betas = (adam["beta1"], adam["beta2"])
        optimizer = torch.optim.Adam(parameters, adam["rate"], betas, adam["epsilon"], fused=True)
    else:
        optimizer = torch.optim.SGD(parameters, definitions.SGD_RATE, fused=True)
    loss_of = compiler(lambda x, y: functional.cross_entropy(model.body(ops, x), y))

    def step(x: Value, y: Value) -> Value:
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        return loss

    return step
