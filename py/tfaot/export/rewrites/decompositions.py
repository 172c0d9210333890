"""Spells out ops that XLA computes differently than TensorFlow's kernels, in simpler ops. Pure.

- Fake quantization: XLA rounds the distance from the range's lower end instead of the steps from zero, so 0.0 doesn't
  stay 0.0.
- Gradients of complex `sqrt`, `rsqrt`, and `reciprocal`: XLA doesn't conjugate the derivative.
- The gradient of `selu`: XLA tests whether the activation is above zero, TensorFlow whether it is below. Zero and NaN are neither.
- Products less the largest of them, as in a softmax of scores times a factor: XLA rounds the largest, and computes the difference
  from the product that isn't rounded. Of a mask's -1e9, that is up to 32 instead of 0, or infinite.
- Counts with as many bins at least as at most: XLA must know the number, and TensorFlow computes it from the values.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import numpy as np
from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2
from tensorflow.python.framework import tensor_util

from tfaot.graph.edits import Scope, become, use_renamed
from tfaot.graph.ops import CALLS, IDENTITIES

_OPS = {"FakeQuantWithMinMaxArgs": False, "FakeQuantWithMinMaxVars": True, "FakeQuantWithMinMaxVarsPerChannel": True}
"""The ops, and whether a range that is empty at zero turns everything into zeros."""

_GRADIENTS = ("InvGrad", "ReciprocalGrad", "RsqrtGrad", "SqrtGrad")
"""Ops that take a function's value and that value's gradient."""

_COMPLEX = (types_pb2.DT_COMPLEX64, types_pb2.DT_COMPLEX128)

_F32 = types_pb2.DT_FLOAT

_LESS_LARGEST = ("LogSoftmax", "Softmax", "SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits")
"""Ops that subtract the largest value of each row of their first operand."""

_FUSED = (_F32, types_pb2.DT_DOUBLE)
"""The dtypes in which XLA fuses products with differences."""

_MOVES = IDENTITIES | {"BroadcastTo", "ExpandDims", "Reshape", "Squeeze", "Transpose"}
"""Ops that return their first operand's values."""


def spell_out(graph: graph_pb2.GraphDef) -> None:
    """Rewrites a graph and its functions in place. Nodes keep their names."""
    _spell(Scope.graph(graph))
    for function in graph.library.function:
        scope = Scope.function(function)
        _spell(scope)
        use_renamed(function, scope.renamed)


def _spell(scope: Scope) -> None:
    for node in list(scope.nodes):
        if node.op in _OPS:
            _Quantization(node, scope).write()
            scope.rename_output(node, "outputs", "z")
        elif node.op in _GRADIENTS and node.attr["T"].type in _COMPLEX:
            _conjugate(node, scope)
        elif node.op == "SeluGrad":
            _not_below(node, scope)
        elif node.op in (*_LESS_LARGEST, "Sub") and node.attr["T"].type in _FUSED:
            _Largest(node, scope).write()
        elif node.op in ("Bincount", "DenseBincount"):
            _fix_bins(node, scope)


def _fix_bins(node: node_def_pb2.NodeDef, scope: Scope) -> None:
    """Replaces a number of bins, the smaller one of a constant and of another one or more, by the constant."""

    def constants(operand: str, op: str) -> tuple[list[tuple[int, str]], list[str]]:
        computed = scope.node(operand)
        known, others = [], []
        for source in computed.input[:2] if computed is not None and computed.op == op else []:
            value = scope.node(source)
            if value is not None and value.op == "Const":
                known.append((int(tensor_util.MakeNdarray(value.attr["value"].tensor)), source))
            else:
                others.append(source)
        return known, others

    most, others = constants(node.input[1], "Minimum")
    least = [value for other in others for value, _ in constants(other, "Maximum")[0]]
    if most and least and least[0] >= most[0][0]:
        node.input[1] = most[0][1]


def _conjugate(node: node_def_pb2.NodeDef, scope: Scope) -> None:
    """Turns the gradient into a product or quotient of the conjugated value and that value's gradient."""
    types = {"T": node.attr["T"].type}
    value, gradient, *waits = node.input

    def add(name: str, op: str, *inputs: str) -> str:
        output = {"Conj": "output", "Neg": "y"}.get(op, "z")
        return scope.output(scope.add(f"{node.name}/{name}", op, inputs, types), output)

    conjugate = add("conjugate", "Conj", value)
    if node.op == "SqrtGrad":
        op, operands = "RealDiv", [gradient, add("twice", "AddV2", conjugate, conjugate)]
    else:
        factor = add("square", "Mul", conjugate, conjugate)
        if node.op == "RsqrtGrad":
            factor = add("half_cube", "Mul", factor, add("halved", "Mul", conjugate, _half(node, scope)))
        op, operands = "Mul", [add("negated", "Neg", gradient), factor]
    node.ClearField("input")
    node.input.extend([*operands, *waits])
    become(node, op, types)


def _not_below(node: node_def_pb2.NodeDef, scope: Scope) -> None:
    """Replaces activations that aren't below zero with one, for which XLA's gradient is correct."""
    types = {"T": node.attr["T"].type}
    value = node.input[1]

    def add(name: str, op: str, output: str, *inputs: str) -> str:
        return scope.output(scope.add(f"{node.name}/{name}", op, inputs, types), output)

    below = add("below", "Less", "z", value, add("zero", "ZerosLike", "y", value))
    node.input[1] = add("activation", "SelectV2", "output", below, value, add("one", "OnesLike", "y", value))


class _Largest:
    """A node that may subtract the largest of some products from them."""

    def __init__(self, node: node_def_pb2.NodeDef, scope: Scope) -> None:
        self._node = node
        self._scope = scope
        self._types = {"T": node.attr["T"].type}

    def write(self) -> None:
        """Limits the products to the largest one. That changes no value, and XLA can't fuse it with a product."""
        node = self._node
        values = node.input[0]
        if node.op == "Sub":
            largest = self._largest_of(values, node.input[1], node.input[1])
            if largest and self._is_product(values):
                node.input[0] = self._add("at_most", "Minimum", values, largest)
            return
        if not self._is_product(values):
            return
        largest = self._reduced("largest", "Max", values)
        limited = self._add("at_most", "Minimum", values, largest)
        if "CrossEntropy" in node.op:
            node.input[0] = limited
            return
        # The op would look for the largest value once more.
        less = self._add("less", "Sub", limited, largest)
        powers = self._add("powers", "Exp", less)
        total = self._reduced("sum", "Sum", powers)
        waits = [operand for operand in node.input if operand.startswith("^")]
        if node.op == "Softmax":
            op, operands = "RealDiv", [powers, total]
        else:
            op, operands = "Sub", [less, self._add("log", "Log", total)]
        self._scope.rename_output(node, "logsoftmax" if node.op == "LogSoftmax" else "softmax", "z")
        node.ClearField("input")
        node.input.extend([*operands, *waits])
        become(node, op, self._types)

    def _add(self, name: str, op: str, *inputs: str) -> str:
        output = {"Exp": "y", "Log": "y"}.get(op, "z")
        return self._scope.output(self._scope.add(f"{self._node.name}/{name}", op, inputs, self._types), output)

    def _reduced(self, name: str, op: str, values: str) -> str:
        int32 = types_pb2.DT_INT32
        axis = self._scope.add(f"{self._node.name}/axis", "Const", self._scope.wait_for(values), {"dtype": int32})
        axis.attr["value"].tensor.CopyFrom(tensor_util.make_tensor_proto([-1], np.int32))
        operands = (values, self._scope.output(axis, "output"))
        types = self._types | {"Tidx": int32}
        added = self._scope.add(f"{self._node.name}/{name}", op, operands, types)
        added.attr["keep_dims"].b = True
        return self._scope.output(added, "output")

    def _largest_of(self, values: str, operand: str, moved: str) -> str:
        """Returns the largest of some values if another operand comes from it, as the logarithm of their sum does.

        Args:
          values: what it must be the largest of.
          operand: the operand.
          moved: an operand with the same values that can be compared with `values`; empty if there is none.
        """
        node = self._scope.node(operand)
        if node is None:
            return ""
        if node.op == "Max":
            if node.attr["keep_dims"].b and self._origin(node.input[0], IDENTITIES) == self._origin(values, IDENTITIES):
                return operand
            return moved if self._origin(node.input[0]) == self._origin(values) else ""
        if node.op in _MOVES:
            return self._largest_of(values, node.input[0], moved)
        # `reduce_logsumexp` subtracts 0 instead of an infinite value.
        others = {"AddV2": node.input[:2], "Select": node.input[1:2], "SelectV2": node.input[1:2]}.get(node.op, [])
        return next(filter(None, (self._largest_of(values, term, "") for term in others)), "")

    def _origin(self, operand: str, moves: Container[str] = _MOVES) -> str:
        while (node := self._scope.node(operand)) and node.op in moves:
            operand = node.input[0]
        return operand

    def _is_product(self, operand: str) -> bool:
        """Returns whether values are products, or may be: those of a function's argument or result."""
        while node := self._scope.node(operand):
            if node.op == "Mul":
                return not any(self._is_exact(factor) for factor in node.input[:2])
            if node.op not in _MOVES | {"Neg"}:
                return node.op == "Square" or node.op in CALLS
            operand = node.input[0]
        return True

    def _is_exact(self, operand: str) -> bool:
        """Returns whether a factor is a constant power of two, so that products aren't rounded."""
        node = self._scope.node(self._origin(operand))
        if node is None or node.op != "Const":
            return False
        mantissas, _ = np.frexp(np.abs(tensor_util.MakeNdarray(node.attr["value"].tensor)))
        return bool(np.all(mantissas == 0.5))


def _half(node: node_def_pb2.NodeDef, scope: Scope) -> str:
    """Adds the constant 0.5, in the same round of a loop as the node."""
    dtype = node.attr["T"].type
    constant = scope.add(f"{node.name}/half", "Const", scope.wait_for(node.input[0]), {"dtype": dtype})
    tensor = constant.attr["value"].tensor
    tensor.dtype = dtype
    tensor.tensor_shape.SetInParent()
    (tensor.scomplex_val if dtype == types_pb2.DT_COMPLEX64 else tensor.dcomplex_val).extend([0.5, 0.0])
    return scope.output(constant, "output")


class _Quantization:
    """A node, and the nodes that are added for it."""

    def __init__(self, node: node_def_pb2.NodeDef, scope: Scope) -> None:
        self._node = node
        self._scope = scope
        self._waits = [operand for operand in node.input if operand.startswith("^")]
        # Constants wait for what the node waits for, which puts them in the same round of a loop.
        self._with = self._waits or scope.wait_for(node.input[0])

    def write(self) -> None:
        """Turns the node into a product of the steps and their size."""
        node = self._node
        empty = _OPS[node.op]
        bits = node.attr["num_bits"].i if "num_bits" in node.attr else 8
        low = 1.0 if node.attr["narrow_range"].b else 0.0
        high = float((1 << bits) - 1)
        operands = [operand for operand in node.input if not operand.startswith("^")]
        if len(operands) == 1:
            least = self._constant("min", node.attr["min"].f if "min" in node.attr else -6.0)
            most = self._constant("max", node.attr["max"].f if "max" in node.attr else 6.0)
        else:
            least, most = operands[1:]
        bottom, top, half, one = (
            self._constant(n, v) for n, v in (("low", low), ("high", high), ("half", 0.5), ("one", 1.0))
        )
        scale = self._add(
            "scale", "RealDiv", self._add("range", "Sub", most, least), self._constant("steps", high - low)
        )
        # Rounds half away from zero, as C++ does. The point isn't negative where that matters.
        point = self._add("point", "Sub", bottom, self._add("min_steps", "RealDiv", least, scale))
        whole = self._add("whole", "Floor", point)
        up = self._add("up", "GreaterEqual", self._add("rest", "Sub", point, whole), half)
        round_up = self._add("round_up", "SelectV2", up, self._add("next", "AddV2", whole, one), whole)
        zero_point = self._add("zero_point", "Minimum", self._add("clamped_point", "Maximum", round_up, bottom), top)
        nudged_min = self._add("nudged_min", "Mul", self._add("below", "Sub", bottom, zero_point), scale)
        nudged_max = self._add("nudged_max", "Mul", self._add("above", "Sub", top, zero_point), scale)
        inverse = self._add("inverse", "RealDiv", one, scale)
        from_min = self._add("from_min", "Mul", self._add("negated", "Neg", nudged_min), inverse)
        zero = self._add("zero", "Floor", self._add("zero_half", "AddV2", from_min, half))
        clamped = self._add("clamped", "Maximum", self._add("at_most", "Minimum", operands[0], nudged_max), nudged_min)
        shifted = self._add("steps_up", "Mul", self._add("shifted", "Sub", clamped, nudged_min), inverse)
        quantized = self._add(
            "quantized", "Floor", self._add("half_up", "AddV2", self._add("from_zero", "Sub", shifted, zero), half)
        )
        if empty:
            none = self._constant("none", 0.0)
            nothing = self._add(
                "nothing",
                "LogicalAnd",
                self._add("min_zero", "Equal", least, none),
                self._add("max_zero", "Equal", most, none),
            )
            # Set both, because the steps are NaN there, and so is their size.
            quantized = self._add("quantized_or_0", "SelectV2", nothing, none, quantized)
            scale = self._add("scale_or_0", "SelectV2", nothing, none, scale)
        node.ClearField("input")
        node.input.extend([quantized, scale, *self._waits])
        become(node, "Mul", {"T": _F32})

    def _add(self, name: str, op: str, *inputs: str) -> str:
        types: Mapping[str, int] = {} if op == "LogicalAnd" else {"T": _F32}
        output = {"Floor": "y", "Neg": "y", "SelectV2": "output"}.get(op, "z")
        return self._scope.output(self._scope.add(f"{self._node.name}/{name}", op, inputs, types), output)

    def _constant(self, name: str, value: float) -> str:
        waits: Sequence[str] = self._with
        node = self._scope.add(f"{self._node.name}/{name}", "Const", waits, {"dtype": _F32})
        tensor = node.attr["value"].tensor
        tensor.dtype = _F32
        tensor.tensor_shape.SetInParent()
        tensor.float_val.append(value)
        return self._scope.output(node, "output")
