"""The models in ONNX. Images are NCHW, as its runtimes prefer; weights after a flattened image are reordered to match."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks import definitions
from benchmarks.definitions import Array, Model, Weights

OPSET = 20


@dataclasses.dataclass(frozen=True)
class Node:
    """A value: its name and its shape, with NHWC for images."""

    name: str
    shape: tuple[int, ...]
    flattened: tuple[int, int, int] | None = None
    """For a flattened image, its height, width, and channels."""


def to_edge(value: Array) -> Array:
    """Converts an input to the layout that the ONNX model takes."""
    return np.ascontiguousarray(value.transpose(0, 3, 1, 2)) if value.ndim == 4 else value


class OnnxOps:
    """Collects nodes and weights."""

    def __init__(self, family: str) -> None:
        self._weights = Weights(family)
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []

    def constant(self, name: str, value: Array) -> str:
        """Adds a weight, and returns its name."""
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, kind: str, inputs: list[str], shape: tuple[int, ...], name: str = "", **attributes: Any) -> Node:
        """Adds a node with one result."""
        result = name or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [result], name=result + "_node", **attributes))
        return Node(result, shape)

    def dense(self, x: Node, units: int, name: str, activation: str = "") -> Node:
        fan_in = x.shape[-1]
        kernel = self._weights.kernel(name + "/kernel", (fan_in, units), fan_in)
        if x.flattened:
            h, w, c = x.flattened
            kernel = kernel.reshape(h, w, c, units).transpose(2, 0, 1, 3).reshape(fan_in, units)
        weights = self.constant(name + "/kernel", kernel)
        bias = self.constant(name + "/bias", self._weights.vector(name + "/bias", units))
        shape = (*x.shape[:-1], units)
        if len(shape) == 2:
            y = self.node("Gemm", [x.name, weights, bias], shape)
        else:
            y = self.node("Add", [self.node("MatMul", [x.name, weights], shape).name, bias], shape)
        return self.activation(y, activation) if activation else y

    def conv(
        self,
        x: Node,
        filters: int,
        size: int,
        name: str,
        *,
        stride: int = 1,
        pad: str | int = "valid",
        bias: bool = True,
    ) -> Node:
        channels = x.shape[-1]
        kernel = self._weights.kernel(name + "/kernel", (size, size, channels, filters), size * size * channels)
        inputs = [x.name, self.constant(name + "/kernel", kernel.transpose(3, 2, 0, 1))]
        if bias:
            inputs.append(self.constant(name + "/bias", self._weights.vector(name + "/bias", filters)))
        return self._convolve(inputs, x, filters, size, stride, pad)

    def depthwise(self, x: Node, size: int, name: str, *, stride: int = 1) -> Node:
        channels = x.shape[-1]
        kernel = self._weights.kernel(name + "/kernel", (size, size, channels, 1), size * size)
        inputs = [x.name, self.constant(name + "/kernel", kernel.transpose(2, 3, 0, 1))]
        return self._convolve(inputs, x, channels, size, stride, "same", group=channels)

    def _convolve(
        self, inputs: list[str], x: Node, filters: int, size: int, stride: int, pad: str | int, group: int = 1
    ) -> Node:
        batch, height, width, _ = x.shape
        pads, sizes = [], []
        for length in (height, width):
            if pad == "same":
                out = -(-length // stride)
                total = max((out - 1) * stride + size - length, 0)
                before, after = total // 2, total - total // 2
            else:
                before = after = 0 if isinstance(pad, str) else pad
                out = (length + before + after - size) // stride + 1
            pads.append((before, after))
            sizes.append(out)
        return self.node(
            "Conv",
            inputs,
            (batch, *sizes, filters),
            kernel_shape=[size, size],
            strides=[stride, stride],
            pads=[pads[0][0], pads[1][0], pads[0][1], pads[1][1]],
            group=group,
        )

    def batch_norm(self, x: Node, name: str) -> Node:
        values = self._weights.batch_norm(name, x.shape[-1])
        names = [self.constant(f"{name}/{index}", value) for index, value in enumerate(values)]
        return self.node("BatchNormalization", [x.name, *names], x.shape, epsilon=definitions.BATCH_NORM_EPSILON)

    def activation(self, x: Node, kind: str) -> Node:
        if kind == "relu6":
            bounds = [
                self.constant(f"relu6_{len(self.nodes)}_{i}", np.array(b, np.float32)) for i, b in enumerate((0, 6))
            ]
            return self.node("Clip", [x.name, *bounds], x.shape)
        if kind == "silu":
            return self.node("Mul", [x.name, self.activation(x, "sigmoid").name], x.shape)
        kinds = {"relu": "Relu", "tanh": "Tanh", "gelu": "Gelu", "sigmoid": "Sigmoid"}
        return self.node(kinds[kind], [x.name], x.shape)

    def add(self, x: Node, y: Node) -> Node:
        return self.node("Add", [x.name, y.name], x.shape)

    def gate(self, x: Node, factors: Node) -> Node:
        batch, channels = factors.shape
        shape = self.constant(f"gate_{len(self.nodes)}", np.array([batch, channels, 1, 1], np.int64))
        return self.node("Mul", [x.name, self.node("Reshape", [factors.name, shape], ()).name], x.shape)

    def concat(self, x: Node, y: Node) -> Node:
        return self.node("Concat", [x.name, y.name], (*x.shape[:-1], x.shape[-1] + y.shape[-1]), axis=1)

    def upsample(self, x: Node) -> Node:
        batch, height, width, channels = x.shape
        scales = self.constant(f"scales_{len(self.nodes)}", np.array([1, 1, 2, 2], np.float32))
        shape = (batch, 2 * height, 2 * width, channels)
        kinds = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return self.node("Resize", [x.name, "", scales], shape, **kinds)

    def max_pool(self, x: Node, size: int, stride: int, pad: int) -> Node:
        batch, height, width, channels = x.shape
        sizes = [(length + 2 * pad - size) // stride + 1 for length in (height, width)]
        pads: dict[str, Any] = {"pads": [pad] * 4, "strides": [stride] * 2, "kernel_shape": [size] * 2}
        return self.node("MaxPool", [x.name], (batch, *sizes, channels), **pads)

    def spatial_mean(self, x: Node) -> Node:
        shape = (x.shape[0], x.shape[-1])
        return self.node("Flatten", [self.node("GlobalAveragePool", [x.name], shape).name], shape)

    def flatten(self, x: Node) -> Node:
        batch, height, width, channels = x.shape
        y = self.node("Flatten", [x.name], (batch, height * width * channels))
        return dataclasses.replace(y, flattened=(height, width, channels))

    def lstm(self, x: Node, units: int, name: str) -> Node:
        batch, _, features = x.shape

        def gates(value: Array) -> Array:
            i, f, c, o = np.split(value, 4, axis=-1)
            return np.concatenate([i, o, f, c], axis=-1)

        kernel = gates(self._weights.kernel(name + "/kernel", (features, 4 * units), 3 * features)).T[None]
        recurrent = gates(self._weights.kernel(name + "/recurrent", (units, 4 * units), 6 * units)).T[None]
        bias = gates(self._weights.vector(name + "/bias", 4 * units))
        bias = np.concatenate([bias, np.zeros_like(bias)])[None]
        steps = self.node("Transpose", [x.name], (x.shape[1], batch, features), perm=[1, 0, 2])
        values = [self.constant(f"{name}/{i}", v) for i, v in enumerate((kernel, recurrent, bias))]
        last = f"{name}_last"
        self.nodes.append(helper.make_node("LSTM", [steps.name, *values], ["", last], hidden_size=units))
        axis = self.constant(name + "/axis", np.array([0], np.int64))
        return self.node("Squeeze", [last, axis], (batch, units))

    def gru(self, x: Node, units: int, name: str) -> Node:
        batch, steps, features = x.shape
        values = (
            self._weights.kernel(name + "/kernel", (features, 3 * units), 3 * features).T[None],
            self._weights.kernel(name + "/recurrent", (units, 3 * units), 6 * units).T[None],
            self._weights.vector(name + "/bias", 6 * units)[None],
        )
        names = [self.constant(f"{name}/{index}", value) for index, value in enumerate(values)]
        rows = self.node("Transpose", [x.name], (steps, batch, features), perm=[1, 0, 2])
        last = f"{name}_last"
        self.nodes.append(
            helper.make_node("GRU", [rows.name, *names], ["", last], hidden_size=units, linear_before_reset=1)
        )
        axis = self.constant(name + "/axis", np.array([0], np.int64))
        return self.node("Squeeze", [last, axis], (batch, units))

    def causal_conv(self, x: Node, filters: int, size: int, name: str, *, dilation: int) -> Node:
        batch, steps, features = x.shape
        kernel = self._weights.kernel(name + "/kernel", (size, features, filters), size * features)
        columns = self.node("Transpose", [x.name], (batch, features, steps), perm=[0, 2, 1])
        values = (
            self.constant(name + "/kernel", kernel.transpose(2, 1, 0)),
            self.constant(name + "/bias", self._weights.vector(name + "/bias", filters)),
        )
        pads = [(size - 1) * dilation, 0]
        options: dict[str, Any] = {"kernel_shape": [size], "dilations": [dilation], "pads": pads}
        y = self.node("Conv", [columns.name, *values], (batch, filters, steps), **options)
        return self.node("Transpose", [y.name], (batch, steps, filters), perm=[0, 2, 1])

    def interact(self, x: Node) -> Node:
        batch, rows, width = x.shape
        turned = self.node("Transpose", [x.name], (batch, width, rows), perm=[0, 2, 1])
        products = self.node("MatMul", [x.name, turned.name], (batch, rows, rows))
        return self.node("Flatten", [products.name], (batch, rows * rows))

    def row_mean(self, x: Node) -> Node:
        axes = self.constant(f"axes_{len(self.nodes)}", np.array([1], np.int64))
        return self.node("ReduceMean", [x.name, axes], (x.shape[0], x.shape[2]), keepdims=0)

    def embed(self, tokens: Node, vocabulary: int, width: int, name: str) -> Node:
        shape = (*tokens.shape, width)
        table = self.constant(name + "/table", self._weights.kernel(name + "/table", (vocabulary, width), 2))
        places = self._weights.kernel(name + "/positions", (tokens.shape[1], width), 2)
        rows = self.node("Gather", [table, tokens.name], shape)
        return self.node("Add", [rows.name, self.constant(name + "/positions", places)], shape)

    def attention(self, x: Node, heads: int, name: str) -> Node:
        batch, tokens, width = x.shape
        size = width // heads

        def project(value: Node, part: str) -> Node:
            kernel = self._weights.kernel(f"{name}/{part}/kernel", (width, width), 3 * width)
            bias = self._weights.vector(f"{name}/{part}/bias", width)
            if part == "query":  # scaled once, not for each product
                kernel, bias = kernel / np.float32(np.sqrt(size)), bias / np.float32(np.sqrt(size))
            y = self.node("MatMul", [value.name, self.constant(f"{name}/{part}/kernel", kernel)], value.shape)
            return self.node("Add", [y.name, self.constant(f"{name}/{part}/bias", bias)], value.shape)

        def split(part: str, perm: list[int]) -> Node:
            shape = self.constant(f"{name}/{part}/shape", np.array([batch, tokens, heads, size], np.int64))
            y = self.node("Reshape", [project(x, part).name, shape], (batch, tokens, heads, size))
            return self.node("Transpose", [y.name], y.shape, perm=perm)

        query, key, value = split("query", [0, 2, 1, 3]), split("key", [0, 2, 3, 1]), split("value", [0, 2, 1, 3])
        scores = self.node("MatMul", [query.name, key.name], (batch, heads, tokens, tokens))
        weights = self.node("Softmax", [scores.name], scores.shape, axis=-1)
        mixed = self.node("MatMul", [weights.name, value.name], (batch, heads, tokens, size))
        back = self.node("Transpose", [mixed.name], (batch, tokens, heads, size), perm=[0, 2, 1, 3])
        shape = self.constant(f"{name}/shape", np.array([batch, tokens, width], np.int64))
        return project(self.node("Reshape", [back.name, shape], x.shape), "out")

    def attend(self, query: Node, keys: Node, values: Node, heads: int) -> Node:
        batch, tokens, width = query.shape
        size, count = width // heads, keys.shape[1]

        def split(x: Node, perm: list[int]) -> Node:
            shape = (batch, x.shape[1], heads, size)
            target = self.constant(f"shape_{len(self.nodes)}", np.array(shape, np.int64))
            y = self.node("Reshape", [x.name, target], shape)
            return self.node("Transpose", [y.name], shape, perm=perm)

        factor = self.constant(f"factor_{len(self.nodes)}", np.array(1 / np.sqrt(size), np.float32))
        scaled = self.node("Mul", [query.name, factor], query.shape)
        scores = [split(scaled, [0, 2, 1, 3]).name, split(keys, [0, 2, 3, 1]).name]
        products = self.node("MatMul", scores, (batch, heads, tokens, count))
        weights = self.node("Softmax", [products.name], products.shape, axis=-1)
        mixed = [weights.name, split(values, [0, 2, 1, 3]).name]
        back = self.node("Transpose", [self.node("MatMul", mixed, ()).name], (), perm=[0, 2, 1, 3])
        shape = self.constant(f"shape_{len(self.nodes)}", np.array(query.shape, np.int64))
        return self.node("Reshape", [back.name, shape], query.shape)

    def rows(self, x: Node, start: int, count: int) -> Node:
        at = f"rows_{len(self.nodes)}"
        ends = [self.constant(f"{at}_{i}", np.array([v], np.int64)) for i, v in enumerate((start, start + count, 1))]
        return self.node("Slice", [x.name, *ends], (x.shape[0], count, x.shape[2]))

    def join(self, values: list[Node]) -> Node:
        batch, _, width = values[0].shape
        shape = (batch, sum(value.shape[1] for value in values), width)
        return self.node("Concat", [value.name for value in values], shape, axis=1)

    def layer_norm(self, x: Node, name: str) -> Node:
        width = x.shape[-1]
        gamma = self.constant(name + "/gamma", self._weights.vector(name + "/gamma", width, 0.8, 1.2))
        beta = self.constant(name + "/beta", self._weights.vector(name + "/beta", width))
        epsilon = definitions.LAYER_NORM_EPSILON
        return self.node("LayerNormalization", [x.name, gamma, beta], x.shape, axis=-1, epsilon=epsilon)


def build(model: Model) -> Any:
    """Builds the ONNX model of a definition."""
    ops = OnnxOps(model.family)
    shape = (model.batch, *model.shape)
    y = model.body(ops, Node("x", shape))
    edge = (shape[0], shape[3], shape[1], shape[2]) if len(shape) == 4 else shape
    kind = TensorProto.INT32 if model.tokens else TensorProto.FLOAT
    graph = helper.make_graph(
        ops.nodes,
        model.family,
        [helper.make_tensor_value_info("x", kind, edge)],
        [helper.make_tensor_value_info(y.name, TensorProto.FLOAT, y.shape)],
        ops.initializers,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    onnx.checker.check_model(made, full_check=True)
    return made


if __name__ == "__main__":
    onnx.save(build(definitions.MODELS[sys.argv[1]]), sys.argv[2])
