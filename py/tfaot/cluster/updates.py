"""Spells out updates of variables: a read, arithmetic that can join a cluster, and a write. Pure.

TensorFlow's kernels of optimizers compute a variable's new value and store it in one op. A cluster can compute the value,
and TensorFlow stores it without a copy: the variable takes the tensor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.cluster.predicates import ALWAYS, Predicate
from tfaot.cluster.reads import Before, accesses
from tfaot.core import dtypes
from tfaot.graph.edits import Scope, replace, set_attributes
from tfaot.graph.names import producer


@dataclasses.dataclass(frozen=True)
class _Value:
    """An operand of the arithmetic. Its operators add nodes."""

    operand: str
    add: Callable[[str, list[str]], str]
    constant: Callable[[float], str]

    def _do(self, op: str, *operands: _Value | float) -> _Value:
        names = [operand.operand if isinstance(operand, _Value) else self.constant(operand) for operand in operands]
        return dataclasses.replace(self, operand=self.add(op, names))

    def __add__(self, other: _Value) -> _Value:
        return self._do("AddV2", self, other)

    def __sub__(self, other: _Value) -> _Value:
        return self._do("Sub", self, other)

    def __rsub__(self, other: float) -> _Value:
        return self._do("Sub", other, self)

    def __mul__(self, other: _Value) -> _Value:
        return self._do("Mul", self, other)

    def __truediv__(self, other: _Value) -> _Value:
        return self._do("RealDiv", self, other)

    def sqrt(self) -> _Value:
        """Returns the root."""
        return self._do("Sqrt", self)

    def square(self) -> _Value:
        """Returns the square."""
        return self._do("Square", self)


@dataclasses.dataclass(frozen=True)
class Update:
    """An update that is spelled out."""

    arithmetic: tuple[str, ...]
    """The nodes that can join a cluster."""
    writes: tuple[str, ...]
    """The nodes that store values."""
    sums: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """If it was an update of rows: the nodes that compute what it adds to all rows, and what they stand for in the model."""


_Formula = Callable[[Sequence[_Value], bool], Sequence[_Value]]
"""Given a node's operands, with values for variables, and its flag: the new values of the first of them."""


def _add(operands: Sequence[_Value], _: bool) -> Sequence[_Value]:
    variable, delta = operands
    return [variable + delta]


def _subtract(operands: Sequence[_Value], _: bool) -> Sequence[_Value]:
    variable, delta = operands
    return [variable - delta]


def _descend(operands: Sequence[_Value], _: bool) -> Sequence[_Value]:
    variable, rate, gradient = operands
    return [variable - gradient * rate]


def _momentum(operands: Sequence[_Value], nesterov: bool) -> Sequence[_Value]:
    variable, sums, rate, gradient, momentum = operands
    sums = sums * momentum + gradient
    if nesterov:
        return [variable - (gradient * rate + sums * momentum * rate), sums]
    return [variable - sums * rate, sums]


def _keras_momentum(operands: Sequence[_Value], nesterov: bool) -> Sequence[_Value]:
    variable, sums, rate, gradient, momentum = operands
    sums = sums * momentum - gradient * rate
    return [variable + sums * momentum - gradient * rate if nesterov else variable + sums, sums]


def _adam(operands: Sequence[_Value], nesterov: bool) -> Sequence[_Value]:
    variable, mean, spread, power1, power2, rate, beta1, beta2, epsilon, gradient = operands
    rate = rate * (1.0 - power2).sqrt() / (1.0 - power1)
    mean = mean + (gradient - mean) * (1.0 - beta1)
    spread = spread + (gradient.square() - spread) * (1.0 - beta2)
    step = gradient * (1.0 - beta1) + mean * beta1 if nesterov else mean
    return [variable - step * rate / (spread.sqrt() + epsilon), mean, spread]


def _adagrad(operands: Sequence[_Value], sums_too: bool) -> Sequence[_Value]:
    variable, sums, rate, *epsilon, gradient = operands
    if sums_too:
        sums = sums + gradient.square()
    root = sums.sqrt() + epsilon[0] if epsilon else sums.sqrt()
    return [variable - gradient * rate / root, sums]


def _rms(operands: Sequence[_Value], _: bool) -> Sequence[_Value]:
    variable, spread, sums, rate, decay, momentum, epsilon, gradient = operands
    spread = spread + (gradient.square() - spread) * (1.0 - decay)
    sums = sums * momentum + gradient * rate / (spread + epsilon).sqrt()
    return [variable - sums, spread, sums]


@dataclasses.dataclass(frozen=True)
class _Rule:
    variables: int
    """How many of the first operands are variables, all of which get new values."""
    formula: _Formula
    flag: str = ""
    """The attribute that the formula depends on."""


_RULES: Mapping[str, _Rule] = {
    "AssignAddVariableOp": _Rule(1, _add),
    "AssignSubVariableOp": _Rule(1, _subtract),
    "ResourceApplyAdagrad": _Rule(2, _adagrad, "update_slots"),
    "ResourceApplyAdagradV2": _Rule(2, _adagrad, "update_slots"),
    "ResourceApplyAdam": _Rule(3, _adam, "use_nesterov"),
    "ResourceApplyGradientDescent": _Rule(1, _descend),
    "ResourceApplyKerasMomentum": _Rule(2, _keras_momentum, "use_nesterov"),
    "ResourceApplyMomentum": _Rule(2, _momentum, "use_nesterov"),
    "ResourceApplyRMSProp": _Rule(3, _rms),
}
"""The ops that are spelled out, as TensorFlow's kernels compute them."""


def spell_out(graph: graph_pb2.GraphDef, when: Mapping[str, Predicate], kept: Collection[str]) -> Mapping[str, Update]:
    """Spells out the updates of floats in a graph, in place. A NoOp with an update's name waits for its writes.

    A read waits for the writes that TensorFlow has finished by then, and for nothing else, so it doesn't keep what
    computes a gradient from sharing a cluster with what uses it.

    Args:
      graph: all calls are inlined.
      when: when each node runs. Updates in branches and loops aren't spelled out.
      kept: updates that stay as they are.

    Returns:
      What became of each update that is spelled out, by its node.
    """
    handles, writers = accesses(graph)
    before = Before(graph, writers)
    nodes = {node.name: node for node in graph.node}
    waits: dict[str, list[list[str]]] = {}
    for node in list(graph.node):
        rule = _RULES.get(node.op)
        if rule is None or node.name in kept or when[node.name] != ALWAYS or node.attr["use_locking"].b:
            continue
        names = [handles.get(producer(operand)) for operand in node.input[: rule.variables]]
        dtype = dtypes.BY_ENUM.get(node.attr["dtype" if node.op.startswith("Assign") else "T"].type)
        # A counter that several threads add to stays one op.
        if dtype is None or not dtype.floating or not all(name and len(name) == 1 for name in names):
            continue
        others = [
            [
                other
                for variable in name or ()
                for other in writers[variable]
                if other != node.name and before(other, node.name)
            ]
            for name in names
        ]
        if all(when[other] == ALWAYS for nodes_of_one in others for other in nodes_of_one):
            waits[node.name] = others
    scope = Scope.graph(graph)
    return {name: _spell(scope, nodes[name], others) for name, others in waits.items()}


def _spell(scope: Scope, node: node_def_pb2.NodeDef, others: Sequence[Sequence[str]]) -> Update:
    rule = _RULES[node.op]
    data = [operand for operand in node.input if not operand.startswith("^")]
    pending = [operand for operand in node.input if operand.startswith("^")]
    assigns = node.op.startswith("Assign")
    dtype = int(node.attr["dtype" if assigns else "T"].type)
    made: list[str] = []

    def add(op: str, operands: list[str]) -> str:
        made.append(scope.add(f"{node.name}/{op}", op, operands, {"T": dtype}).name)
        return made[-1]

    def constant(value: float) -> str:
        name = scope.add(f"{node.name}/constant", "Const", [], {"dtype": dtype})
        set_attributes(name, {"value": np.array(value, dtypes.BY_ENUM[dtype].numpy())})
        return str(name.name)

    values = list(data)
    for index, waits in enumerate(others):
        read = scope.add(f"{node.name}/read", "ReadVariableOp", [data[index]], {"dtype": dtype})
        read.input.extend(f"^{other}" for other in waits)
        values[index] = read.name
    flag = bool(node.attr[rule.flag].b) if rule.flag else False
    results = rule.formula([_Value(value, add, constant) for value in values], flag)
    writes = []
    for index, result in enumerate(results):
        if result.operand == values[index]:
            continue  # it keeps its value
        write = scope.add(
            f"{node.name}/write", "AssignVariableOp", [data[index], result.operand, *pending], {"dtype": dtype}
        )
        writes.append(f"^{write.name}")
    del node.input[:]
    replace(node, "NoOp", [], {})
    node.input.extend(writes)
    return Update(tuple(made), tuple(write.removeprefix("^") for write in writes))
