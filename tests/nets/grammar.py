"""Draws random nets, each as the text of a Python function, from a number."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

PRELUDE = Path(__file__).with_name("prelude.py")

_ROWS = (1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 64, 100, 128, 257, 512)
_COLUMNS = (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 130, 250, 256, 257, 512, 1021)
_SMALL = (1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 31, 32, 33, 64)
_LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 16, 25, 27, 31, 32, 37, 64, 81, 100, 121, 128, 243, 250, 257, 512, 625, 1021)
_MOST = 80_000
"""Values in a tensor, so that a thousand nets take minutes and kernels still are large enough for threads to share."""

ACTIVATIONS = (
    "tf.nn.relu({})",
    "tf.nn.relu6({})",
    "tf.nn.leaky_relu({}, 0.1)",
    "n(tf.nn.elu({}))",
    "n(tf.nn.selu({}))",
    "n(tf.nn.gelu({}))",
    "n(tf.nn.gelu({}, True))",
    "n(tf.nn.swish({}))",
    "n(tf.tanh({}))",
    "n(tf.sigmoid({}))",
    "n(tf.nn.softplus({}))",
    "n(tf.exp(-tf.abs({})))",
    "n(tf.nn.softsign({}))",
    "n(tf.sin({}))",
    "tf.clip_by_value({}, -0.5, 0.7)",
    "tf.abs({})",
    "tf.nn.relu({0} + 3.0) * {0} * (1 / 6)",
)
MASKED = ("-1e9", "-1e30", "-np.inf", "-3.4028235e38", "-1e4")
"""What attention adds where it must not look."""
OPTIMIZERS = ("sgd", "momentum", "adam", "adamw", "rmsprop", "adagrad")


@dataclasses.dataclass(frozen=True)
class Input:
    """An input of a net."""

    name: str
    shape: tuple[int, ...]
    kind: str = "float"
    """`float`, `mask` (0 and 1), or `ids` (int32)."""
    bound: int = 0
    """Ids are below it."""


@dataclasses.dataclass(frozen=True)
class Net:
    """A random net."""

    number: int
    family: str
    """What kind of net it is."""
    inputs: tuple[Input, ...]
    outer: tuple[str, ...]
    """Statements before the function."""
    body: tuple[str, ...]
    """Statements of the function. The last one returns a list of tensors."""

    @property
    def text(self) -> str:
        """The function, as Python."""
        names = ", ".join(tensor.name for tensor in self.inputs)
        lines = [*self.outer, "", "", f"def net{self.number}({names}):", *(f"    {line}" for line in self.body), "", ""]
        return "\n".join(lines)


Shape = tuple[int, ...]


class _Writer:
    """The statements of one net while it is drawn."""

    def __init__(self, number: int) -> None:
        self.random = np.random.default_rng([3, number])
        self.number = number
        self.inputs: list[Input] = []
        self.outer: list[str] = []
        self.body: list[str] = []
        self._names = 0

    def pick(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def seed(self) -> str:
        self._names += 1
        return f"{self.number}{self._names:02}"

    def input(self, *shape: int, kind: str = "float", bound: int = 0) -> str:
        name = f"x{self.number}_{len(self.inputs)}"
        self.inputs.append(Input(name, shape, kind, bound))
        return name

    def put(self, expression: str) -> str:
        """Adds a statement, and returns the name of its value."""
        self._names += 1
        self.body.append(f"t{self._names} = {expression}")
        return f"t{self._names}"

    def weight(self, *shape: int, scale: float | None = None, low: float | None = None) -> str:
        """Returns a constant, made before the function, whose products keep the size of their operand."""
        size = float(scale if scale is not None else np.prod(shape[:-1] or (1,)) ** -0.5)
        self._names += 1
        name = f"w{self.number}_{self._names}"
        seed = [self.number, self._names]
        self.outer.append(f"{name} = weight({seed}, {shape}, {size:.6g}, {low})")
        return name

    def activation(self, value: str) -> str:
        return str(self.pick(ACTIVATIONS)).format(value) if self.chance(0.8) else value

    def shape(self, *, rank: int = 2, rows: Sequence[int] = _ROWS, columns: Sequence[int] = _COLUMNS) -> Shape:
        while True:
            shape = (*(int(self.pick(rows if axis else _ROWS)) for axis in range(rank - 1)), int(self.pick(columns)))
            if np.prod(shape) <= _MOST:
                return shape


def _dense(w: _Writer, value: str, shape: Shape, columns: int) -> tuple[str, Shape]:
    kernel = w.weight(shape[-1], columns)
    text = f"mm({value}, {kernel})"
    if w.chance(0.7):
        text += f" + {w.weight(columns, scale=0.3)}"
    return w.put(w.activation(f"({text})")), (*shape[:-1], columns)


def _norm(w: _Writer, value: str, shape: Shape) -> str:
    gamma, beta = w.weight(shape[-1], scale=1.0, low=0.5), w.weight(shape[-1], scale=0.3)
    return w.put(
        w.pick(
            (
                f"layer_norm({value}, {gamma}, {beta})",
                f"rms_norm({value}, {gamma})",
                f"moments_norm({value}, {gamma}, {beta})",
                f"{value} * n(tf.math.rsqrt(total(tf.square({value})) + 1e-6))",
                f"n(tf.math.l2_normalize({value}, -1))",
                f"{value} / (total(tf.abs({value})) + 1e-3)",
                f"layer_norm({value}, 1.0, 0.0, 1e-3)",
            )
        )
    )


def _rows(w: _Writer, value: str, shape: Shape) -> str:
    """Something that needs whole rows, and keeps the shape."""
    if w.chance(0.5):
        return _norm(w, value, shape)
    scale = float(w.pick((1.0, 0.125, 0.17677669, 1.7)))
    return w.put(
        w.pick(
            (
                f"softmax({value})",
                f"softmax({value} * {scale})",
                f"n(tf.nn.log_softmax({value}))",
                f"{value} - tf.reduce_max({value}, -1, keepdims=True)",
                f"{value} - n(tf.reduce_logsumexp({value}, -1, keepdims=True))",
                f"{value} - mean({value})",
                f"{value} * n(tf.sigmoid(mean({value})))",
                f"softmax({value}) * {value}",
            )
        )
    )


def _binary(w: _Writer, a: str, b: str) -> str:
    return w.put(
        w.pick(
            (
                f"{a} + {b}",
                f"{a} + {b} * 2.0",
                f"{a} * 0.5 - {b}",
                f"{a} * n(tf.sigmoid({b}))",
                f"n(tf.tanh({a})) * n(tf.sigmoid({b}))",
                f"tf.maximum({a}, {b})",
                f"n(tf.nn.swish({a})) * {b}",
                f"tf.where({b} > 0.0, {a}, {b})",
                f"tf.math.squared_difference({a}, {b})",
            )
        )
    )


def _layer(w: _Writer, value: str, shape: Shape, past: list[tuple[str, Shape]]) -> tuple[str, Shape]:
    """One layer of a chain over the last axis."""
    same = [name for name, old in past if old == shape and name != value]
    which = int(w.random.integers(12))
    if which < 3:
        return _rows(w, value, shape), shape
    if which < 5 and same:
        return _binary(w, value, w.pick(same)), shape
    if which < 7 and np.prod(shape[:-1]) * 600 < _MOST * 8:
        columns = int(w.pick(_COLUMNS)) if w.chance(0.6) else shape[-1]
        if np.prod(shape[:-1]) * columns <= _MOST:
            return _dense(w, value, shape, columns)
    if which == 7 and shape[-1] % 2 == 0 and shape[-1] > 2:
        half = shape[-1] // 2
        gate = w.pick(("n(tf.sigmoid({b}))", "n(tf.nn.swish({b}))", "n(tf.nn.gelu({b}))"))
        if w.chance(0.5):
            a, b = w.put(f"{value}[..., :{half}]"), w.put(f"{value}[..., {half}:]")
        else:
            a, b = w.put(f"{value}[..., ::2]"), w.put(f"{value}[..., 1::2]")
        return w.put(f"{a} * {gate.format(b=b)}"), (*shape[:-1], half)
    if which == 8:
        axis = int(w.random.integers(len(shape)))
        return w.put(
            w.pick(
                (
                    f"summed(tf.cumsum({value}, {axis}), lambda: tf.cumsum(tf.abs({value}), {axis}))",
                    f"tf.reverse({value}, [{axis}])",
                    f"tf.roll({value}, 1, {axis})",
                    f"{value} - total({value}, 0)",
                    f"{value} + mean({value}, 0) * {value}",
                    f"moments_norm({value}, 1.0, 0.1, axes={tuple(range(len(shape) - 1)) or (0,)})",
                    f"{value} * tf.reduce_max({value}, {axis}, keepdims=True)",
                )
            )
        ), shape
    if which == 9 and len(shape) == 2:
        return w.put(f"tf.transpose({value})"), shape[::-1]
    if which == 10 and same and shape[-1] * 2 <= 1024 and np.prod(shape) * 2 <= _MOST:
        return w.put(f"tf.concat([{value}, {w.pick(same)}], -1)"), (*shape[:-1], 2 * shape[-1])
    scale, shift = w.weight(shape[-1], scale=1.0, low=0.5), w.weight(shape[-1], scale=0.3)
    return w.put(w.activation(f"({value} * {scale} + {shift})")), shape


def _outputs(w: _Writer, values: Sequence[str]) -> None:
    """Returns the last value, and sometimes one that is otherwise private to a fusion."""
    last = values[-1]
    results = [last]
    if w.chance(0.4):
        results.append(w.pick(values))
    if w.chance(0.2):
        results.append(f"tf.reduce_max({last}, -1)")
    if w.chance(0.2):
        results.append(f"mean({last}, 0, False)")
    w.body.append(f"return [{', '.join(dict.fromkeys(results))}]")


def _chain(w: _Writer) -> None:
    shape = w.shape(rank=int(w.pick((2, 2, 2, 3))))
    past = [(w.input(*shape), shape) for _ in range(int(w.pick((1, 1, 2))))]
    value = past[0][0]
    if len(past) > 1:
        value = _binary(w, past[0][0], past[1][0])
    past.append((value, shape))
    for _ in range(int(w.random.integers(2, 9))):
        value, shape = _layer(w, value, shape, past)
        past.append((value, shape))
    _outputs(w, [name for name, _ in past if name.startswith("t")] or [value])


def _norms(w: _Writer) -> None:
    """Chains of norms with residual sums, large enough to be calls of their own."""
    columns = int(w.pick((7, 8, 9, 16, 31, 33, 63, 64, 65, 66, 100, 127, 128, 130, 257, 1021, 1025)))
    shape = (int(np.clip(w.pick((30_000, 34_000, 50_000)) // columns, 1, 2000)), columns)
    inputs = [w.input(*shape), w.input(*shape)]
    value, values = inputs[0], list[str]()
    for _ in range(int(w.random.integers(1, 5))):
        value = _rows(w, value, shape)
        values.append(value)
        if w.chance(0.7):
            value = _binary(w, value, w.pick([*inputs, *values]))
            values.append(value)
        if w.chance(0.3):
            value = w.put(w.activation(value))
            values.append(value)
    _outputs(w, values)


def _attention(w: _Writer) -> None:
    batch, count = int(w.pick((1, 2, 3))), int(w.pick((1, 2, 4)))
    size = int(w.pick((4, 7, 8, 16, 17, 32)))
    width = count * size
    queries, keys = int(w.pick((1, 2, 5, 16, 33, 64))), int(w.pick((1, 3, 8, 17, 64, 100)))
    x = w.input(batch, queries, width)
    cached = queries == 1 and w.chance(0.7)
    if cached:  # One new row after a cache.
        caches = [w.input(batch, count, keys, size) for _ in range(2)]
    memory = x if w.chance(0.4) or cached else w.input(batch, keys, width)
    keys = keys + 1 if cached else queries if memory == x else keys
    source = _norm(w, x, (batch, queries, width)) if w.chance(0.5) else x
    memory = source if memory == x else memory

    def projected(value: str) -> str:
        product = f"mm({value}, {w.weight(width, width)})"
        if w.chance(0.5):
            product += f" + {w.weight(width, scale=0.2)}"
        return w.put(f"heads({product}, {count})")

    q, k, v = projected(source), projected(memory), projected(memory)
    if cached:
        k, v = (w.put(f"tf.concat([{cache}, {new}], 2)") for cache, new in zip(caches, (k, v), strict=True))
    scale = float(size**-0.5)
    how = w.pick(("query", "scores", "after mask", "divide"))
    if how == "query":
        q = w.put(f"{q} * {scale!r}")
    scores = f"mm({q}, {k}, transpose_b=True)"
    if how == "scores":
        scores += f" * {scale!r}"
    elif how == "divide":
        scores = f"({scores}) / {size**0.5!r}"
    masked = w.pick(MASKED)
    kind = w.pick(("none", "added", "where", "causal", "fed", "times"))
    if kind in ("added", "where", "times"):
        mask = w.input(batch, keys, kind="mask")
        scores = {
            "added": f"{scores} + (1.0 - {mask}[:, None, None, :]) * {masked if 'inf' not in masked else '-1e30'}",
            "where": f"tf.where({mask}[:, None, None, :] > 0.5, {scores}, {masked})",
            "times": f"({scores}) * {mask}[:, None, None, :]",
        }[kind]
    elif kind == "causal":
        scores = f"tf.where(causal({queries}, {keys}) > 0.5, {scores}, {masked})"
    elif kind == "fed":
        scores = f"{scores} + {w.input(batch, 1, queries, keys)}"
    if how == "after mask":
        scores = f"({scores}) * {scale!r}"
    weights = w.put(f"softmax({scores})")
    value = w.put(f"joined(mm({weights}, {v}))")
    values = [weights, value]
    if w.chance(0.7):
        value = w.put(f"{x} + mm({value}, {w.weight(width, width)}) + {w.weight(width, scale=0.2)}")
        values.append(value)
        value = _norm(w, value, (batch, queries, width))
        values.append(value)
        if w.chance(0.5):
            inner, shape = _dense(w, value, (batch, queries, width), int(w.pick(_SMALL)) * 2)
            outer, _ = _dense(w, inner, shape, width)
            value = w.put(f"{value} + {outer}")
            values.append(value)
    _outputs(w, values)


def _images(w: _Writer) -> None:
    """Convolutions with batch norm, residual sums, squeeze and excitation, and pooling."""
    batch, side, other = int(w.pick((1, 2, 3))), int(w.pick((1, 4, 7, 8, 11, 16))), int(w.pick((1, 5, 8, 12)))
    channels = int(w.pick((1, 3, 4, 8, 16, 17, 24)))
    value, values = w.input(batch, side, other, channels), list[str]()
    for _ in range(int(w.random.integers(1, 5))):
        before, size = value, (side, other, channels)
        kind = w.pick(("conv", "conv", "conv", "conv3", "conv3", "depthwise", "pool", "gate", "wide"))
        padding = w.pick(("SAME", "VALID")) if min(side, other) >= 5 else "SAME"
        if kind in ("conv", "conv3", "wide"):
            filters = channels if w.chance(0.4) else int(w.pick((1, 2, 3, 5, 8, 16, 17, 32, 48)))
            k = 3 if kind == "conv3" else int(w.pick((1, 2, 3, 5)))
            stride = 1 if kind == "conv3" or w.chance(0.6) else 2
            dilation = 2 if kind == "wide" and stride == 1 and padding == "SAME" else 1
            kernel = w.weight(k, k, channels, filters)
            text = f"conv2d({value}, {kernel}, strides={stride}, padding={padding!r}, dilations={dilation})"
            text = (
                f"inference_norm({text}, {w.seed()})" if w.chance(0.5) else f"{text} + {w.weight(filters, scale=0.2)}"
            )
            channels = filters
            reach = (k - 1) * dilation
            side, other = (
                (-(-side // stride), -(-other // stride))
                if padding == "SAME"
                else ((side - reach - 1) // stride + 1, (other - reach - 1) // stride + 1)
            )
            value = w.put(w.activation(f"({text})"))
        elif kind == "depthwise":
            times, k = int(w.pick((1, 1, 2))), int(w.pick((2, 3, 5)))
            kernel = w.weight(k, k, channels, times, scale=1 / k)
            text = f"depthwise({value}, {kernel}, strides=[1, 1, 1, 1], padding='SAME')"
            channels *= times
            value = w.put(w.activation(f"inference_norm({text}, {w.seed()})"))
        elif kind == "pool" and min(side, other) > 2:
            k, stride = int(w.pick((2, 3))), int(w.pick((1, 2)))
            text = f"tf.nn.max_pool2d({value}, {k}, {stride}, 'SAME')"
            if w.chance(0.4):
                text = (
                    f"summed(tf.nn.avg_pool2d({value}, {k}, {stride}, 'SAME'), "
                    f"lambda: tf.nn.avg_pool2d(tf.abs({value}), {k}, {stride}, 'SAME'))"
                )
            side, other = -(-side // stride), -(-other // stride)
            value = w.put(text)
        else:
            squeezed = w.put(f"mean({value}, [1, 2])")
            inner, shape = _dense(w, squeezed, (batch, 1, 1, channels), max(1, channels // 2))
            gate = f"mm({inner}, {w.weight(shape[-1], channels)})"
            value = w.put(f"{value} * n(tf.sigmoid({gate}))")
        if size == (side, other, channels) and w.chance(0.5):
            value = w.put(f"tf.nn.relu({value} + {before})" if w.chance(0.5) else f"{value} + {before}")
        values.append(value)
    if w.chance(0.4):
        value = w.put(f"mean({value}, [1, 2], False)")
        values.append(_dense(w, value, (batch, channels), int(w.pick(_SMALL)))[0])
    _outputs(w, values)


def _signals(w: _Writer) -> None:
    """Dilated stacks of Conv1D with gates and skips."""
    batch, time, channels = int(w.pick((1, 2, 3))), int(w.pick((3, 8, 16, 33, 64))), int(w.pick((1, 4, 8, 16, 17)))
    value, values, skips = w.input(batch, time, channels), list[str](), list[str]()
    for i in range(int(w.random.integers(1, 5))):
        taps, dilation = int(w.pick((1, 2, 3, 5))), min(2**i, max(1, time // 3))
        k = w.weight(taps, channels, 2 * channels)
        if w.chance(0.6):  # causal
            pad = (taps - 1) * dilation
            text = f"conv1d(tf.pad({value}, [[0, 0], [{pad}, 0], [0, 0]]), {k}, stride=1, padding='VALID', dilations={dilation})"
        else:
            text = f"conv1d({value}, {k}, stride=1, padding='SAME', dilations={dilation})"
        z = w.put(f"{text} + {w.weight(2 * channels, scale=0.2)}")
        gated = w.put(f"n(tf.tanh({z}[..., :{channels}])) * n(tf.sigmoid({z}[..., {channels}:]))")
        skips.append(gated)
        value = w.put(f"{value} + mm({gated}, {w.weight(channels, channels)})") if w.chance(0.8) else gated
        values.append(value)
    values.append(w.put("tf.nn.relu(" + " + ".join(skips) + ")"))
    _outputs(w, values)


def _recurrent(w: _Writer) -> None:
    batch, time = int(w.pick((1, 2, 5))), int(w.pick((1, 3, 8, 9, 12)))
    depth, width = int(w.pick((1, 4, 8, 17, 32))), int(w.pick((1, 4, 8, 16, 24, 33)))
    x = w.input(batch, time, depth)
    mask = w.input(batch, time, kind="mask") if w.chance(0.5) else "None"
    kind = w.pick(("lstm", "gru", "rnn"))
    w.body.append(f"a, h = lstm({x}, {mask}, {w.seed()}, {width}, {kind!r})")
    values = ["a", "h"]
    if w.chance(0.4):
        w.body.append(f"b, h2 = lstm(tf.reverse(a, [1]), None, {w.seed()}, {width}, {kind!r})")
        values += ["b", "h2"]
    if w.chance(0.4):
        w.body.append(f"g = tf.gradients(tf.reduce_sum(tf.square({values[-1]})), {x})[0]")
        values += ["g"]
    w.body.append(f"return [{', '.join(values[-2:])}]")


def _dense_net(w: _Writer) -> None:
    """Few rows by constant matrices, small ones and one of more than 1 MB."""
    rows, columns = int(w.pick((1, 1, 1, 2, 3, 5))), int(w.pick((*_SMALL, 100, 257, 700)))
    shape: Shape = (rows, columns)
    value, values = w.input(*shape), list[str]()
    for _ in range(int(w.random.integers(1, 6))):
        value, shape = _dense(w, value, shape, int(w.pick((*_SMALL, 65, 100, 390, 700))))
        values.append(value)
    _outputs(w, values)


def _gather(w: _Writer) -> None:
    """Embeddings with positions, pooled with a mask."""
    batch, time, width, vocabulary = int(w.pick((1, 3))), int(w.pick((1, 5, 16))), int(w.pick(_SMALL)), 50
    ids = w.input(batch, time, kind="ids", bound=vocabulary)
    mask = w.input(batch, time, kind="mask")
    e = w.put(f"tf.gather({w.weight(vocabulary, width, scale=1.0)}, {ids}) + {w.weight(time, width, scale=0.3)}")
    pooled = w.put(f"total({e} * {mask}[..., None], 1, False) / tf.maximum(total({mask}, 1), 1.0)")
    last = w.put(f"tf.cast(tf.reduce_sum({mask}, 1), tf.int32) - 1")
    tail = w.put(f"tf.gather({e}, tf.maximum({last}, 0), batch_dims=1)")
    value, _ = _dense(w, f"tf.concat([{pooled}, {tail}], -1)", (batch, 2 * width), int(w.pick(_SMALL)))
    _outputs(w, [e, pooled, value])


def _training(w: _Writer) -> None:
    """A step of an optimizer, with clipping, of a dense net, a convolutional one, or one with norms."""
    number, batch = w.number, int(w.pick((1, 2, 7, 16, 64)))
    images = w.chance(0.4)
    sizes = [int(w.pick((1, 3, 8, 16, 17, 33, 64))) for _ in range(int(w.random.integers(2, 4)))]
    seeds = iter(range(100))
    names = list[str]()

    def variable(*shape: int, scale: float | None = None) -> str:
        index = next(seeds)
        size = float(scale if scale is not None else np.prod(shape[:-1] or (1,)) ** -0.5)
        w.outer.append(f"v{number}_{index} = variable([{number}, {index}], {shape}, {size:.6g})")
        names.append(f"v{number}_{index}")
        return names[-1]

    if images:
        side, channels = int(w.pick((4, 7, 8, 12))), int(w.pick((1, 3, 8)))
        batch = min(batch, 16)
        value = w.input(batch, side, side, channels)
        for filters in sizes[:-1]:
            k, stride = int(w.pick((1, 3, 5))), int(w.pick((1, 1, 2)))
            kernel = variable(k, k, channels, filters)
            text = f"conv2d({value}, {kernel}, strides={stride}, padding='SAME')"
            if w.chance(0.5):
                text = f"moments_norm({text}, {variable(filters, scale=1.0)}, {variable(filters, scale=0.2)}, axes=(0, 1, 2))"
            value = w.put(w.pick(("tf.nn.relu({})", "n(tf.tanh({}))", "n(tf.nn.swish({}))")).format(text))
            side, channels = -(-side // stride), filters
            if side > 2 and w.chance(0.3):
                value = w.put(f"tf.nn.max_pool2d({value}, 2, 2, 'SAME')")
                side = -(-side // 2)
        value = w.put(f"tf.reshape({value}, [{batch}, {side * side * channels}])")
        depth = side * side * channels
    else:
        depth = int(w.pick((1, 5, 16, 33, 100)))
        value = w.input(batch, depth)
        for size in sizes[:-1]:
            text = f"mm({value}, {variable(depth, size)}) + {variable(size, scale=0.2)}"
            if w.chance(0.4):
                text = f"layer_norm({text}, {variable(size, scale=1.0)}, {variable(size, scale=0.2)})"
            value = w.put(w.pick(("tf.nn.relu({})", "n(tf.tanh({}))", "n(tf.nn.gelu({}))", "{}")).format(f"({text})"))
            depth = size
    logits = w.put(f"mm({value}, {variable(depth, sizes[-1])}) + {variable(sizes[-1], scale=0.2)}")
    if w.chance(0.5):
        labels = w.input(batch, kind="ids", bound=sizes[-1])
        loss = f"n(tf.nn.sparse_softmax_cross_entropy_with_logits({labels}, {logits}))"
    else:
        loss = f"tf.square({logits} - {w.input(batch, sizes[-1])})"
    loss = w.put(f"mean({loss}, None, False)")
    variables = f"[{', '.join(names)}]"
    w.outer.append(f"s{number} = slots({variables}, {number})")
    w.body.append(f"grads = clip(tf.gradients({loss}, {variables}), {w.pick(('no', 'no', 'norm', 'value'))!r})")
    w.body.append(f"update({variables}, s{number}, grads, {w.pick(OPTIMIZERS)!r})")
    w.body.append(f"return [{loss}, *[v.read_value() for v in {variables}]]")


def _algebra(w: _Writer) -> None:
    """Decompositions, linear systems, and Fourier transforms, in forms that don't depend on signs and the order of vectors."""
    batch, size = int(w.pick((1, 2, 5, 40))), int(w.pick((1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 33)))
    shape = (batch, size, size)
    value, values = w.input(*shape), list[str]()
    for _ in range(int(w.random.integers(1, 4))):
        turn, other = int(w.random.integers(size)), w.pick([value, *values])
        how = w.pick(("", ", adjoint=True"))
        few = int(w.random.integers(1, size + 1))
        value = w.put(
            w.pick(
                (
                    f"factor({value})",
                    f"triangular({value}, {other}{how})",
                    f"solved({value}, {other}, {turn}{how})",
                    f"tf.reduce_max(solved({value}, {other}[..., :{few}], {turn}), -1, True) + {value}",
                    f"inverse({value}, {turn})",
                    f"scaled({value}, {turn})",
                    f"orthogonal({value}, {turn})",
                    f"of_eigenvalues({value})",
                    f"of_singular_values({value})",
                )
            )
        )
        value = w.put(w.pick(("{}", "n(tf.tanh({}))", "tf.nn.relu({})", "tf.abs({})")).format(value))
        values.append(value)
    rows, length = int(w.pick((1, 3, 16, 33))), int(w.pick(_LENGTHS))
    signal = w.input(rows, length)
    if w.chance(0.5):
        signal = w.put(f"filtered({signal}, {w.weight(length, scale=1.0)})")
        values.append(signal)
    values.append(w.put(f"spectrum({signal}, {w.pick((1, 1, 2))})"))
    w.body.append(f"return [{', '.join(values[-3:])}]")


FAMILIES: dict[str, Callable[[_Writer], None]] = {
    "chain": _chain,
    "norms": _norms,
    "attention": _attention,
    "images": _images,
    "signals": _signals,
    "recurrent": _recurrent,
    "dense": _dense_net,
    "embedding": _gather,
    "training": _training,
}
"""Kinds of nets. Net `i` is of kind `i` modulo their number."""
ALGEBRA = 1_000_000
"""The number from which on nets are linear algebra and Fourier transforms, so that others keep theirs."""


def net(number: int) -> Net:
    """Draws the net of a number."""
    family, draw = ("algebra", _algebra) if number >= ALGEBRA else [*FAMILIES.items()][number % len(FAMILIES)]
    writer = _Writer(number)
    draw(writer)
    return Net(number, family, tuple(writer.inputs), tuple(writer.outer), tuple(writer.body))


def model_text(nets: Sequence[Net]) -> str:
    """Returns a file with one model of all nets, whose outputs are `n{net}_{output}`."""
    dtypes = {"float": "D", "mask": "D", "ids": "tf.int32"}
    specs = [
        f"    tf.TensorSpec({tensor.shape}, {dtypes[tensor.kind]}, {tensor.name!r}),"
        for net in nets
        for tensor in net.inputs
    ]
    names = ", ".join(tensor.name for net in nets for tensor in net.inputs)
    calls = [
        f"    result |= {{f'n{net.number}_{{i}}': tf.identity(t) for i, t in enumerate(net{net.number}("
        f"{', '.join(tensor.name for tensor in net.inputs)}))}}"
        for net in nets
    ]
    return "\n".join(
        [
            PRELUDE.read_text(),
            *(net.text for net in nets),
            "@tf.function(autograph=False, input_signature=[",
            *specs,
            "])",
            f"def model({names}):",
            "    result = {}",
            *calls,
            "    return result",
            "",
        ]
    )
