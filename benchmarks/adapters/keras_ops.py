"""The models in Keras 3, for ahead-of-time compilation, TensorFlow, and LiteRT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from benchmarks import definitions
from benchmarks.definitions import Array, Weights

Value = Any


class KerasOps:
    """Builds a functional model. Weights are set once it is complete."""

    def __init__(self, family: str) -> None:
        self._weights = Weights(family)
        self._pending: list[tuple[Any, Callable[[], list[Array]]]] = []

    def set_weights(self) -> None:
        """Sets every layer's weights to those that the definitions draw."""
        for layer, values in self._pending:
            layer.set_weights(values())

    def _layer(self, layer: Any, x: Value, values: Callable[[], list[Array]]) -> Value:
        self._pending.append((layer, values))
        return layer(x)

    def dense(self, x: Value, units: int, name: str, activation: str = "") -> Value:
        fan_in = x.shape[-1]
        kind = _gelu if activation == "gelu" else activation or None
        return self._layer(
            layers.Dense(units, activation=kind, name=name),
            x,
            lambda: [
                self._weights.kernel(name + "/kernel", (fan_in, units), fan_in),
                self._weights.vector(name + "/bias", units),
            ],
        )

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
        if isinstance(pad, int):
            x, pad = layers.ZeroPadding2D(pad, name=name + "_pad")(x) if pad else x, "valid"
        shape = (size, size, channels, filters)
        return self._layer(
            layers.Conv2D(filters, size, strides=stride, padding=pad, use_bias=bias, name=name),
            x,
            lambda: (
                [self._weights.kernel(name + "/kernel", shape, size * size * channels)]
                + ([self._weights.vector(name + "/bias", filters)] if bias else [])
            ),
        )

    def depthwise(self, x: Value, size: int, name: str, *, stride: int = 1) -> Value:
        channels = x.shape[-1]
        return self._layer(
            layers.DepthwiseConv2D(size, strides=stride, padding="same", use_bias=False, name=name),
            x,
            lambda: [self._weights.kernel(name + "/kernel", (size, size, channels, 1), size * size)],
        )

    def batch_norm(self, x: Value, name: str) -> Value:
        channels = x.shape[-1]
        layer = layers.BatchNormalization(epsilon=definitions.BATCH_NORM_EPSILON, name=name)
        return self._layer(layer, x, lambda: list(self._weights.batch_norm(name, channels)))

    def activation(self, x: Value, kind: str) -> Value:
        return layers.Activation(kind)(x)

    def add(self, x: Value, y: Value) -> Value:
        return layers.Add()([x, y])

    def gate(self, x: Value, factors: Value) -> Value:
        return layers.Multiply()([x, layers.Reshape((1, 1, x.shape[-1]))(factors)])

    def concat(self, x: Value, y: Value) -> Value:
        return layers.Concatenate()([x, y])

    def upsample(self, x: Value) -> Value:
        return layers.UpSampling2D()(x)

    def max_pool(self, x: Value, size: int, stride: int, pad: int) -> Value:
        # Inputs of the pooling come from a ReLU, so zeros never win. Keras has no explicit padding for pooling.
        return layers.MaxPooling2D(size, stride)(layers.ZeroPadding2D(pad)(x))

    def spatial_mean(self, x: Value) -> Value:
        return layers.GlobalAveragePooling2D()(x)

    def flatten(self, x: Value) -> Value:
        return layers.Flatten()(x)

    def lstm(self, x: Value, units: int, name: str) -> Value:
        features = x.shape[-1]
        return self._layer(
            layers.LSTM(units, name=name),
            x,
            lambda: [
                self._weights.kernel(name + "/kernel", (features, 4 * units), 3 * features),
                self._weights.kernel(name + "/recurrent", (units, 4 * units), 6 * units),
                self._weights.vector(name + "/bias", 4 * units),
            ],
        )

    def gru(self, x: Value, units: int, name: str) -> Value:
        features = x.shape[-1]
        return self._layer(
            layers.GRU(units, name=name),
            x,
            lambda: [
                self._weights.kernel(name + "/kernel", (features, 3 * units), 3 * features),
                self._weights.kernel(name + "/recurrent", (units, 3 * units), 6 * units),
                self._weights.vector(name + "/bias", 6 * units).reshape(2, 3 * units),
            ],
        )

    def causal_conv(self, x: Value, filters: int, size: int, name: str, *, dilation: int) -> Value:
        features = x.shape[-1]
        return self._layer(
            layers.Conv1D(filters, size, padding="causal", dilation_rate=dilation, name=name),
            x,
            lambda: [
                self._weights.kernel(name + "/kernel", (size, features, filters), size * features),
                self._weights.vector(name + "/bias", filters),
            ],
        )

    def interact(self, x: Value) -> Value:
        return layers.Flatten()(layers.Dot(axes=(2, 2))([x, x]))

    def row_mean(self, x: Value) -> Value:
        return layers.GlobalAveragePooling1D()(x)

    def embed(self, tokens: Value, vocabulary: int, width: int, name: str) -> Value:
        count = tokens.shape[1]
        rows = self._layer(
            layers.Embedding(vocabulary, width, name=name),
            tokens,
            lambda: [self._weights.kernel(name + "/table", (vocabulary, width), 2)],
        )
        # A constant, because calling a layer on one would evaluate it here, before it has its weights.
        places = keras.ops.convert_to_tensor(self._weights.kernel(name + "/positions", (count, width), 2))
        return rows + places

    def attention(self, x: Value, heads: int, name: str) -> Value:
        width = x.shape[-1]
        size = width // heads

        def values() -> list[Array]:
            result = []
            for part in ("query", "key", "value"):
                kernel = self._weights.kernel(f"{name}/{part}/kernel", (width, width), 3 * width)
                result += [
                    kernel.reshape(width, heads, size),
                    self._weights.vector(f"{name}/{part}/bias", width).reshape(heads, size),
                ]
            kernel = self._weights.kernel(f"{name}/out/kernel", (width, width), 3 * width)
            return [*result, kernel.reshape(heads, size, width), self._weights.vector(f"{name}/out/bias", width)]

        layer = layers.MultiHeadAttention(heads, size, name=name)
        self._pending.append((layer, values))
        return layer(x, x)

    def attend(self, query: Value, keys: Value, values: Value, heads: int) -> Value:
        def split(x: Value) -> Value:
            return keras.ops.transpose(keras.ops.reshape(x, (*x.shape[:2], heads, -1)), (0, 2, 1, 3))

        size = query.shape[-1] // heads
        scores = keras.ops.matmul(split(query) / size**0.5, keras.ops.transpose(split(keys), (0, 1, 3, 2)))
        mixed = keras.ops.matmul(keras.ops.softmax(scores), split(values))
        return keras.ops.reshape(keras.ops.transpose(mixed, (0, 2, 1, 3)), query.shape)

    def rows(self, x: Value, start: int, count: int) -> Value:
        return x[:, start : start + count]

    def join(self, values: list[Value]) -> Value:
        return layers.Concatenate(axis=1)(values)

    def layer_norm(self, x: Value, name: str) -> Value:
        width = x.shape[-1]
        return self._layer(
            layers.LayerNormalization(epsilon=definitions.LAYER_NORM_EPSILON, name=name),
            x,
            lambda: [
                self._weights.vector(name + "/gamma", width, 0.8, 1.2),
                self._weights.vector(name + "/beta", width),
            ],
        )


def _gelu(x: Value) -> Value:
    return keras.activations.gelu(x, approximate=False)


def network(name: str) -> Any:
    """Returns the Keras model of a definition."""
    model = definitions.MODELS[name]
    ops = KerasOps(model.family)
    x = keras.Input(model.shape, batch_size=model.batch, dtype="int32" if model.tokens else "float32", name="x")
    result = keras.Model(x, model.body(ops, x), name=model.family)
    ops.set_weights()
    return result


class Trainer(tf.Module):  # type: ignore[misc]
    """A training step with an explicit update, so that every framework computes the same one."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._model = definitions.MODELS[name]
        self.network = network(name)
        self._trained = [variable.value for variable in self.network.trainable_variables]
        if self._model.optimizer == "adam":
            self.steps = tf.Variable(0.0, name="steps")
            self.slots = [
                (tf.Variable(tf.zeros_like(v), name=f"m{i}"), tf.Variable(tf.zeros_like(v), name=f"v{i}"))
                for i, v in enumerate(self._trained)
            ]
        shape = (self._model.batch, *self._model.shape)
        dtype = tf.int32 if self._model.tokens else tf.float32
        signature = [
            tf.TensorSpec(shape, dtype, name="x"),
            tf.TensorSpec((self._model.batch, definitions.CLASSES), name="y"),
        ]
        self.train = tf.function(self._train, input_signature=signature)

    def _train(self, x: Value, y: Value) -> dict[str, Value]:
        """Takes one step. Returns the loss before it."""
        with tf.GradientTape() as tape:
            logits = self.network(x, training=True)
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(y, logits))
        # The gradient of a table is sparse, and its update is dense, as in the other frameworks.
        gradients = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, self._trained)]
        if self._model.optimizer == "sgd":
            for variable, gradient in zip(self._trained, gradients, strict=True):
                variable.assign_sub(definitions.SGD_RATE * gradient)
            return {"loss": loss}
        adam = definitions.ADAM
        step = self.steps.assign_add(1.0)
        rate = adam["rate"] * tf.sqrt(1 - adam["beta2"] ** step) / (1 - adam["beta1"] ** step)
        for variable, gradient, (m, v) in zip(self._trained, gradients, self.slots, strict=True):
            m.assign(adam["beta1"] * m + (1 - adam["beta1"]) * gradient)
            v.assign(adam["beta2"] * v + (1 - adam["beta2"]) * tf.square(gradient))
            variable.assign_sub(rate * m / (tf.sqrt(v) + adam["epsilon"]))
        return {"loss": loss}


def compiled(name: str) -> Any:
    """Returns what a `tf_aot_library` target for this definition compiles."""
    return Trainer(name) if definitions.MODELS[name].optimizer else network(name)


def golden(name: str) -> Callable[..., Any]:
    """Returns the target's `golden_fn`: first the benchmark's inputs, then similar ones."""

    def golden_fn(step: int, rng: np.random.Generator) -> Any:
        first = definitions.inputs(definitions.MODELS[name])
        values = [value if step == 0 else rng.permuted(value, axis=0) for value in first]
        return tuple(values) if len(values) > 1 else values[0]

    return golden_fn
