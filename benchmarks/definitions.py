"""The benchmark's models, each defined once: a function of abstract operations over weights that are drawn by name.

A framework implements `Ops`, and every model's `body` then builds that model in it, with the same weights. The result of `draw`
depends only on a name and a shape, in integers, so no file is exchanged and NumPy's version doesn't matter. Images are NHWC
here. A framework that prefers another layout converts at its edge, before any timing.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Value = Any
"""A framework's own tensor type."""

CLASSES = 10
BATCH_NORM_EPSILON = 1e-3
LAYER_NORM_EPSILON = 1e-5
ADAM = {"rate": 0.01, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-7}
SGD_RATE = 0.01


def draw(name: str, shape: tuple[int, ...], low: float = -1.0, high: float = 1.0) -> Array:
    """Returns uniform float32 values in [low, high) that depend only on the name (splitmix64 of an index)."""
    count = math.prod(shape)
    bits = np.arange(count, dtype=np.uint64) + (np.uint64(zlib.crc32(name.encode())) << np.uint64(32))
    with np.errstate(over="ignore"):
        bits = bits * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits ^= bits >> np.uint64(31)
    unit = (bits >> np.uint64(40)).astype(np.float32) / np.float32(2**24)
    return (np.float32(low) + unit * np.float32(high - low)).reshape(shape)


class Weights:
    """The weights of one model, scaled as its definition needs."""

    def __init__(self, model: str) -> None:
        self._model = model

    def kernel(self, name: str, shape: tuple[int, ...], fan_in: int) -> Array:
        """Returns a weight matrix or filter with variance 2 / fan_in, so activations keep their scale through ReLUs."""
        bound = math.sqrt(6 / fan_in)
        return draw(f"{self._model}/{name}", shape, -bound, bound)

    def vector(self, name: str, size: int, low: float = -0.1, high: float = 0.1) -> Array:
        """Returns a bias, or one of batch norm's vectors."""
        return draw(f"{self._model}/{name}", (size,), low, high)

    def batch_norm(self, name: str, size: int) -> tuple[Array, Array, Array, Array]:
        """Returns scale, offset, moving mean, and moving variance as in a trained network, not 1, 0, 0, 1."""
        return (
            self.vector(name + "/gamma", size, 0.8, 1.2),
            self.vector(name + "/beta", size),
            self.vector(name + "/mean", size),
            self.vector(name + "/variance", size, 0.8, 1.2),
        )


class Ops(Protocol):
    """The interface of a framework. Names are unique in a model; `activation` is "", relu, relu6, tanh, gelu, silu, or sigmoid."""

    def dense(self, x: Value, units: int, name: str, activation: str = "") -> Value:
        """Returns a matrix product with the last dimension, plus a bias."""
        ...

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
        """Returns a convolution. `pad` is "same", "valid", or the number of zeros on each side."""
        ...

    def depthwise(self, x: Value, size: int, name: str, *, stride: int = 1) -> Value:
        """Returns a depthwise convolution with multiplier 1, padding "same", and no bias."""
        ...

    def batch_norm(self, x: Value, name: str) -> Value:
        """Returns batch norm over the last dimension, with the batch's statistics in training, else the moving ones."""
        ...

    def activation(self, x: Value, kind: str) -> Value:
        """Returns a separate activation."""
        ...

    def add(self, x: Value, y: Value) -> Value:
        """Returns an elementwise sum."""
        ...

    def gate(self, x: Value, factors: Value) -> Value:
        """Returns an image with each channel multiplied by a factor, [batch, channel]."""
        ...

    def concat(self, x: Value, y: Value) -> Value:
        """Returns images joined along the channels."""
        ...

    def upsample(self, x: Value) -> Value:
        """Returns an image of twice the height and width, each value repeated."""
        ...

    def max_pool(self, x: Value, size: int, stride: int, pad: int) -> Value:
        """Returns max pooling. Each side is padded with `pad` rows that never win."""
        ...

    def spatial_mean(self, x: Value) -> Value:
        """Returns the mean over height and width."""
        ...

    def flatten(self, x: Value) -> Value:
        """Merges all dimensions except the batch into one, in NHWC order."""
        ...

    def lstm(self, x: Value, units: int, name: str) -> Value:
        """Returns the last state of an LSTM over [batch, step, feature]. Gate order: input, forget, cell, output."""
        ...

    def gru(self, x: Value, units: int, name: str) -> Value:
        """Returns the last state of a GRU over [batch, step, feature], reset after the product. Gate order: update, reset, new."""
        ...

    def causal_conv(self, x: Value, filters: int, size: int, name: str, *, dilation: int) -> Value:
        """Returns a convolution along [batch, step, feature] that sees no later step, with a bias."""
        ...

    def interact(self, x: Value) -> Value:
        """Returns all scalar products of a batch's rows with each other: [batch, row, width] to [batch, row * row]."""
        ...

    def row_mean(self, x: Value) -> Value:
        """Returns the mean over rows: [batch, row, width] to [batch, width]."""
        ...

    def embed(self, tokens: Value, vocabulary: int, width: int, name: str) -> Value:
        """Returns rows of a table, plus those of a second table by position."""
        ...

    def attention(self, x: Value, heads: int, name: str) -> Value:
        """Returns multi-head self-attention over [batch, token, width], with biases."""
        ...

    def attend(self, query: Value, keys: Value, values: Value, heads: int) -> Value:
        """Returns softmax(query · keys / √size) · values for each head, over [batch, token, width], without projections."""
        ...

    def rows(self, x: Value, start: int, count: int) -> Value:
        """Returns some rows of [batch, row, width]."""
        ...

    def join(self, values: list[Value]) -> Value:
        """Returns the rows of all values, one after another."""
        ...

    def layer_norm(self, x: Value, name: str) -> Value:
        """Returns layer norm over the last dimension."""
        ...


@dataclasses.dataclass(frozen=True)
class Model:
    """A model that every framework builds."""

    name: str
    title: str
    """For tables."""
    batch: int
    shape: tuple[int, ...]
    """Shape of the one input, without the batch."""
    body: Callable[[Any, Value], Value]
    """A function of `Ops` and the input."""
    optimizer: str = ""
    """For a training step, `sgd` or `adam`. The loss is the mean softmax cross entropy with one-hot labels [batch, 10]."""
    tokens: int = 0
    """Size of the vocabulary if the input is int32 tokens."""

    @property
    def family(self) -> str:
        """The name of its weights. A model's other batch sizes and its training share them."""
        return self.body.__name__


def mlp(ops: Ops, x: Value) -> Value:
    """10-64-64-1."""
    x = ops.dense(x, 64, "hidden0", "relu")
    x = ops.dense(x, 64, "hidden1", "relu")
    return ops.dense(x, 1, "out")


def fc(ops: Ops, x: Value) -> Value:
    """784-256-10."""
    return ops.dense(ops.dense(x, 256, "hidden", "relu"), CLASSES, "logits")


def fc_bn(ops: Ops, x: Value) -> Value:
    """784-256-10 with batch norm after the hidden layer's activation."""
    return ops.dense(ops.batch_norm(ops.dense(x, 256, "hidden", "relu"), "norm"), CLASSES, "logits")


def conv(ops: Ops, x: Value) -> Value:
    """The study's conv_fc: 4 filters of 2 by 2, a dense layer of 256, and one of 10."""
    x = ops.activation(ops.conv(x, 4, 2, "conv"), "relu")
    return ops.dense(ops.dense(ops.flatten(x), 256, "hidden", "relu"), CLASSES, "logits")


def lstm(ops: Ops, x: Value) -> Value:
    """LSTM(128) over 50 steps of 64 features."""
    return ops.dense(ops.lstm(x, 128, "lstm"), CLASSES, "logits")


def mobilenet_v2(ops: Ops, x: Value) -> Value:
    """MobileNetV2 1.0 for 1000 classes, up to the logits."""

    def block(x: Value, channels: int, filters: int, stride: int, expansion: int, name: str) -> Value:
        y = x
        if expansion != 1:
            y = ops.conv(y, expansion * channels, 1, name + "_expand", bias=False)
            y = ops.activation(ops.batch_norm(y, name + "_expand_norm"), "relu6")
        y = ops.depthwise(y, 3, name + "_depthwise", stride=stride)
        y = ops.activation(ops.batch_norm(y, name + "_depthwise_norm"), "relu6")
        y = ops.batch_norm(ops.conv(y, filters, 1, name + "_project", bias=False), name + "_project_norm")
        return ops.add(x, y) if stride == 1 and channels == filters else y

    x = ops.conv(x, 32, 3, "stem", stride=2, pad="same", bias=False)
    x = ops.activation(ops.batch_norm(x, "stem_norm"), "relu6")
    channels, index = 32, 0
    for expansion, filters, repeats, stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for repeat in range(repeats):
            x = block(x, channels, filters, stride if repeat == 0 else 1, expansion, f"block{index}")
            channels, index = filters, index + 1
    x = ops.activation(ops.batch_norm(ops.conv(x, 1280, 1, "head", bias=False), "head_norm"), "relu6")
    return ops.dense(ops.spatial_mean(x), 1000, "logits")


def resnet18(ops: Ops, x: Value) -> Value:
    """ResNet-18 for 1000 classes, padded like in PyTorch, up to the logits."""

    def block(x: Value, channels: int, filters: int, stride: int, name: str) -> Value:
        y = ops.conv(x, filters, 3, name + "_a", stride=stride, pad=1, bias=False)
        y = ops.activation(ops.batch_norm(y, name + "_a_norm"), "relu")
        y = ops.batch_norm(ops.conv(y, filters, 3, name + "_b", pad=1, bias=False), name + "_b_norm")
        if stride != 1 or channels != filters:
            x = ops.batch_norm(ops.conv(x, filters, 1, name + "_skip", stride=stride, bias=False), name + "_skip_norm")
        return ops.activation(ops.add(x, y), "relu")

    x = ops.conv(x, 64, 7, "stem", stride=2, pad=3, bias=False)
    x = ops.max_pool(ops.activation(ops.batch_norm(x, "stem_norm"), "relu"), 3, 2, 1)
    channels = 64
    for stage, filters in enumerate((64, 128, 256, 512)):
        for repeat in range(2):
            x = block(x, channels, filters, 2 if stage and not repeat else 1, f"stage{stage}_{repeat}")
            channels = filters
    return ops.dense(ops.spatial_mean(x), 1000, "logits")


def transformer(ops: Ops, x: Value) -> Value:
    """Two encoder blocks of width 64 with four heads, over 32 tokens."""
    x = ops.embed(x, 1000, 64, "embedding")
    for block in range(2):
        x = ops.layer_norm(ops.add(x, ops.attention(x, 4, f"attention{block}")), f"norm{block}")
        hidden = ops.dense(x, 256, f"hidden{block}", "gelu")
        x = ops.layer_norm(ops.add(x, ops.dense(hidden, 64, f"out{block}")), f"out_norm{block}")
    return x


def resnet50(ops: Ops, x: Value) -> Value:
    """ResNet-50 for 1000 classes, with the stride in the 3 by 3 convolution, up to the logits."""

    def block(x: Value, channels: int, filters: int, stride: int, name: str) -> Value:
        y = ops.conv(x, filters, 1, name + "_a", bias=False)
        y = ops.activation(ops.batch_norm(y, name + "_a_norm"), "relu")
        y = ops.conv(y, filters, 3, name + "_b", stride=stride, pad=1, bias=False)
        y = ops.activation(ops.batch_norm(y, name + "_b_norm"), "relu")
        y = ops.batch_norm(ops.conv(y, 4 * filters, 1, name + "_c", bias=False), name + "_c_norm")
        if channels != 4 * filters:
            x = ops.batch_norm(
                ops.conv(x, 4 * filters, 1, name + "_skip", stride=stride, bias=False), name + "_skip_norm"
            )
        return ops.activation(ops.add(x, y), "relu")

    x = ops.conv(x, 64, 7, "stem", stride=2, pad=3, bias=False)
    x = ops.max_pool(ops.activation(ops.batch_norm(x, "stem_norm"), "relu"), 3, 2, 1)
    channels = 64
    for stage, (filters, repeats) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for repeat in range(repeats):
            x = block(x, channels, filters, 2 if stage and not repeat else 1, f"stage{stage}_{repeat}")
            channels = 4 * filters
    return ops.dense(ops.spatial_mean(x), 1000, "logits")


def efficientnet_b0(ops: Ops, x: Value) -> Value:
    """EfficientNet-B0 for 1000 classes, up to the logits."""

    def block(x: Value, channels: int, filters: int, size: int, stride: int, expansion: int, name: str) -> Value:
        y, wide = x, expansion * channels
        if expansion != 1:
            y = ops.activation(ops.batch_norm(ops.conv(y, wide, 1, name + "_expand", bias=False), name + "_en"), "silu")
        y = ops.depthwise(y, size, name + "_depthwise", stride=stride)
        y = ops.activation(ops.batch_norm(y, name + "_dn"), "silu")
        squeezed = ops.dense(ops.spatial_mean(y), max(1, channels // 4), name + "_squeeze", "silu")
        y = ops.gate(y, ops.dense(squeezed, wide, name + "_excite", "sigmoid"))
        y = ops.batch_norm(ops.conv(y, filters, 1, name + "_project", bias=False), name + "_pn")
        return ops.add(x, y) if stride == 1 and channels == filters else y

    x = ops.conv(x, 32, 3, "stem", stride=2, pad="same", bias=False)
    x = ops.activation(ops.batch_norm(x, "stem_norm"), "silu")
    channels, index = 32, 0
    for expansion, filters, repeats, stride, size in (
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    ):
        for repeat in range(repeats):
            x = block(x, channels, filters, size, stride if repeat == 0 else 1, expansion, f"block{index}")
            channels, index = filters, index + 1
    x = ops.activation(ops.batch_norm(ops.conv(x, 1280, 1, "head", bias=False), "head_norm"), "silu")
    return ops.dense(ops.spatial_mean(x), 1000, "logits")


def bert_base(ops: Ops, x: Value) -> Value:
    """BERT-base: twelve encoder blocks of width 768 with twelve heads, over 128 tokens, without segments and the pooler."""
    x = ops.layer_norm(ops.embed(x, 30522, 768, "embedding"), "norm")
    for block in range(12):
        x = ops.layer_norm(ops.add(x, ops.attention(x, 12, f"attention{block}")), f"norm{block}")
        hidden = ops.dense(x, 3072, f"hidden{block}", "gelu")
        x = ops.layer_norm(ops.add(x, ops.dense(hidden, 768, f"out{block}")), f"out_norm{block}")
    return x


def unet(ops: Ops, x: Value) -> Value:
    """A U-Net with four levels of 16 to 128 channels, and one logit for each pixel."""

    def pair(x: Value, filters: int, name: str) -> Value:
        for part in ("a", "b"):
            x = ops.activation(ops.conv(x, filters, 3, f"{name}_{part}", pad="same"), "relu")
        return x

    levels = []
    for level in range(3):
        levels.append(pair(x, 16 << level, f"down{level}"))
        x = ops.max_pool(levels[-1], 2, 2, 0)
    x = pair(x, 128, "bottom")
    for level in reversed(range(3)):
        x = ops.concat(ops.conv(ops.upsample(x), 16 << level, 3, f"up{level}", pad="same"), levels[level])
        x = pair(x, 16 << level, f"merge{level}")
    return ops.flatten(ops.conv(x, 1, 1, "mask"))  # with one channel, layouts don't matter


def wavenet(ops: Ops, x: Value) -> Value:
    """Ten dilated causal convolutions of 64 channels with residuals, as in WaveNet, over 1024 steps."""
    x = ops.dense(x, 64, "in")
    for layer in range(10):
        x = ops.add(x, ops.activation(ops.causal_conv(x, 64, 3, f"layer{layer}", dilation=1 << layer), "relu"))
    return ops.dense(x, CLASSES, "logits")


def gru(ops: Ops, x: Value) -> Value:
    """GRU(128) over 50 steps of 64 features."""
    return ops.dense(ops.gru(x, 128, "gru"), CLASSES, "logits")


def dlrm(ops: Ops, x: Value) -> Value:
    """Like DLRM: rows of 26 tables of 1000, their scalar products, and a small net. One table holds all."""
    x = ops.interact(ops.embed(x, 26000, 32, "tables"))
    return ops.dense(ops.dense(ops.dense(x, 256, "hidden0", "relu"), 64, "hidden1", "relu"), 1, "out")


def cnn(ops: Ops, x: Value) -> Value:
    """Two 3 by 3 convolutions with batch norm and pooling, and two dense layers."""
    for layer, filters in enumerate((32, 64)):
        x = ops.batch_norm(ops.conv(x, filters, 3, f"conv{layer}", pad="same"), f"norm{layer}")
        x = ops.max_pool(ops.activation(x, "relu"), 2, 2, 0)
    return ops.dense(ops.dense(ops.flatten(x), 128, "hidden", "relu"), CLASSES, "logits")


def classifier(ops: Ops, x: Value) -> Value:
    """The transformer encoder, with a class for each sequence."""
    return ops.dense(ops.row_mean(transformer(ops, x)), CLASSES, "logits")


def decoder_step(ops: Ops, x: Value) -> Value:
    """Five decoder blocks of width 512 with eight heads, for one token without earlier ones: 63 MB of weights."""
    for block in range(5):
        x = ops.add(x, ops.attention(ops.layer_norm(x, f"norm{block}"), 8, f"attention{block}"))
        hidden = ops.dense(ops.layer_norm(x, f"mlp_norm{block}"), 2048, f"hidden{block}", "gelu")
        x = ops.add(x, ops.dense(hidden, 512, f"out{block}"))
    return ops.layer_norm(x, "norm")


def decoder_cached(ops: Ops, x: Value) -> Value:
    """Five decoder blocks as in GPT-2, for one token after 256 others, whose keys and values are cached.

    The input's rows are the token, and each block's keys and values. The results are the token's last state, and its own keys and
    values for the cache.
    """
    past, width, heads = 256, 512, 8
    token, cached = ops.rows(x, 0, 1), []
    for block in range(5):
        normed = ops.layer_norm(token, f"norm{block}")
        query, key, value = (ops.dense(normed, width, f"{part}{block}") for part in ("query", "key", "value"))
        start = 1 + 2 * past * block
        keys = ops.join([ops.rows(x, start, past), key])
        values = ops.join([ops.rows(x, start + past, past), value])
        token = ops.add(token, ops.dense(ops.attend(query, keys, values, heads), width, f"mixed{block}"))
        hidden = ops.dense(ops.layer_norm(token, f"mlp_norm{block}"), 4 * width, f"hidden{block}", "gelu")
        token = ops.add(token, ops.dense(hidden, width, f"out{block}"))
        cached += [key, value]
    return ops.join([ops.layer_norm(token, "norm"), *cached])


MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        Model("mlp", "10-64-64-1 net, batch 1", 1, (10,), mlp),
        Model("fc", "fc 784-256-10, batch 1", 1, (784,), fc),
        Model("fc_b64", "fc 784-256-10, batch 64", 64, (784,), fc),
        Model("conv", "conv + fc, batch 1", 1, (28, 28, 3), conv),
        Model("lstm", "LSTM(128) × 50, batch 1", 1, (50, 64), lstm),
        Model("mobilenet_v2", "MobileNetV2 224×224, batch 1", 1, (224, 224, 3), mobilenet_v2),
        Model("resnet18", "ResNet-18 224×224, batch 1", 1, (224, 224, 3), resnet18),
        Model("transformer", "transformer encoder, 32 tokens", 1, (32,), transformer, tokens=1000),
        Model("decoder_step", "decoder, 63 MB, one token", 1, (1, 512), decoder_step),
        Model("decoder_cached", "decoder, cache of 256 tokens, one token", 1, (2561, 512), decoder_cached),
        Model("fc_bn_adam_train", "fc + BN + Adam, training, batch 64", 64, (784,), fc_bn, optimizer="adam"),
        Model("conv_train", "conv + fc + SGD, training, batch 64", 64, (28, 28, 3), conv, optimizer="sgd"),
        Model("lstm_train", "LSTM(128) × 50 + SGD, training, batch 16", 16, (50, 64), lstm, optimizer="sgd"),
        Model("resnet50", "ResNet-50 224×224, batch 1", 1, (224, 224, 3), resnet50),
        Model("efficientnet_b0", "EfficientNet-B0 224×224, batch 1", 1, (224, 224, 3), efficientnet_b0),
        Model("bert_base", "BERT-base, 128 tokens", 1, (128,), bert_base, tokens=30522),
        Model("unet", "U-Net 128×128, batch 1", 1, (128, 128, 3), unet),
        Model("wavenet", "dilated Conv1D × 10, 1024 steps", 1, (1024, 1), wavenet),
        Model("gru", "GRU(128) × 50, batch 1", 1, (50, 64), gru),
        Model("dlrm", "DLRM-like, 26 tables, batch 16", 16, (26,), dlrm, tokens=26000),
        Model("cnn_train", "CNN + BN + SGD, training, batch 32", 32, (32, 32, 3), cnn, optimizer="sgd"),
        Model(
            "transformer_train",
            "transformer encoder + Adam, training, batch 8",
            8,
            (32,),
            classifier,
            optimizer="adam",
            tokens=1000,
        ),
    )
}


def inputs(model: Model) -> tuple[Array, ...]:
    """Returns the inputs for all timings: the model's input, and for training also the labels."""
    shape = (model.batch, *model.shape)
    if model.tokens:
        x = draw(f"{model.family}/input", shape, 0, model.tokens).astype(np.int32)
    else:
        x = draw(f"{model.family}/input", shape, -1.7, 1.7)  # variance of about one
    if not model.optimizer:
        return (x,)
    classes = draw(f"{model.family}/labels", (model.batch,), 0, CLASSES).astype(np.int64)
    return x, np.eye(CLASSES, dtype=np.float32)[classes]
