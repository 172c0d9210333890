"""Turns updates of a variable's rows into updates of all of it, if the same step writes all of it anyway. Pure.

Optimizers such as Adam change all rows of an embedding's slots in each step, and then add the gradients of the rows that the step
used. TensorFlow sums these gradients by item (`tf.unique`, segment sums), so there are as many as values decide, and XLA can't
compile that. With a sum for each row of the variable, all sizes are known: a row without a gradient adds zero.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping

import numpy as np
from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.cluster.batches import static
from tfaot.cluster.predicates import ALWAYS, Predicate
from tfaot.cluster.reads import Before, accesses
from tfaot.core import dtypes
from tfaot.graph.attributes import Shape, complete, constant_of
from tfaot.graph.edits import Scope, replace, set_attributes
from tfaot.graph.names import canonical, producer
from tfaot.graph.ops import IDENTITIES
from tfaot.graph.program import Tensor

ROWS = {"ResourceScatterAdd": "AssignAddVariableOp", "ResourceScatterSub": "AssignSubVariableOp"}
"""Updates of rows, and the same of all rows."""

_DENSE = frozenset({"AssignAddVariableOp", "AssignSubVariableOp", "AssignVariableOp"})
_UNARY = frozenset({"Neg", "Square"})
_BINARY = frozenset({"Add", "AddV2", "Mul", "Sub"})
"""What computes zero from zeros."""


@dataclasses.dataclass(frozen=True)
class _Sums:
    """A tensor that has a value for each row of the variable."""

    operand: str
    stands: Mapping[str, tuple[str, ...]]
    """The nodes that compute it, and the nodes of the model that each stands for."""


def densify(
    graph: graph_pb2.GraphDef, tensors: Mapping[str, Tensor], when: Mapping[str, Predicate], kept: Collection[str]
) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Turns updates of rows into updates of whole variables, in place, where that computes the same.

    Args:
      graph: all calls are inlined, and each node comes after its operands.
      tensors: what TensorFlow infers, by `node:port`.
      when: when each node runs.
      kept: updates that stay as they are.

    Returns:
      For each of these updates, the nodes that compute what it adds, and the nodes of the model that each stands for.
    """
    handles, writers = accesses(graph)
    before = Before(graph, writers)
    nodes = {node.name: node for node in graph.node}
    rewriting = _Rewriting(graph, nodes, tensors)
    rewritten: dict[str, Mapping[str, tuple[str, ...]]] = {}
    for node in list(graph.node):
        if node.op not in ROWS or node.name in kept or when[node.name] != ALWAYS:
            continue
        handle = nodes[producer(node.input[0])]
        names = handles.get(handle.name, frozenset())
        shape = declared(handle)
        dense = any(
            nodes[writer].op in _DENSE and before(writer, node.name) for name in names for writer in writers[name]
        )
        dtype = dtypes.BY_ENUM.get(node.attr["dtype"].type)
        if not dense or not shape or dtype is None or not dtype.floating:
            continue
        if (sums := rewriting.sums(node, shape)) is not None:
            replace(node, ROWS[node.op], [node.input[0], sums.operand], {"dtype": node.attr["dtype"]})
            rewritten[node.name] = sums.stands
    return rewritten


def declared(handle: node_def_pb2.NodeDef) -> tuple[int, ...] | None:
    """Returns the shape of the variable of a VarHandleOp, if all of its sizes are known."""
    shape = handle.attr["shape"].shape if handle.op == "VarHandleOp" else None
    return None if shape is None or shape.unknown_rank else complete(tuple(dim.size for dim in shape.dim))


class _Rewriting:
    """Finds what an update of rows adds, and computes it for all rows."""

    def __init__(
        self, graph: graph_pb2.GraphDef, nodes: Mapping[str, node_def_pb2.NodeDef], tensors: Mapping[str, Tensor]
    ) -> None:
        self._scope = Scope.graph(graph)
        self._nodes = nodes
        self._tensors = tensors
        self._made: dict[tuple[str, str, int], _Sums | None] = {}

    def sums(self, update: node_def_pb2.NodeDef, shape: tuple[int, ...]) -> _Sums | None:
        """Returns what an update adds to each row of a variable; None if it isn't certain to be the same."""
        unique, port = self._source(update.input[1])
        if self._nodes[unique].op == "Unique" and port == 0:  # no row twice, so each gets the whole sum
            return self._dense(update.input[2], unique, shape)
        return None

    def _source(self, operand: str) -> tuple[str, int]:
        """Returns the node and port from which a tensor comes unchanged."""
        while True:
            name, _, port = canonical(operand).rpartition(":")
            node = self._nodes[name]
            if node.op not in IDENTITIES and not (node.op == "Reshape" and self._keeps_shape(node)):
                return name, int(port)
            operand = node.input[0]

    def _keeps_shape(self, node: node_def_pb2.NodeDef) -> bool:
        """Returns whether a Reshape returns the shape that it takes, because all dimensions but the first are the same."""
        first, second = (self._shape(name) for name in (node.input[0], node.name))
        return bool(first and second and static(first[1:]) and first[1:] == second[1:])

    def _shape(self, operand: str) -> Shape:
        return self._tensors[canonical(operand)].shape

    def _dense(self, operand: str, unique: str, shape: tuple[int, ...]) -> _Sums | None:
        """Returns a tensor with a row for each item of `unique` as one with a row for each row of a variable."""
        name, port = self._source(operand)
        node = self._nodes[name]
        if port:
            return None
        key = name, unique, shape[0]
        if key not in self._made:
            self._made[key] = self._computed(node, unique, shape)
        return self._made[key]

    def _computed(self, node: node_def_pb2.NodeDef, unique: str, shape: tuple[int, ...]) -> _Sums | None:
        if node.op == "UnsortedSegmentSum":
            return self._segments(node, unique, shape)
        data = [operand for operand in node.input if not operand.startswith("^")]
        if node.op not in _UNARY and node.op not in _BINARY:
            return None
        operands, stands = [], dict[str, tuple[str, ...]]()
        for operand in data:
            if node.op == "Mul" and self._is_factor(operand):
                operands.append(operand)
                continue
            sums = self._dense(operand, unique, shape)
            if sums is None:
                return None
            operands.append(sums.operand)
            stands |= sums.stands
        if not stands:
            return None
        made = self._scope.add(f"{node.name}/tfaot_rows", node.op, operands, {"T": node.attr["T"].type})
        return _Sums(made.name, {**stands, made.name: (node.name,)})

    def _is_factor(self, operand: str) -> bool:
        """Returns whether an operand is a scalar that makes zero from zero: a finite constant, or a difference of two."""
        node = self._nodes[producer(operand)]
        if node.op == "Sub" and self._shape(operand) == ():
            return all(self._is_factor(operand) for operand in node.input[:2])
        value = constant_of(self._nodes, operand)
        return value is not None and value.shape == () and math.isfinite(float(value))

    def _segments(self, node: node_def_pb2.NodeDef, unique: str, shape: tuple[int, ...]) -> _Sums | None:
        """Returns sums by item as sums by row. Sums of sums are sums of what the first ones add up."""
        stands: list[str] = []
        while True:
            stands.append(node.name)
            if self._source(node.input[1]) != (unique, 1):
                return None
            items = self._nodes[unique].input[0]
            inner, port = self._source(node.input[0])
            first, other = self._source(items)
            if self._nodes[inner].op != "UnsortedSegmentSum" or self._nodes[first].op != "Unique" or port or other:
                break
            node, unique = self._nodes[inner], first
        data, rows = self._shape(node.input[0]), self._shape(items)
        if not data or not static(data) or rows != data[:1] or data[1:] != shape[1:]:
            return None
        count = self._scope.add(f"{node.name}/tfaot_count", "Const", [], {})
        set_attributes(count, {"dtype": np.dtype(np.int32), "value": np.array(shape[0], np.int32)})
        types = {"T": node.attr["T"].type, "Tindices": self._tensors[canonical(items)].dtype, "Tnumsegments": 3}
        made = self._scope.add(
            f"{node.name}/tfaot_rows", "UnsortedSegmentSum", [node.input[0], items, count.name], types
        )
        return _Sums(made.name, {made.name: tuple(stands)})
