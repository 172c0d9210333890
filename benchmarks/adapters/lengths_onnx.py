"""The models of `lengths.py` in ONNX, with a dimension that any length fits.

lengths_onnx.py MODEL WEIGHTS.npz OUT
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Ops:
    """Collects nodes and weights."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []

    def constant(self, value: Any) -> str:
        """Adds a constant, and returns its name."""
        name = f"constant_{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def __call__(self, kind: str, *inputs: Any, out: str = "", **attributes: Any) -> str:
        """Adds a node of one result, and returns its name. Arrays become constants."""
        result = out or f"{kind.lower()}_{len(self.nodes)}"
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        self.nodes.append(helper.make_node(kind, names, [result], **attributes))
        return result


def encoder(op: Ops, weights: Any) -> dict[str, list[Any]]:
    """Adds the example's encoder. Returns its outputs' shapes."""
    x = op("Gather", weights["words"], "tokens")
    width, heads = weights["words"].shape[1], 4
    bias = op("Mul", op("Sub", "mask", np.float32(1)), np.float32(1e9))
    bias = op("Unsqueeze", bias, np.array([1, 2]))
    ones = np.ones(width, np.float32)
    split = np.array([0, 0, heads, width // heads])
    for layer in range(2):
        kernel = weights[f"heads{layer}"].copy()
        kernel[:, :width] /= np.float32((width // heads) ** 0.5)
        normed = op("LayerNormalization", x, ones, epsilon=1e-6)
        parts = np.split(kernel, 3, 1)
        query, key, value = (
            op("Transpose", op("Reshape", op("MatMul", normed, part), split), perm=perm)
            for part, perm in zip(parts, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
        )
        scores = op("Softmax", op("Add", op("MatMul", query, key), bias), axis=-1)
        mixed = op("Transpose", op("MatMul", scores, value), perm=[0, 2, 1, 3])
        mixed = op("MatMul", op("Reshape", mixed, np.array([0, 0, width])), weights[f"mixed{layer}"])
        x = op("Add", x, mixed)
        up = op("Relu", op("MatMul", op("LayerNormalization", x, ones, epsilon=1e-6), weights[f"up{layer}"]))
        x = op("Add", x, op("MatMul", up, weights[f"down{layer}"]), out="states" if layer else "")
    total = op("ReduceSum", op("Mul", x, op("Unsqueeze", "mask", np.array([2]))), np.array([1]), keepdims=0)
    op("Div", total, op("ReduceSum", "mask", np.array([1]), keepdims=1), out="sentence")
    return {"sentence": [1, width], "states": [1, "length", width]}


def tagger(op: Ops, weights: Any) -> dict[str, list[Any]]:
    """Adds the example's tagger. ONNX and Keras have the gates in the same order."""
    x = op("Transpose", op("Gather", weights["words"], "tokens"), perm=[0, 2, 1])
    x = op("Relu", op("Conv", x, weights["kernel"].transpose(2, 1, 0), weights["bias"], pads=[1, 1]))
    x = op("Transpose", x, perm=[2, 0, 1])
    names = ("gates", "inner", "biases")
    kernel, inner, bias = (np.stack([weights[f"{way}_{name}"] for way in ("forward", "backward")]) for name in names)
    units = inner.shape[1]
    arrays = (kernel.transpose(0, 2, 1), inner.transpose(0, 2, 1), bias.reshape(2, 6 * units))
    x = op("GRU", x, *arrays, hidden_size=units, direction="bidirectional", linear_before_reset=1)
    x = op("Reshape", op("Transpose", x, perm=[2, 0, 1, 3]), np.array([0, 0, 2 * units]))
    op("Softmax", op("Add", op("MatMul", x, weights["tags"]), weights["tags_bias"]), axis=-1, out="tags")
    return {"tags": [1, "length", len(weights["tags_bias"])]}


def main() -> None:
    """Writes a model."""
    name, path, out = sys.argv[1:]
    op = Ops()
    outputs = {"encoder": encoder, "tagger": tagger}[name](op, dict(np.load(path)))
    inputs = [helper.make_tensor_value_info("tokens", TensorProto.INT32, [1, "length"])]
    inputs += [helper.make_tensor_value_info("mask", TensorProto.FLOAT, [1, "length"])] if name == "encoder" else []
    results = [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape) for output, shape in outputs.items()]
    graph = helper.make_graph(op.nodes, name, inputs, results, op.initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model)
    onnx.save(model, out)


if __name__ == "__main__":
    main()
