"""Counts the models' arithmetic: an `Ops` that works on shapes alone.

    python -m benchmarks.adapters.work_ops fc lstm_train …

prints JSON with each model's floating-point operations per call. A multiply-add counts as two. Only products and convolutions
count. A training step does each of them two more times, for the gradients of its weights and of its input, unless that input is
the model's own.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys

from benchmarks import definitions
from benchmarks.definitions import Model


@dataclasses.dataclass(frozen=True)
class Shape:
    """A tensor's sizes."""

    sizes: tuple[int, ...]
    is_input: bool = False
    """Whether it is the model's input or a view of it, which needs no gradient."""


class WorkOps:
    """Adds up operations."""

    def __init__(self, *, training: bool) -> None:
        self._training = training
        self.flops = 0

    def _product(self, x: Shape, multiply_adds: int) -> None:
        times = 1 if not self._training else 2 if x.is_input else 3
        self.flops += 2 * multiply_adds * times

    def dense(self, x: Shape, units: int, name: str, activation: str = "") -> Shape:
        del name, activation
        self._product(x, math.prod(x.sizes) * units)
        return Shape((*x.sizes[:-1], units))

    def conv(
        self,
        x: Shape,
        filters: int,
        size: int,
        name: str,
        *,
        stride: int = 1,
        pad: str | int = "valid",
        bias: bool = True,
    ) -> Shape:
        del name, bias
        out = _convolved(x, size, stride, pad)
        self._product(x, math.prod(out) * x.sizes[0] * filters * size * size * x.sizes[-1])
        return Shape((x.sizes[0], *out, filters))

    def depthwise(self, x: Shape, size: int, name: str, *, stride: int = 1) -> Shape:
        del name
        out = _convolved(x, size, stride, "same")
        self._product(x, math.prod(out) * x.sizes[0] * size * size * x.sizes[-1])
        return Shape((x.sizes[0], *out, x.sizes[-1]))

    def batch_norm(self, x: Shape, name: str) -> Shape:
        del name
        return Shape(x.sizes)

    def activation(self, x: Shape, kind: str) -> Shape:
        del kind
        return Shape(x.sizes)

    def add(self, x: Shape, y: Shape) -> Shape:
        del y
        return Shape(x.sizes)

    def gate(self, x: Shape, factors: Shape) -> Shape:
        del factors
        return Shape(x.sizes)

    def concat(self, x: Shape, y: Shape) -> Shape:
        return Shape((*x.sizes[:-1], x.sizes[-1] + y.sizes[-1]))

    def upsample(self, x: Shape) -> Shape:
        batch, height, width, channels = x.sizes
        return Shape((batch, 2 * height, 2 * width, channels))

    def max_pool(self, x: Shape, size: int, stride: int, pad: int) -> Shape:
        return Shape((x.sizes[0], *_convolved(x, size, stride, pad), x.sizes[-1]))

    def spatial_mean(self, x: Shape) -> Shape:
        return Shape((x.sizes[0], x.sizes[-1]))

    def flatten(self, x: Shape) -> Shape:
        return Shape((x.sizes[0], math.prod(x.sizes[1:])), x.is_input)

    def lstm(self, x: Shape, units: int, name: str) -> Shape:
        del name
        batch, steps, features = x.sizes
        self._product(x, batch * steps * features * 4 * units)
        self._product(Shape((batch, units)), batch * steps * units * 4 * units)
        return Shape((batch, units))

    def gru(self, x: Shape, units: int, name: str) -> Shape:
        del name
        batch, steps, features = x.sizes
        self._product(x, batch * steps * features * 3 * units)
        self._product(Shape((batch, units)), batch * steps * units * 3 * units)
        return Shape((batch, units))

    def causal_conv(self, x: Shape, filters: int, size: int, name: str, *, dilation: int) -> Shape:
        del name, dilation
        self._product(x, math.prod(x.sizes) * filters * size)
        return Shape((*x.sizes[:-1], filters))

    def interact(self, x: Shape) -> Shape:
        batch, rows, width = x.sizes
        self._product(x, batch * rows * rows * width)
        return Shape((batch, rows * rows))

    def row_mean(self, x: Shape) -> Shape:
        return Shape((x.sizes[0], x.sizes[2]))

    def embed(self, tokens: Shape, vocabulary: int, width: int, name: str) -> Shape:
        del vocabulary, name
        return Shape((*tokens.sizes, width))

    def attention(self, x: Shape, heads: int, name: str) -> Shape:
        del heads, name
        batch, tokens, width = x.sizes
        self._product(x, 4 * batch * tokens * width * width)
        self._product(Shape(x.sizes), 2 * batch * tokens * tokens * width)
        return Shape(x.sizes)

    def attend(self, query: Shape, keys: Shape, values: Shape, heads: int) -> Shape:
        del values, heads
        self._product(query, 2 * math.prod(query.sizes) * keys.sizes[1])
        return query

    def rows(self, x: Shape, start: int, count: int) -> Shape:
        del start
        return Shape((x.sizes[0], count, x.sizes[2]), x.is_input)

    def join(self, values: list[Shape]) -> Shape:
        batch, _, width = values[0].sizes
        return Shape((batch, sum(value.sizes[1] for value in values), width))

    def layer_norm(self, x: Shape, name: str) -> Shape:
        del name
        return Shape(x.sizes)


def _convolved(x: Shape, size: int, stride: int, pad: str | int) -> tuple[int, int]:
    """Returns the height and width of a convolution's result."""

    def along(length: int) -> int:
        if pad == "same":
            return -(-length // stride)
        return (length + (2 * pad if isinstance(pad, int) else 0) - size) // stride + 1

    return along(x.sizes[1]), along(x.sizes[2])


def flops(model: Model) -> int:
    """Returns the floating-point operations of a call."""
    ops = WorkOps(training=bool(model.optimizer))
    model.body(ops, Shape((model.batch, *model.shape), is_input=True))
    return ops.flops


if __name__ == "__main__":
    print(json.dumps({name: flops(definitions.MODELS[name]) for name in sys.argv[1:]}))
