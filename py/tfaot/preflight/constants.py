"""Which values the compiler knows, and what the others depend on. Pure.

The compiler evaluates whatever doesn't depend on inputs, variables, random numbers, and what changes in a loop. Shapes are known.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from tensorflow.core.framework import node_def_pb2

from tfaot.graph.attributes import Array, literal
from tfaot.graph.ops import CALLS, FORWARDS, IDENTITIES, functions_of, has_effects
from tfaot.preflight.nesting import Nesting

_SHAPES = frozenset(
    {
        "Rank",
        "Shape",
        "ShapeN",
        "Size",
        "TensorArraySizeV3",
        "TensorListElementShape",
        "TensorListLength",
        "VariableShape",
    }
)
"""Ops whose result the compiler knows, whatever their operand's value is."""

_READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "_ReadVariablesOp"})
_LISTS = frozenset({"EmptyTensorList", "TensorListReserve", "StackV2", "TensorArrayV3"})
_PASSES = FORWARDS | IDENTITIES | {"Enter", "Exit", "NextIteration", "Switch"}


@dataclasses.dataclass(frozen=True)
class Unknown:
    """Why the compiler doesn't know a value."""

    reason: str
    """What it depends on, such as `the input 'x'`."""


class Constants:
    """Answers for the values of one entry point. It remembers answers."""

    def __init__(self, nesting: Nesting, labels: Mapping[str, str], frozen: Collection[str]) -> None:
        """Takes what the values depend on.

        Args:
          nesting: the entry point's graph.
          labels: the user's names of the inputs, by node.
          frozen: the variables that the compiler knows, by shared name.
        """
        self._nesting = nesting
        self._labels = labels
        self._frozen = frozen
        self._known: dict[tuple[str, str, int], Unknown | None] = {}
        sys.setrecursionlimit(max(sys.getrecursionlimit(), 50_000))

    def operand(self, function: str, operand: str) -> Unknown | None:
        """Returns why an operand of a node in a function isn't known, or None if it is known."""
        body = self._nesting.bodies[function]
        name = operand.partition(":")[0]
        node = body.by_name.get(name)
        # Among the ops with several outputs, only these have outputs that differ; see Body.edge.
        port = 0
        if node is not None and (node.op in CALLS or node.op in self._nesting.library or node.op in FORWARDS):
            port = body.edge(operand)[1]
        return self._value(function, name, port)

    def _value(self, function: str, name: str, port: int) -> Unknown | None:
        key = function, name, port
        if key not in self._known:
            self._known[key] = None  # while this is being found out: a value that depends only on itself doesn't change
            self._known[key] = self._found(function, name, port)
        return self._known[key]

    def _found(self, function: str, name: str, port: int) -> Unknown | None:
        body = self._nesting.bodies[function]
        node = body.by_name.get(name)
        if node is None:
            return self._argument(function, body.arguments.index(name)) if name in body.arguments else None
        if node.op == "Const" or node.op in _SHAPES:
            return None
        if node.op.startswith("Placeholder"):
            if any(dim.size == 0 for dim in node.attr["shape"].shape.dim):
                return None  # there is only one value without elements
            return Unknown(f"the input {self._labels.get(name, name)!r}")
        if node.op in _READS:
            variable = self.variable(function, node.input[0])
            return None if variable in self._frozen else Unknown(f"the variable {variable!r}")
        call = CALLS.get(node.op)
        if call is not None:
            return self._call(function, node, port)
        if node.op in self._nesting.library:
            return self._result(node.op, port)
        if node.op in FORWARDS:
            data = [operand for operand in node.input if not operand.startswith("^")]
            return self.operand(function, data[min(port, len(data) - 1)]) if data else None
        if node.op == "Merge" and any(self._from_step(function, operand) for operand in node.input):
            return self._merge(function, node)
        if has_effects(node.op) and node.op not in _LISTS:
            return Unknown(f"{node.op} {name!r}, which is known only at run time")
        return self._first(function, node.input)

    def _first(self, function: str, operands: Collection[str]) -> Unknown | None:
        for operand in operands:
            if not operand.startswith("^") and (unknown := self.operand(function, operand)):
                return unknown
        return None

    def _argument(self, function: str, index: int) -> Unknown | None:
        for call in self._nesting.calls[function]:
            data = [operand for operand in call.node.input if not operand.startswith("^")]
            kind = CALLS.get(call.node.op)
            if kind is None and call.node.op != function:
                return Unknown(f"what {call.node.op} {call.node.name!r} passes to its function")
            first = kind.first if kind else 0
            if first + index >= len(data):
                continue
            if unknown := self.operand(call.function, data[first + index]):
                return unknown
            if kind is not None and kind.is_loop and not self._invariant(call.node, index):
                return Unknown(f"what the loop {call.node.name!r} changes")
        return None

    def _call(self, function: str, node: node_def_pb2.NodeDef, port: int) -> Unknown | None:
        call = CALLS[node.op]
        data = [operand for operand in node.input if not operand.startswith("^")]
        if call.is_loop:
            if not self._invariant(node, port):
                return Unknown(f"what the loop {node.name!r} computes")
            return self.operand(function, data[port])
        callees = [callee.name for key, callee in functions_of(node) if key in call.functions]
        for callee in callees:
            if unknown := self._result(callee, port):
                return unknown
        # One of several branches, which may differ.
        if self._same(callees, port):
            return None
        if call.first and node.op != "RemoteCall" and (unknown := self.operand(function, data[0])):
            return Unknown(f"which branch {node.name!r} takes, and so {unknown.reason}")
        return None

    def _result(self, function: str, port: int) -> Unknown | None:
        body = self._nesting.bodies.get(function)
        if body is None or port >= len(body.returns):
            return None
        return self.operand(function, body.returns[port])

    def _same(self, callees: Sequence[str], port: int) -> bool:
        """Returns whether functions return the same constant."""
        values = {self._literal(callee, port) for callee in callees}
        return len(values) == 1 and None not in values

    def _literal(self, function: str, port: int) -> bytes | None:
        body = self._nesting.bodies.get(function)
        if body is None or port >= len(body.returns):
            return None
        value = self.literal(function, body.returns[port])
        return None if value is None else value.dtype.str.encode() + repr(value.shape).encode() + value.tobytes()

    def literal(self, function: str, operand: str) -> Array | None:
        """Returns the value of a constant, possibly behind identities, or of a stack of constants; None for others."""
        body = self._nesting.bodies[function]
        while True:
            node = body.by_name.get(operand.partition(":")[0])
            if node is not None and node.op == "Const":
                return literal(node)
            if node is not None and node.op == "Pack":
                parts = [self.literal(function, operand) for operand in node.input if not operand.startswith("^")]
                literals = [part for part in parts if part is not None]
                return np.stack(literals) if len(literals) == len(parts) else None
            if node is None or node.op not in FORWARDS | IDENTITIES:
                return None
            operand = node.input[body.edge(operand)[1] if node.op == "IdentityN" else 0]

    def _invariant(self, loop: node_def_pb2.NodeDef, index: int) -> bool:
        """Returns whether a loop's body returns an argument unchanged."""
        for key, called in functions_of(loop):
            body = self._nesting.bodies.get(called.name)
            if key != "body" or body is None:
                continue
            if index >= len(body.returns):
                return False
            name, port = body.edge(body.returns[index])
            while (node := body.by_name.get(name)) is not None:
                data = [operand for operand in node.input if not operand.startswith("^")]
                if node.op not in FORWARDS and node.op not in IDENTITIES:
                    return False
                name, port = body.edge(data[port])
            return name == body.arguments[index]
        return False

    def _from_step(self, function: str, operand: str) -> bool:
        node = self._nesting.bodies[function].by_name.get(operand.partition(":")[0])
        return node is not None and node.op == "NextIteration"

    def _merge(self, function: str, node: node_def_pb2.NodeDef) -> Unknown | None:
        """A TensorFlow 1 loop's value: known if each step passes it on as it is."""
        body = self._nesting.bodies[function]
        for operand in node.input:
            if not self._from_step(function, operand):
                continue
            name = operand.partition(":")[0]
            while name != node.name:
                step = body.by_name.get(name)
                if step is None or step.op not in _PASSES:
                    return Unknown(f"what the loop around {node.name!r} changes")
                name = step.input[0].partition(":")[0]
        return self._first(function, [operand for operand in node.input if not self._from_step(function, operand)])

    def variable(self, function: str, handle: str) -> str:
        """Returns the shared name of the variable that a handle is of; empty if it isn't clear."""
        seen: set[tuple[str, str]] = set()
        while (function, handle) not in seen:
            seen.add((function, handle))
            body = self._nesting.bodies[function]
            name, port = body.edge(handle)
            node = body.by_name.get(name)
            if node is None:
                if name not in body.arguments or not self._nesting.calls[function]:
                    return ""
                call = self._nesting.calls[function][0]
                kind = CALLS.get(call.node.op)
                data = [operand for operand in call.node.input if not operand.startswith("^")]
                index = (kind.first if kind else 0) + body.arguments.index(name)
                if index >= len(data):
                    return ""
                function, handle = call.function, data[index]
            elif node.op == "VarHandleOp":
                return str(node.attr["shared_name"].s.decode(errors="replace") or node.name)
            elif node.op in FORWARDS or node.op in IDENTITIES or node.op == "Switch":
                handle = node.input[min(port, len(node.input) - 1) if node.op == "IdentityN" else 0]
            elif node.op in CALLS and CALLS[node.op].is_loop:
                handle = node.input[port]
            else:
                return ""
        return ""
