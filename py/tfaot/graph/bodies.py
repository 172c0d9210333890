"""Gives code that follows edges one read-only view of graphs and function bodies. Pure."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence

from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2

from tfaot.graph.names import tensor_name
from tfaot.graph.ops import Library, functions_of


class Body:
    """The nodes of a graph or of a function. It copies nothing."""

    def __init__(
        self,
        nodes: Sequence[node_def_pb2.NodeDef],
        library: Library,
        *,
        name: str = "",
        arguments: tuple[str, ...] = (),
        returns: tuple[str, ...] = (),
    ) -> None:
        """Takes the parts. To create a body, call `graph` or `function`."""
        self.name = name
        """The function's name; empty for a graph."""
        self.nodes = nodes
        self.arguments = arguments
        """Names of the arguments. Edges refer to them as they refer to nodes."""
        self.returns = returns
        """Edges that the function returns, in order."""
        self._library = library

    @classmethod
    def graph(cls, graph: graph_pb2.GraphDef, library: Library) -> Body:
        """Returns the body of the graph itself, without its functions."""
        return cls(graph.node, library)

    @classmethod
    def function(cls, function: function_pb2.FunctionDef, library: Library) -> Body:
        """Returns a function's body."""
        signature = function.signature
        return cls(
            function.node_def,
            library,
            name=signature.name,
            arguments=tuple(arg.name for arg in signature.input_arg),
            returns=tuple(function.ret[arg.name] for arg in signature.output_arg),
        )

    @functools.cached_property
    def by_name(self) -> dict[str, node_def_pb2.NodeDef]:
        """The nodes by name."""
        return {node.name: node for node in self.nodes}

    @functools.cached_property
    def users(self) -> dict[str, list[int]]:
        """For each node or argument, by name, the indices of the nodes that take one of its outputs."""
        users: dict[str, list[int]] = defaultdict(list)
        for index, node in enumerate(self.nodes):
            for operand in node.input:
                if not operand.startswith("^"):
                    users[operand.partition(":")[0]].append(index)
        return users

    @functools.cached_property
    def roots(self) -> list[int]:
        """Indices of the nodes that handles may come from: VarHandleOps, and nodes that call functions."""
        return [
            index
            for index, node in enumerate(self.nodes)
            if node.op == "VarHandleOp"
            or (self._library and (node.op in self._library or next(functions_of(node), None) is not None))
        ]

    @functools.cached_property
    def _called(self) -> dict[str, str]:
        """For each node that calls a function as an op, the function's name."""
        return {node.name: node.op for node in self.nodes if node.op in self._library}

    def edge(self, operand: str) -> tuple[str, int]:
        """Returns the node and output port of a data input: `node:port` in a graph, `node:output:index` in a function.

        Among the ops with several outputs, only calls, loops, conditionals, and identities yield handles. They use one
        name for all their outputs, but a function that is called as an op has a name for each.
        """
        parts = operand.split(":")
        if len(parts) < 3:
            return tensor_name(operand)
        name, output, index = parts
        if name in self._called:
            results = self._library[self._called[name]].signature.output_arg
            return name, [result.name for result in results].index(output)
        return name, int(index)

    def operands(self, node: node_def_pb2.NodeDef) -> list[tuple[str, int]]:
        """Returns the edges that a node takes, without control inputs."""
        return [self.edge(operand) for operand in node.input if not operand.startswith("^")]
