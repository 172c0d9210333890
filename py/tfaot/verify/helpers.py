"""Functions that `tfaot.verify.noise` adds to a graph's library: noise, the number of terms in a sum, batch normalization."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

AMPLITUDE = "tfaot_noise_amplitude"
"""`shared_name` of the variable, a float64 scalar, that contains the amplitude. Assign it before running the graph."""

_FEW = 256
"""How many values of a factor decide first whether its sums can be exact."""


def trace_noise(dtype: tf.DType, kind: str) -> Any:
    """Returns `(value, uniform, scale, count)` → the value with noise.

    `kind` is `absolute`, `relative`, `row`, or a dtype. With `row`, noise is relative to the root mean square of the last axis.
    With a dtype, it is relative, and values that the dtype can represent have none. A 16-bit dtype also rounds the value.
    """

    @tf.function(  # type: ignore[untyped-decorator]
        input_signature=[
            tf.TensorSpec(None, dtype),
            tf.TensorSpec(None, tf.float32),
            tf.TensorSpec(None, tf.float64),
            tf.TensorSpec(None, tf.float64),
        ],
        autograph=False,
    )
    def noise(value: Any, uniform: Any, scale: Any, count: Any) -> Any:
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float64, shape=[], shared_name=AMPLITUDE)
        amplitude = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float64)
        # A uniform random number has variance 1/12.
        size = amplitude * scale * tf.sqrt(count) * 12.0**0.5
        wide = tf.float64 if dtype in (tf.float64, tf.complex128) else tf.float32
        small = tf.cast(size, tf.float32) * (uniform - 0.5)
        if kind not in ("absolute", "row", "relative") and not dtype.is_complex:
            rounded = tf.cast(tf.cast(value, kind), dtype)
            small = tf.where(tf.equal(rounded, value), tf.zeros_like(small), small)
            if tf.as_dtype(kind).size == 2:
                value = rounded
        change = tf.cast(small, wide)
        if kind == "absolute":
            return value + tf.cast(change, dtype)
        if kind == "row":
            norm = tf.sqrt(tf.reduce_mean(tf.square(tf.cast(tf.abs(value), wide)), -1, keepdims=True))
            if not dtype.is_complex:
                return value + tf.cast(change * norm, dtype)
            other = tf.cast(size, wide) * (tf.cast(tf.math.floormod(uniform * 4096.0, 1.0), wide) - 0.5)
            return value + tf.complex(change * norm, other * norm)
        if dtype in (tf.complex64, tf.complex128):
            return value * tf.cast(1 + change, dtype)
        return tf.cast(tf.cast(value, wide) * (1 + change), dtype)

    return noise.get_concrete_function()


def contracted(equation: str) -> str:
    """Returns the `trace_count` case for an einsum: the axes of the first operand that it sums over."""
    operands, _, result = equation.replace(" ", "").partition("->")
    first = operands.split(",")[0]
    if "." in first:
        return "last"
    return "dims:" + ",".join(str(axis) for axis, label in enumerate(first) if label not in result)


def trace_count(how: str, types: tuple[int, ...]) -> Any:
    """Returns `(operand, …)` → the number of terms in a sum, float64, at least 1."""

    @tf.function(  # type: ignore[untyped-decorator]
        input_signature=[tf.TensorSpec(None, tf.as_dtype(dtype)) for dtype in types], autograph=False
    )
    def count(value: Any, *more: Any) -> Any:
        shape = tf.cast(tf.shape(value), tf.float64)
        size = tf.reduce_prod(shape)
        if how == "axes":
            axes = tf.math.floormod(tf.reshape(tf.cast(more[0], tf.int32), [-1]), tf.maximum(tf.rank(value), 1))
            return tf.maximum(tf.reduce_prod(tf.gather(shape, axes)), 1.0)
        if how.startswith("dims:"):
            dims = [shape[int(axis)] for axis in how.removeprefix("dims:").split(",") if axis]
            return tf.maximum(tf.reduce_prod(tf.stack(dims)), 1.0) if dims else tf.constant(1.0, tf.float64)
        number = {
            "all": lambda: size,
            # Weights are fractions of coordinates. Their errors, like the coordinates', are relative to the image's size.
            "extent": lambda: tf.square(tf.maximum(shape[1], shape[2])),
            "channels": lambda: size / tf.maximum(shape[-1], 1.0),
            "filter": lambda: size / tf.maximum(shape[-1], 1.0),
            "last": lambda: shape[-1],
            "last_squared": lambda: tf.square(shape[-1]),
            "rows": lambda: shape[0],
            "second_last": lambda: shape[-2],
            "whole_filter": lambda: size / tf.maximum(shape[-2], 1.0),
            "whole_window": lambda: size / tf.maximum(shape[-2], 1.0),
            "window": lambda: shape[0] * shape[1],
        }[how]()
        return tf.maximum(number, 1.0)

    return count.get_concrete_function()


def trace_rounds(groups: tuple[int, ...], types: tuple[int, ...], digits: int, product: bool) -> Any:
    """Returns `(count, operand, …)` → `count`, the number of terms, or 0 if no partial sum needs to be rounded.

    If all values of a factor are multiples of a power of two and at most 2^b times that, the factor has b bits. A sum of `count`
    products of factors is exact if it has no more bits than a float has digits. So are counts, masks, and other whole numbers.

    Args:
      groups: the number of operands of each factor.
      types: the operands' dtypes.
      digits: the binary digits of the dtype in which terms are added.
      product: whether terms are multiplied with each other, not added.
    """

    def scaled(values: Any) -> Any:
        largest = tf.reduce_max(tf.abs(values))
        power = 2.0 ** (
            tf.math.ceil(tf.math.log(tf.maximum(largest, 1e-300)) / tf.math.log(tf.constant(2.0, tf.float64)))
        )
        return values * (2.0**digits / power)

    def are_whole(numbers: Any) -> Any:
        return tf.reduce_all(tf.equal(numbers, tf.math.rint(numbers)))

    def bits(values: Any) -> Any:
        # If few values have too many bits, all of them have. Nothing is computed for the others then, which are most.
        few = are_whole(scaled(values[:_FEW]))
        numbers = scaled(values[: tf.where(few, tf.size(values), 0)])
        number = tf.cast(numbers, tf.int64)
        lowest = tf.bitwise.bitwise_and(number, -number)
        least = tf.reduce_min(tf.where(tf.equal(lowest, 0), tf.constant(1 << digits, tf.int64), lowest))
        most = digits - tf.math.log(tf.cast(least, tf.float64)) / tf.math.log(tf.constant(2.0, tf.float64))
        return tf.where(few & are_whole(numbers), most, tf.constant(1024.0, tf.float64))

    @tf.function(  # type: ignore[untyped-decorator]
        input_signature=[tf.TensorSpec([], tf.float64), *(tf.TensorSpec(None, tf.as_dtype(dtype)) for dtype in types)],
        autograph=False,
    )
    def rounds(count: Any, *operands: Any) -> Any:
        flat = [tf.reshape(tf.cast(value, tf.float64), [-1]) for value in operands]
        total: Any = tf.constant(0.0, tf.float64)
        first = 0
        for size in groups:
            total += bits(tf.concat(flat[first : first + size], 0))
            first += size
        total = total * count if product else total + tf.math.log(count) / tf.math.log(tf.constant(2.0, tf.float64))
        exact = total <= digits + 1e-6
        if sum(groups) == 1:
            exact |= tf.equal(count, 1.0)
        return tf.where(exact, tf.zeros_like(count), count)

    return rounds.get_concrete_function()


@dataclasses.dataclass(frozen=True)
class _BatchNorm:
    """Batch normalization in simpler operations, as XLA expands the fused one."""

    training: bool
    data_format: str
    epsilon: float
    factor: float

    def _parts(self, x: Any) -> tuple[list[int], list[int]]:
        """Returns all axes except the channel axis, and the shape from which a value per channel broadcasts."""
        rank = x.shape.rank or len(self.data_format)
        axis = self.data_format.index("C") if len(self.data_format) == rank else rank - 1
        return [i for i in range(rank) if i != axis], [-1 if i == axis else 1 for i in range(rank)]

    def forward(self, x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> tuple[Any, ...]:
        axes, shape = self._parts(x)
        old_mean, old_variance = mean, variance
        if self.training:
            # The rounding errors come from the difference of two moments.
            mean = tf.reduce_mean(x, axes)
            variance = tf.reduce_mean(tf.square(x), axes) - tf.square(mean)
        y = (x - tf.reshape(mean, shape)) * tf.reshape(tf.math.rsqrt(variance + self.epsilon) * scale, shape)
        y += tf.reshape(offset, shape)
        if not self.training:
            return y, mean, variance, mean, variance, variance
        count = tf.cast(tf.size(x) / tf.maximum(tf.size(mean), 1), tf.float64)
        unbiased = variance * (count / tf.maximum(count - 1.0, 1.0))
        if self.factor == 1.0:
            return y, tf.identity(mean), unbiased, tf.identity(mean), tf.identity(variance), tf.identity(variance)
        return (
            y,
            (1 - self.factor) * old_mean + self.factor * mean,
            (1 - self.factor) * old_variance + self.factor * unbiased,
            tf.identity(mean),
            tf.identity(variance),
            tf.identity(variance),
        )

    def backward(self, dy: Any, x: Any, scale: Any, mean: Any, variance: Any) -> tuple[Any, ...]:
        axes, shape = self._parts(x)
        inverse = tf.math.rsqrt(variance + self.epsilon)
        centred = x - tf.reshape(mean, shape)
        offset_gradient = tf.reduce_sum(dy, axes)
        scale_gradient = tf.reduce_sum(dy * centred, axes) * inverse
        if self.training:
            count = tf.cast(tf.size(x) / tf.maximum(tf.size(mean), 1), tf.float64)
            whole = dy - tf.reshape(offset_gradient / count, shape)
            whole -= centred * tf.reshape(inverse * scale_gradient / count, shape)
        else:
            whole = dy
        dx = whole * tf.reshape(inverse * scale, shape)
        nothing = tf.zeros([0], tf.float64)
        return dx, scale_gradient, offset_gradient, nothing, nothing


def trace_batch_norm(
    gradient: bool, training: bool, data_format: str, epsilon: float, factor: float, operands: int, results: int
) -> Any:
    """Returns fused batch normalization or its gradient for float64 values, built from operations that have kernels."""
    norm = _BatchNorm(training, data_format, epsilon, factor)
    wide = tf.TensorSpec([None] * len(data_format), tf.float64)
    small = tf.TensorSpec([None], tf.float64)
    specs = [wide, wide, small, small, small] if gradient else [wide, small, small, small, small]
    unused = [tf.TensorSpec(None, tf.float64)] * (operands - len(specs))

    @tf.function(  # type: ignore[untyped-decorator]
        input_signature=[*specs, *unused], autograph=False
    )
    def call(*values: Any) -> Any:
        return (norm.backward if gradient else norm.forward)(*values[: len(specs)])[:results]

    return call.get_concrete_function()
