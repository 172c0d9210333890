"""Finds values that don't depend on data: each run of each replica computes the same ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tensorflow.core.framework import node_def_pb2

from tfaot.graph.functions import EditableFunction
from tfaot.graph.names import tensor_name
from tfaot.graph.ops import WHILES, Library, functions_of, has_effects
from tfaot.graph.splice import operands


class Scope:
    """A graph, or a function for certain arguments."""

    def __init__(
        self,
        nodes: Mapping[str, node_def_pb2.NodeDef],
        library: Library,
        *,
        fixed: Collection[str] = (),
        differing: Collection[str] = (),
        function: str = "",
    ) -> None:
        """Describes a scope.

        Args:
          nodes: the nodes by name, with edges in a graph's notation.
          library: all functions.
          fixed: the arguments that don't depend on data, as `name:0`.
          differing: ops without effects whose results differ from replica to replica.
          function: the function's name; empty for the graph.
        """
        self.nodes, self.library, self.function = nodes, library, function
        self._fixed, self._differing = frozenset(fixed), differing

    def is_fixed(self, tensor: str) -> bool:
        """Returns whether a tensor, `node:port`, doesn't depend on data."""
        pending, seen = [tensor], set[str]()
        while pending:
            tensor = pending.pop()
            name, port = tensor_name(tensor)
            node = self.nodes.get(name)
            if name in seen or (node is None and tensor in self._fixed):
                continue
            if node is not None and node.op in WHILES:
                if port not in self.fixed_results(node):
                    return False
                continue
            own = operands(node) if node is not None else []
            if node is None or (not own and node.op != "Const") or not self._pure(node):
                return False
            seen.add(name)
            pending += own
        return True

    def _pure(self, node: node_def_pb2.NodeDef) -> bool:
        return not (node.op in self._differing or has_effects(node.op) or any(functions_of(node)))

    def fixed_operands(self, node: node_def_pb2.NodeDef) -> set[int]:
        """Returns the operands of a node that don't depend on data."""
        return {index for index, operand in enumerate(operands(node)) if self.is_fixed(operand)}

    def fixed_results(self, loop: node_def_pb2.NodeDef) -> set[int]:
        """Returns the results of a loop that don't depend on data, whatever the number of its rounds is."""
        fixed = self.fixed_operands(loop)
        while True:
            body = self.called(loop.attr["body"].func.name, fixed)
            results = EditableFunction(self.library[body.function], self.library).results
            kept = {index for index in fixed if body.is_fixed(results[index])}
            if kept == fixed:
                return fixed if self._runs(loop, fixed) else set()
            fixed = kept

    def _runs(self, loop: node_def_pb2.NodeDef, fixed: Collection[int]) -> bool:
        condition = self.called(loop.attr["cond"].func.name, fixed)
        (result,) = EditableFunction(self.library[condition.function], self.library).results
        return condition.is_fixed(result)

    def is_counted(self, loop: node_def_pb2.NodeDef) -> bool:
        """Returns whether the number of a loop's rounds doesn't depend on data."""
        return bool(self.fixed_results(loop))

    def called(self, name: str, fixed: Collection[int]) -> Scope:
        """Returns the scope of a function whose arguments at some positions don't depend on data."""
        body = EditableFunction(self.library[name], self.library)
        arguments = [body.arguments[index] for index in fixed]
        return Scope(body.nodes, self.library, fixed=arguments, differing=self._differing, function=name)
