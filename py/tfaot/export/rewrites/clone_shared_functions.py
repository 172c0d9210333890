"""Copies functions that several loops share, so each loop has its own. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2, types_pb2

from tfaot.graph.names import unused
from tfaot.graph.ops import WHILES, called, functions_of


def clone_shared_functions(graph: graph_pb2.GraphDef, sources: dict[str, str]) -> graph_pb2.GraphDef:
    """Gives each loop over a variable a condition and a body of its own.

    Calling a `tf.function` twice makes two Whiles with one body. If that body takes a variable's handle, tfcompile
    crashes with a segmentation fault. Functions that contain such loops are copied too, because the compiler inlines
    their calls.

    Args:
      graph: stays unchanged.
      sources: `file:line` by node name, or `function/node` inside functions. The nodes of the copies are added.

    Returns:
      A new graph, in which the first user of each function keeps it; the given one if no such function is shared.
    """
    copier = _Copier(graph)
    result = copier.run()
    if not copier.copies:
        return graph
    places: dict[str, list[tuple[str, str]]] = {}
    for name, place in sources.items():
        function, separator, node = name.partition("/")
        if separator and function in copier.originals:
            places.setdefault(function, []).append((node, place))
    for copy, original in copier.copies.items():
        sources.update((f"{copy}/{node}", place) for node, place in places.get(original, ()))
    return result


class _Copier:
    """Copies functions for a graph and everything that it calls, in one pass."""

    def __init__(self, graph: graph_pb2.GraphDef) -> None:
        self._graph = graph_pb2.GraphDef()
        self._graph.CopyFrom(graph)
        self._library = {function.signature.name: function for function in self._graph.library.function}
        self._looping = self._find_looping()
        self._used: set[str] = set()
        self.copies: dict[str, str] = {}
        """The original function of each copy."""

    @property
    def originals(self) -> set[str]:
        """Functions that have copies."""
        return set(self.copies.values())

    def run(self) -> graph_pb2.GraphDef:
        """Makes all copies, and returns the new graph."""
        pending: deque[tuple[node_def_pb2.NodeDef, frozenset[str]]] = deque(
            (node, frozenset()) for node in self._graph.node
        )
        while pending:
            node, inside = pending.popleft()
            for function in self._own(node, inside):
                name = function.signature.name
                around = inside | {self.copies.get(name, name)}
                pending += ((inner, around) for inner in function.node_def)
        return self._graph

    def _find_looping(self) -> set[str]:
        """Returns the names of functions that contain a loop over a variable, or call a function that does."""
        callers: dict[str, set[str]] = {}
        looping = set()
        for name, function in self._library.items():
            for node in function.node_def:
                if _over_variable(node):
                    looping.add(name)
                for callee in called(node):
                    callers.setdefault(callee, set()).add(name)
        pending = [*looping]
        while pending:
            for caller in callers.get(pending.pop(), set()) - looping:
                looping.add(caller)
                pending.append(caller)
        return looping

    def _own(self, node: node_def_pb2.NodeDef, inside: frozenset[str]) -> Iterator[function_pb2.FunctionDef]:
        """Gives a node its own functions, as far as it needs them, and yields these.

        Args:
          node: changed in place.
          inside: the functions that contain the node. A recursive call would be copied forever, so it stays unchanged.
        """
        if node.op in self._looping and self.copies.get(node.op, node.op) not in inside:
            node.op = self._taken(node.op)
            yield self._library[node.op]
        for _, reference in functions_of(node):
            name = reference.name
            if name not in self._library or self.copies.get(name, name) in inside:
                continue
            if name in self._looping or _over_variable(node):
                reference.name = self._taken(reference.name)
                yield self._library[reference.name]

    def _taken(self, name: str) -> str:
        """Takes a function if no node has taken it yet, otherwise a copy."""
        if name not in self._used:
            self._used.add(name)
            return name
        original = self.copies.get(name, name)
        unique = unused(original, self._library)
        function = self._graph.library.function.add()
        function.CopyFrom(self._library[original])
        function.signature.name = unique
        self._library[unique] = function
        self._used.add(unique)
        self.copies[unique] = original
        if original in self._looping:
            self._looping.add(unique)
        return unique


def _over_variable(node: node_def_pb2.NodeDef) -> bool:
    return node.op in WHILES and types_pb2.DT_RESOURCE in node.attr["T"].list.type
