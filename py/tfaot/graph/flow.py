"""Follows handles of variables along the edges of a graph, into and out of functions. Pure.

Handles pass through identities, loops of both control flow versions, calls, While, If, and Case. The cost is linear in the
number of nodes, except that a function is visited once for each set of arguments.
"""

from __future__ import annotations

import abc
import dataclasses
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.graph.bodies import Body
from tfaot.graph.ops import CALLS, FORWARDS, Call, Library, functions_of

Label = TypeVar("Label")
"""What a walk knows about an edge that carries a handle; None for other edges."""

Labels = Sequence[Label | None]


@dataclasses.dataclass(frozen=True)
class Flow(Generic[Label]):
    """What the edges of one body carry, given what its arguments carry."""

    edges: Mapping[tuple[str, int], Label]
    """Labels by node and output port, without edges that have no label."""
    results: tuple[Label | None, ...]


class Walk(abc.ABC, Generic[Label]):
    """Carries labels from handles along edges. An edge's label only grows, so the walk ends."""

    starts: frozenset[str] = frozenset({"VarHandleOp"})
    """The ops whose results have labels."""

    def __init__(self, graph: graph_pb2.GraphDef) -> None:
        """Takes the graph, which must not change during the walk."""
        self.library: Library = {function.signature.name: function for function in graph.library.function}
        self._bodies: dict[str, Body] = {}
        self._flows: dict[tuple[str, tuple[Label | None, ...]], Flow[Label]] = {}
        self._starting: dict[str, list[int]] = {}
        self._main = Body.graph(graph, self.library)

    @abc.abstractmethod
    def label(self, handle: node_def_pb2.NodeDef, body: Body) -> Label | None:
        """Returns the label of a node in `starts`, or None if it is of no interest."""

    def joined(self, before: Label, after: Label) -> Label:
        """Combines the labels of an edge that may carry either. By default, the first one wins."""
        return before

    def stepped(self, operands: Labels[Label], results: Labels[Label]) -> Labels[Label]:
        """Returns what a loop's operands may carry after its body returned `results`. By default, nothing changes."""
        return operands

    def other(self, node: node_def_pb2.NodeDef, ins: Labels[Label]) -> Labels[Label]:
        """Visits an op that doesn't pass handles on. By default, visits its functions, with unknown arguments."""
        for name in self.functions(node):
            self.function(name, ())
        return ()

    def main(self) -> tuple[Body, Flow[Label]]:
        """Visits the graph itself."""
        if ("", ()) not in self._flows:
            self._flows["", ()] = self._visit(self._main, ())
        return self._main, self._flows["", ()]

    def function(self, name: str, arguments: Labels[Label]) -> tuple[Body, Flow[Label]]:
        """Visits a function's body, called with these arguments. Nothing is known about any others."""
        if name not in self._bodies:
            self._bodies[name] = Body.function(self.library[name], self.library)
        body = self._bodies[name]
        labels: tuple[Label | None, ...] = (*arguments, *[None] * len(body.arguments))[: len(body.arguments)]
        if (name, labels) not in self._flows:
            self._flows[name, labels] = Flow({}, ())  # a recursive call adds nothing that this one doesn't
            self._flows[name, labels] = self._visit(body, labels)
        return body, self._flows[name, labels]

    def flows(self) -> Iterable[tuple[Body, Flow[Label]]]:
        """Returns every visited body, once for each set of arguments."""
        for (name, _), flow in self._flows.items():
            yield self._bodies[name] if name else self._main, flow

    def functions(self, node: node_def_pb2.NodeDef, keys: Iterable[str] | None = None) -> list[str]:
        """Returns the functions that a node's attributes name, or only those that the attributes in `keys` name."""
        named = [(key, function.name) for key, function in functions_of(node) if function.name in self.library]
        if keys is None:
            return [name for _, name in named]
        return [name for wanted in keys for key, name in named if key == wanted]

    def outputs(self, body: Body, node: node_def_pb2.NodeDef, ins: Labels[Label]) -> Labels[Label]:
        """Returns what a node's outputs carry."""
        if node.op in FORWARDS:
            return ins
        if node.op == "Switch":
            return (ins[0], ins[0])
        if node.op == "Merge":
            return (self._any(ins),)
        if node.op in self.library:
            return self.function(node.op, ins)[1].results
        call = CALLS.get(node.op)
        if call is None:
            return self.other(node, ins)
        if call.is_loop:
            return self._loop(node, call, ins)
        outcomes = [self.function(name, ins[call.first :])[1].results for name in self.functions(node, call.functions)]
        return self.either(outcomes)

    def either(self, outcomes: Sequence[Labels[Label]]) -> Labels[Label]:
        """Combines the results of several functions when only one of them is called."""
        width = max((len(outcome) for outcome in outcomes), default=0)
        return [self._any([outcome[port] for outcome in outcomes if port < len(outcome)]) for port in range(width)]

    def _starts(self, body: Body) -> list[int]:
        """Returns the indices of a body's nodes in `starts`."""
        if body.name not in self._starting:
            self._starting[body.name] = [index for index, node in enumerate(body.nodes) if node.op in self.starts]
        return self._starting[body.name]

    def _any(self, labels: Labels[Label]) -> Label | None:
        result: Label | None = None
        for label in labels:
            if label is not None:
                result = label if result is None else self.joined(result, label)
        return result

    def _loop(self, node: node_def_pb2.NodeDef, call: Call, ins: Labels[Label]) -> Labels[Label]:
        *conditions, step = call.functions
        for name in self.functions(node, conditions):
            self.function(name, ins)
        for name in self.functions(node, [step]):
            while True:  # a handle may move from one operand to another
                grown = self.stepped(ins, self.function(name, ins)[1].results)
                if grown == ins:
                    break
                ins = grown
        return ins

    def _visit(self, body: Body, arguments: Labels[Label]) -> Flow[Label]:
        edges: dict[tuple[str, int], Label] = {}
        queue: deque[int] = deque()

        def carry(name: str, port: int, label: Label | None) -> None:
            if label is None:
                return
            before = edges.get((name, port))
            after = label if before is None else self.joined(before, label)
            if after != before:
                edges[name, port] = after
                queue.extend(body.users.get(name, ()))

        for name, label in zip(body.arguments, arguments, strict=True):
            carry(name, 0, label)
        for index in self._starts(body):
            node = body.nodes[index]
            carry(node.name, 0, self.label(node, body))
        queue.extend(body.roots)
        while queue:
            node = body.nodes[queue.popleft()]
            ins = [edges.get(edge) for edge in body.operands(node)]
            for port, label in enumerate(self.outputs(body, node, ins)):
                carry(node.name, port, label)
        return Flow(edges, tuple(edges.get(body.edge(result)) for result in body.returns))
