"""Random graphs before and after each pass on graphs: what TensorFlow computes of them stays the same.

A pass's pattern occurs in each graph, in random shapes and orders, with inputs of all kinds, and with other readers of what the
pass replaces, or as an output itself. random_loops_test.py has loops. `TFAOT_DRAWS=10` in the environment draws ten times as
many graphs.
"""

from __future__ import annotations

import functools
import itertools
import os
import unittest
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.compile.passes.graphs import Array, Build, PassTest
from tests.compile.passes.recurrent import gradients, scan
from tests.nets.campaign import KINDS
from tfaot.export.sources.xla_context import xla_context

DRAWS = float(os.environ.get("TFAOT_DRAWS", "1"))


class Draw:
    """Random choices, and what else a graph computes."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = self.pick("float32", "float32", "float64")
        self.kind = self.pick(*KINDS)
        self.jit = False
        """Whether XLA runs the graphs."""
        self.fetches: list[Any] = []

    def pick(self, *options: Any) -> Any:
        """Returns one of the options."""
        return options[self.rng.integers(len(options))]

    def chance(self, share: float) -> bool:
        """Returns whether something happens."""
        return bool(self.rng.random() < share)

    def below(self, high: int, low: int = 0) -> int:
        """Returns an integer."""
        return int(self.rng.integers(low, high))

    def fed(self, *shape: int) -> Array:
        """Returns values of the graph's kind."""
        with np.errstate(over="ignore"):
            return np.asarray(KINDS[self.kind](self.rng, shape), np.float32).astype(self.dtype)

    def normal(self, *shape: int) -> Array:
        """Returns weights."""
        return self.rng.standard_normal(shape).astype(self.dtype)

    def seen(self, value: Any, share: float = 0.12) -> Any:
        """Returns a value that something else may read, or that may be an output."""
        if self.chance(share):
            self.fetches.append(value if self.chance(0.5) else value * 2)
        return value

    def built(self, build: Build, *inputs: Any) -> list[Any]:
        """Returns all fetches. Some operations may wait for a variable to be written, and what reads it waits for all results."""
        import tensorflow as tf

        result = build(*inputs)
        self.fetches = [*(result if isinstance(result, list) else [result]), *self.fetches]
        if self.jit or self.chance(0.5):
            return self.fetches
        operations = tf.compat.v1.get_default_graph().get_operations()
        variable = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[])
        waiting = [each for each in operations if each.type != "Placeholder" and self.chance(0.05)]
        for each in [*waiting, self.fetches[0].op]:
            each._add_control_input(tf.raw_ops.AssignVariableOp(resource=variable, value=1.0))
        with tf.control_dependencies(self.fetches):
            return [*self.fetches, tf.raw_ops.ReadVariableOp(resource=variable, dtype=tf.float32)]


def conv1d(d: Draw) -> tuple[Build, list[Array]]:
    """Draws a Conv1D with dilation as TensorFlow writes it, and with a Pad before it."""
    import tensorflow as tf

    taps, dilation, size = d.below(5, 2), d.pick(1, 2, 3, 5), d.below(20, 12)
    before, after, crops = d.below(5), d.below(3), [d.below(2), d.below(2)]
    x, kernel = d.fed(d.pick(1, 2), size, 3), d.normal(1, taps, 3, d.pick(1, 4))

    def build(x: Any) -> Any:
        if d.chance(0.7):
            padded = [d.pick([0, 0], [0, 0], [0, 0], [0, 1]), [before, after], [0, 0]]
            x = d.seen(tf.pad(x, padded, constant_values=d.pick(0, 0, 1)))
        first = d.below(3)
        last = -(x.shape[1] + first) % dilation + dilation * (taps - 1)
        y = d.seen(tf.space_to_batch_nd(x, [dilation], [[first, last]])) if dilation > 1 else x
        y = tf.nn.conv2d(d.seen(tf.expand_dims(y, 1)), kernel, 1 + d.chance(0.1), "SAME" if d.chance(0.2) else "VALID")
        y = d.seen(tf.squeeze(d.seen(y), [1]))
        return tf.raw_ops.BatchToSpaceND(input=y, block_shape=[dilation], crops=[crops]) if dilation > 1 else y

    return build, [x]


def fold_batch_norm(d: Draw) -> tuple[Build, list[Array]]:
    """Draws a product or convolution, and arithmetic with constants after it."""
    import tensorflow as tf

    d.kind = d.pick("normal", d.kind, d.kind)
    channels, form = d.below(6, 1), d.pick("conv", "depthwise", "matmul", "columns")
    x = d.fed(3, 4) if form in ("matmul", "columns") else d.fed(1, 5, 4, 3)
    extreme = d.kind in ("normal", "zeros", "equal") and d.chance(0.6)

    def factor(*shape: int) -> Array:
        values = d.rng.uniform(0.5, 2, shape).astype(d.dtype)
        if extreme:
            values.flat[0] = d.pick(0, 1e-30, 1e30, 1e-38, np.inf, np.nan)
        return values

    def build(x: Any) -> Any:
        count = channels
        if form == "conv":
            kernel = d.seen(tf.identity(d.normal(3, 2, 3, channels)))
            y = tf.nn.conv2d(x, kernel, d.pick(1, 2), d.pick("SAME", "VALID"))
        elif form == "depthwise":
            count = 3 * d.pick(1, 2)
            kernel = d.seen(tf.constant(d.normal(2, 3, 3, count // 3)))
            y = tf.nn.depthwise_conv2d(x, kernel, [1, 1, 1, 1], "SAME")
        else:
            turned = form == "columns"
            kernel = d.seen(tf.constant(d.normal(channels, 4) if turned else d.normal(4, channels)))
            y = tf.matmul(x, kernel, transpose_b=turned)
        for _ in range(d.below(6, 1)):
            y = d.seen(y)
            steps: list[Callable[[], Any]] = [
                lambda y=y: tf.nn.bias_add(y, d.normal(count)),
                lambda y=y: y * factor(count),
                lambda y=y: factor(1) * y,
                lambda y=y: y / factor(*[1] * d.below(2), count),
                lambda y=y: y - d.normal(count),
                lambda y=y: d.normal() - y,
                lambda y=y: tf.identity(y),
                lambda y=y: tf.nn.relu(y),
                lambda y=y: y * factor(*y.shape[-2:]),
                lambda y=y: tf.reshape(y, [-1, y.shape[-1]]) if d.chance(0.7) else tf.reshape(y, [-1]),
            ]
            if y.shape.rank == 4 and d.dtype == "float32":
                values = d.normal(3, count)
                steps += 4 * [
                    lambda y=y, v=values: tf.raw_ops.FusedBatchNormV3(
                        x=y, scale=factor(count), offset=v[0], mean=v[1], variance=np.abs(v[2]) + 0.5,
                        epsilon=1e-3, is_training=d.chance(0.1),
                    ).y
                ]  # fmt: skip
            y = d.pick(*(steps if y.shape.rank > 1 else steps[5:8]))()
        return y

    return build, [x]


def erfc(d: Draw) -> tuple[Build, list[Array]]:
    """Draws complementary error functions, alone and in GELU."""
    import tensorflow as tf

    def build(x: Any) -> Any:
        y = d.seen(tf.math.erfc(d.seen(x * d.pick(1, 3, -1))), 0.3)
        return d.pick(y, 0.5 * x * y, tf.nn.gelu(x), y @ tf.ones([y.shape[-1], 2], y.dtype))

    return build, [d.fed(d.below(5, 1), d.below(70, 1))]


def reduced(d: Draw, shape: list[int], axes: list[int]) -> tuple[Build, list[Array]]:
    """Draws a sum or a mean, and what else reads its operand and its result."""
    import tensorflow as tf

    axes = [axis - len(shape) if d.chance(0.5) else axis for axis in axes]

    def build(x: Any) -> Any:
        x = d.seen(d.pick(x + 0, tf.exp(-tf.abs(x)), x * 3))
        if len(axes) == len(shape) - 1 and axes[0] in (0, -len(shape)) and d.chance(0.2):
            y = tf.nn.bias_add(x, x[(0,) * len(axes)])
            return tf.raw_ops.BiasAddGrad(out_backprop=y)
        y = d.seen(d.pick(tf.reduce_sum, tf.reduce_mean)(x, axes[0] if len(axes) == 1 else axes, d.chance(0.5)))
        return d.pick(y * 3, tf.nn.relu(y), x * y if y.shape.rank == x.shape.rank else y)

    return build, [d.fed(*shape)]


def row_sums(d: Draw) -> tuple[Build, list[Array]]:
    """Draws sums along rows."""
    rank = d.below(4, 1)
    shape = [d.below(5, 1) for _ in range(rank - 1)] + [d.pick(32, 33, 37, 64, 96, 100, 768, 960, 1024, 1025)]
    return reduced(d, shape, [rank - 1] if d.chance(0.8) else [0])


def reduce_as_matmul(d: Draw) -> tuple[Build, list[Array]]:
    """Draws sums of channels."""
    shape = [d.below(5, 1), *(d.below(14, 2) for _ in range(d.below(3, 1))), d.pick(7, 8, 9, 12, 24)]
    if d.chance(0.5):
        shape[0] = d.below(40, 10)
    return reduced(d, shape, [*range(d.pick(0, 1, 1), len(shape) - d.pick(0, 1, 1, 1, 2))] or [0])


def gemv_layout(d: Draw) -> tuple[Build, list[Array]]:
    """Draws products of a row with constants, which other products may share."""
    import tensorflow as tf

    sizes = [d.pick(2, 10, 64, 64, 65) for _ in range(3)]

    def build(x: Any) -> Any:
        for depth, columns in itertools.pairwise(sizes):
            turned = d.chance(0.2)
            matrix = d.seen(tf.constant(d.normal(columns, depth) if turned else d.normal(depth, columns)))
            x = d.seen(tf.matmul(d.seen(x + 0), matrix, transpose_b=turned))
            x = d.pick(tf.nn.relu, tf.identity, tf.tanh)(x)
        return x

    return build, [d.fed(d.pick(1, 1, 1, 2), sizes[0])]


def split_kv_matmul(d: Draw) -> tuple[Build, list[Array]]:
    """Draws products of a query for each head with a concatenation, in every order of the cache."""
    import tensorflow as tf

    heads, width, rows = d.pick(2, 4, 5), d.pick(32, 33, 64), d.below(140, 60)
    place = d.pick(1, rows // 2, rows - 1)
    equation = d.pick("bthd,bshd->bhts", "bhts,bshd->bthd", "bshd,bthd->bsht", "matmul", "columns", "mixed")
    queries = d.pick(1, 1, 1, 2)
    query = (1, heads, queries, rows) if equation in ("bhts,bshd->bthd", "mixed") else (1, queries, heads, width)

    def build(query: Any, keys: Any) -> Any:
        keys = d.seen(keys + 0)
        parts = [keys[:, :place], keys[:, place:]]
        keys = d.seen(tf.concat(parts if d.chance(0.8) else parts[::-1], 1))
        keys = keys if d.chance(0.5) else tf.reshape(tf.reshape(keys, [1, rows, -1]), [1, rows, heads, width])
        if "," in equation:
            sides = (keys, query) if equation.startswith("bshd") else (query, keys)
            return d.seen(tf.einsum(equation, *sides)) * 2
        keys = d.seen(tf.transpose(keys, [0, 2, 1, 3]))
        if equation == "mixed":
            return tf.transpose(tf.matmul(query, keys), [0, 2, 1, 3])
        query = tf.transpose(query, [0, 2, 1, 3])
        if equation == "columns":
            return tf.matmul(query, d.seen(tf.transpose(keys, [0, 1, 3, 2])))
        return d.pick(tf.matmul(query, keys, adjoint_b=True), tf.matmul(keys, query, transpose_b=True))

    return build, [d.fed(*query) if d.chance(0.5) else d.normal(*query), d.fed(1, rows, heads, width)]


OTHER_MAXIMUM = ("NaN", "rows of -inf")
"""Inputs whose maximum is another one in TensorFlow's own pooling, which starts at the lowest finite value."""


def max_pools(d: Draw) -> tuple[Build, list[Array]]:
    """Draws poolings with windows of all kinds."""
    import tensorflow as tf

    d.jit = d.kind in OTHER_MAXIMUM
    size, stride = ([d.below(4, 1), d.below(4, 1)] for _ in range(2))
    explicit = "SAME" if d.jit else [[0, 0], *([d.below(side), d.below(side)] for side in size), [0, 0]]

    def build(x: Any) -> Any:
        x = d.seen(d.pick(x + 0, tf.nn.relu(x), tf.round(x)))
        return d.seen(tf.nn.max_pool2d(x, size, stride, d.pick("SAME", "VALID", explicit)), 0.2) * 2

    return build, [d.fed(d.pick(1, 2), d.below(9, 4), d.below(9, 4), d.pick(7, 8, 9, 16))]


def pool_gradients(d: Draw) -> tuple[Build, list[Array]]:
    """Draws gradients of poolings, of values that are often equal."""
    import tensorflow as tf

    d.kind = d.pick("normal", "zeros") if d.kind == "NaN" else d.kind  # the page of passes says what NaN gives
    d.jit = d.kind in OTHER_MAXIMUM
    size = [d.below(4, 1), d.below(4, 1)]
    shape = d.pick(1, 2), d.below(4, 1) * size[0], d.below(4, 1) * size[1], d.pick(7, 8, 9, 16)
    stride = size if d.chance(0.8) else d.pick(1, 2)

    def build(x: Any, grad: Any) -> Any:
        x = d.seen(d.pick(x + 0, tf.nn.relu(x), tf.round(x)))
        y = d.seen(tf.nn.max_pool2d(x, size, stride, d.pick("SAME", "VALID")), 0.2)
        return tf.gradients(y, x, tf.tile(grad, [shape[0], *y.shape[1:3], 1]) * y)[0]

    return build, [d.fed(*shape), d.normal(1, 1, 1, shape[3])]


def prevent_duplication(d: Draw) -> tuple[Build, list[Array]]:
    """Draws blocks with residual connections."""
    import tensorflow as tf

    def build(x: Any) -> Any:
        for _ in range(d.below(4, 1)):
            y = x @ d.normal(8, 8)
            y = tf.nn.bias_add(y, d.normal(8)) if d.chance(0.5) else y
            y = d.seen(d.pick(y + x, x + y, y * x), 0.2)
            x = d.seen(d.pick(tf.nn.relu, tf.nn.relu, tf.nn.relu6)(y), 0.3)
        return d.pick(x, x + x @ d.normal(8, 8), tf.gradients(x * x, y)[0])

    return build, [d.fed(d.below(5, 1), 8)]


def recurrent(d: Draw) -> tuple[Build, list[Array]]:
    """Draws recurrent layers, often with gradients, with weights that are constants or not."""
    import tensorflow as tf

    d.dtype = "float32"
    steps, batch, wide, width = d.below(9, 2), d.pick(1, 2), d.pick(8, 16, 17), d.pick(2, 4)
    form, trained, backwards = d.pick("apart", "joined", "joined", "gated", "turned"), d.chance(0.6), d.chance(0.3)
    weights = [d.normal(wide, width) * 0.3, d.normal(width, width) * 0.5, d.normal(width)]

    def build(x: Any, *given: Any) -> Any:
        w, u, b = given or map(tf.constant, weights)

        turned, both = tf.transpose(w), tf.concat([w, u], 0)

        def step(x: Any, h: Any, k: Any) -> Any:
            if form == "joined":
                return tf.tanh(tf.matmul(tf.concat([x, h], 1), both) + b)
            left = tf.matmul(x, turned, transpose_b=True) if form == "turned" else tf.matmul(x, w)
            new = tf.tanh(tf.nn.bias_add(left + tf.matmul(h, u), b))
            return tf.sigmoid(tf.cast(k, x.dtype) - tf.reduce_mean(x)) * h + new if form == "gated" else new

        with xla_context():
            states, last = scan(step, x + 0, tf.ones([batch, width]) * 0.1, backwards=backwards)
            results = [d.seen(states, 0.5) * 2, last]
            of = [each for each in given if d.chance(0.7)] if trained else []
            return results + (gradients(states * states + last, of) if of else [])

    return build, [d.fed(steps, batch, wide), *(weights if d.chance(0.7) else [])]


PASSES: dict[str, Callable[[Draw], tuple[Build, list[Array]]]] = {
    "conv1d": conv1d,
    "fold_batch_norm": fold_batch_norm,
    "loop_invariants": recurrent,
    "hoist_projections": recurrent,
    "batch_weight_gradients": recurrent,
    "unroll_loops": recurrent,
    "erfc": erfc,
    "row_sums": row_sums,
    "reduce_as_matmul": reduce_as_matmul,
    "gemv_layout": gemv_layout,
    "split_kv_matmul": split_kv_matmul,
    "max_pools": max_pools,
    "pool_gradients": pool_gradients,
    "prevent_duplication": prevent_duplication,
}
"""How to draw graphs for a pass."""

EXACT = ("max_pools", "pool_gradients", "prevent_duplication")
"""Passes that promise the same bits."""


class PropertiesTest(PassTest):
    """Passes on random graphs."""

    def test_all(self) -> None:
        """No pass on graphs changes what a graph computes, on any input, whoever else reads what the pass replaces."""
        for name, draw in PASSES.items():
            changed, count, error = 0, int(32 * DRAWS), 0 if name in EXACT else 1e-5
            for seed in range(count):
                with self.subTest(name, seed=seed), np.errstate(all="ignore"):
                    d = Draw(seed)
                    build, feeds = draw(d)
                    changed += (
                        self.rewritten(name, functools.partial(d.built, build), *feeds, jit=d.jit, rtol=error) > 0
                    )
            self.assertGreater(changed, 0.15 * count, name)


if __name__ == "__main__":
    unittest.main()
