"""Random nets of one or two sequences, each of a length of its own, in float64.

Their layers are those of text encoders, taggers, and speech front ends, and others that look at a whole sequence, at its end, or at
its length.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

WIDTH = 4
ROWS = 2

Layer = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class Net:
    """A function of sequences, [rows, length, width]."""

    layers: str
    model: Callable[..., Any]
    axes: tuple[Mapping[int, int], ...]
    """The open dimension of each input, and which length it has."""

    def inputs(self, rng: np.random.Generator, bucket: int) -> list[Any]:
        """Returns sequences of the largest length."""
        return [rng.standard_normal((ROWS, bucket, WIDTH)) for _ in self.axes]


class _Layers:
    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def _weight(self, *shape: int) -> Any:
        return self._rng.standard_normal(shape) / np.sqrt(np.prod(shape[:-1]))

    def _number(self, value: Any) -> Any:
        return tf.cast(value, tf.float64)

    def dense(self) -> Layer:
        w, bias = self._weight(WIDTH, WIDTH), self._weight(WIDTH)
        return lambda x: tf.nn.gelu(x @ w + bias)

    def reshaped(self) -> Layer:
        w = self._weight(WIDTH, WIDTH)
        return lambda x: tf.reshape(tf.tanh(tf.reshape(x, [-1, WIDTH]) @ w), tf.shape(x))

    def layer_norm(self) -> Layer:
        axes = [2] if self._rng.random() < 0.5 else [1, 2]

        def norm(x: Any) -> Any:
            mean, variance = tf.nn.moments(x, axes, keepdims=True)
            return (x - mean) * tf.math.rsqrt(variance + 1e-3)

        return norm

    def batch_norm(self) -> Layer:
        return lambda x: tf.nn.batch_normalization(x, *tf.nn.moments(x, [0, 1]), None, None, 1e-3)

    def convolution(self) -> Layer:
        size, stride = int(self._rng.integers(2, 5)), int(self._rng.integers(1, 4))
        w = self._weight(size, WIDTH, WIDTH)
        if self._rng.random() < 0.3:
            return lambda x: tf.nn.conv1d(tf.pad(x, [[0, 0], [size - 1, 0], [0, 0]]), w, 1, "VALID")
        if self._rng.random() < 0.3:
            return lambda x: tf.nn.conv1d(tf.pad(x, [[0, 0], [size, size], [0, 0]]), w, stride, "VALID")
        return lambda x: tf.nn.relu(tf.nn.conv1d(x, w, stride, "SAME"))

    def pool(self) -> Layer:
        size, stride = int(self._rng.integers(2, 5)), int(self._rng.integers(2, 4))
        pool = tf.nn.max_pool1d if self._rng.random() < 0.5 else tf.nn.avg_pool1d
        return lambda x: pool(x, size, stride, "SAME")

    def attention(self) -> Layer:
        w, causal = self._weight(WIDTH, 3 * WIDTH), self._rng.random() < 0.5

        def heads(x: Any) -> Any:
            rows, length = tf.shape(x)[0], tf.shape(x)[1]
            parts = (tf.reshape(part, [rows, length, 2, WIDTH // 2]) for part in tf.split(x @ w, 3, 2))
            q, k, v = (tf.transpose(part, [0, 2, 1, 3]) for part in parts)
            scores = tf.matmul(q, k, transpose_b=True)
            if causal:
                there = tf.linalg.band_part(tf.ones([length, length], tf.float64), -1, 0)
                scores += (1 - there) * -1e9
            mixed = tf.transpose(tf.nn.softmax(scores) @ v, [0, 2, 1, 3])
            return x + tf.reshape(mixed, [rows, length, WIDTH])

        return heads

    def recurrent(self) -> Layer:
        w, backward = self._weight(WIDTH, WIDTH), self._rng.random() < 0.5

        def scan(x: Any) -> Any:
            x = tf.reverse(x, [1]) if backward else x
            states = tf.scan(lambda h, now: tf.tanh(now + h @ w), tf.transpose(x, [1, 0, 2]), tf.zeros_like(x[:, 0]))
            states = tf.transpose(states, [1, 0, 2])
            return tf.reverse(states, [1]) if backward else states

        return scan

    def pooled(self) -> Layer:
        reduce = (tf.reduce_mean, tf.reduce_max, tf.reduce_sum, tf.reduce_logsumexp)[self._rng.integers(4)]
        return lambda x: x - 0.5 * tf.tanh(reduce(x, 1, keepdims=True))

    def masked(self) -> Layer:
        def mean(x: Any) -> Any:
            there = self._number(x[..., :1] > 0)
            return (
                x * tf.reduce_sum(x * there, 1, keepdims=True) / tf.maximum(tf.reduce_sum(there, 1, keepdims=True), 1)
            )

        return mean

    def gate(self) -> Layer:
        least = -1e9 if self._rng.random() < 0.5 else -np.inf
        first = np.zeros([1, 1, 1])

        def weighted(x: Any) -> Any:
            # The first place is always there, because a softmax of nothing is NaN.
            there = (x > 0) | (tf.range(tf.shape(x)[1]) < 1)[:, None]
            return x * tf.nn.softmax(tf.where(there, x, first + least), 1)

        return weighted

    def place(self) -> Layer:
        table = self._weight(64, WIDTH)
        return lambda x: x + tf.gather(table, tf.range(tf.shape(x)[1]))

    def counted(self) -> Layer:
        least = int(self._rng.integers(2, 12))

        def scaled(x: Any) -> Any:
            size = tf.shape(x)[1]
            from_end = self._number(size - tf.range(size))[:, None]
            return x * tf.where(size > least, self._number(2), self._number(tf.maximum(size, 5))) / from_end

        return scaled

    def last(self) -> Layer:
        return lambda x: x - tf.gather(x, (tf.shape(x)[1] - 1)[None], axis=1)

    def turned(self) -> Layer:
        by = int(self._rng.integers(1, 4))
        return lambda x: x + tf.gather(x, (tf.range(tf.shape(x)[1]) + by) % tf.shape(x)[1], axis=1)

    def swapped(self) -> Layer:
        def halves(x: Any) -> Any:
            half = tf.shape(x)[1] // 2
            return tf.concat([x[:, half:], x[:, :half]], 1)

        return halves

    def best(self) -> Layer:
        return lambda x: x + tf.gather(x, tf.argmax(x[..., 0], 1), axis=1, batch_dims=1)[:, None]

    def ordered(self) -> Layer:
        direction = "DESCENDING" if self._rng.random() < 0.5 else "ASCENDING"
        return lambda x: tf.sort(x, 1, direction) * 0.5

    def later(self) -> Layer:
        return lambda x: tf.concat([x[:, :1], x], 1)[:, 1:] + tf.reverse(x, [1])

    def summed(self) -> Layer:
        def sums(x: Any) -> Any:
            before = tf.linalg.band_part(tf.ones([tf.shape(x)[1]] * 2, x.dtype), -1, 0)
            return tf.reduce_sum(before[..., None] * x[:, None], 2) * 0.1

        return sums


_LAYERS = tuple(name for name in vars(_Layers) if not name.startswith("_"))


def net(number: int) -> Net:
    """Draws the net of a number."""
    rng = np.random.default_rng(number)
    names = [str(name) for name in rng.choice(_LAYERS, 4)]
    layers = [getattr(_Layers(rng), name)() for name in names]
    two = number % 3 == 2
    w = rng.standard_normal((WIDTH, WIDTH))

    def model(x: Any, *others: Any) -> Any:
        for y in others:
            x += tf.nn.softmax(tf.matmul(x @ w, y, transpose_b=True)) @ y
        for layer in layers:
            x = layer(x)
        return [x, tf.reduce_mean(x, 1)]

    axes = ({1: 0}, {1: 1}) if two else ({1: 0},)
    return Net(", ".join(names) + (", of two" if two else ""), model, axes)
