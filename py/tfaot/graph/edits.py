"""Edits nodes of a graph or of a function in place. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2

from tfaot.graph.attributes import attribute
from tfaot.graph.names import first_unused, numbered, producer, unused
from tfaot.graph.ops import Result


def replace(node: node_def_pb2.NodeDef, op: str, inputs: Iterable[str], attributes: Mapping[str, object]) -> None:
    """Replaces a node's op, operands, and attributes. Its control inputs stay, and its users get the new results."""
    waits = [operand for operand in node.input if operand.startswith("^")]
    node.input[:] = [*inputs, *waits]
    node.op = op
    node.attr.clear()
    set_attributes(node, attributes)


def set_attributes(node: node_def_pb2.NodeDef, attributes: Mapping[str, object]) -> None:
    """Writes attributes. For the values, see `attributes.attribute`."""
    for key, value in attributes.items():
        node.attr[key].CopyFrom(attribute(value))


def become(node: node_def_pb2.NodeDef, op: str, types: Mapping[str, int], **numbers: int) -> None:
    """Replaces a node's op and attributes. Its inputs stay, as do attributes that belong to no op, such as `_class`."""
    node.op = op
    for key in [key for key in node.attr if not key.startswith("_")]:
        del node.attr[key]
    for key, dtype in types.items():
        node.attr[key].type = dtype
    for key, number in numbers.items():
        node.attr[key].i = number


class Scope:
    """The nodes of a graph or function during an edit. Finds free names, and writes edges in the right notation."""

    def __init__(self, nodes: Any, name: str = "", arguments: Iterable[str] = ()) -> None:
        """Takes the parts. To create a scope, call `graph` or `function`.

        Args:
          nodes: the repeated field of nodes.
          name: the function's original name; empty for a graph.
          arguments: names that nodes can't have.
        """
        self.name = name
        self.nodes = nodes
        self._arguments = tuple(arguments)
        self._ops: dict[str, str] = {}
        """The op of each node, by name; empty for arguments."""
        self._by_name: dict[str, node_def_pb2.NodeDef] = {}
        self.renamed: dict[tuple[str, str], tuple[str, int]] = {}
        """New names of outputs and their first index, by node and old name. Functions name their nodes' outputs."""

    @classmethod
    def graph(cls, graph: graph_pb2.GraphDef) -> Scope:
        """Returns the scope of a graph, without its functions."""
        return cls(graph.node)

    @classmethod
    def function(cls, function: function_pb2.FunctionDef) -> Scope:
        """Returns the scope of a function."""
        return cls(function.node_def, function.signature.name, [arg.name for arg in function.signature.input_arg])

    def node(self, operand: str) -> node_def_pb2.NodeDef | None:
        """Returns the node that an operand names, or None for a function's argument."""
        if len(self._by_name) != len(self.nodes):
            self._by_name = {node.name: node for node in self.nodes}
        return self._by_name.get(producer(operand))

    def take(self, name: str) -> str:
        """Reserves a name for a node: this one, or the first numbered one that is free."""
        return self._take(unused(name, self._known()))

    def number(self, name: str, first: int) -> str:
        """Reserves `name_first` for a node, or the next number that is free."""
        return self._take(first_unused(numbered(name, first), self._known()))

    def _take(self, name: str) -> str:
        self._known()[name] = "?"
        return name

    def add(
        self, name: str, op: str, inputs: Sequence[str], types: Mapping[str, int], **numbers: int
    ) -> node_def_pb2.NodeDef:
        """Adds a node. If the name is taken, it gets a number. `types` are dtype attributes; `numbers` are integers."""
        node = self.nodes.add(name=self.take(name))
        node.input.extend(inputs)
        become(node, op, types, **numbers)
        return node

    def move(self, node: node_def_pb2.NodeDef, name: str) -> node_def_pb2.NodeDef:
        """Copies a node under another name and empties the original, which frees its name for something else."""
        copy = self.nodes.add()
        copy.CopyFrom(node)
        copy.name = self.take(name)
        copy.attr.pop("_output_shapes", None)
        for key in [key for key in node.attr if key != "_output_shapes"]:
            del node.attr[key]
        node.ClearField("input")
        return copy

    def wait_for(self, operand: str) -> list[str]:
        """Returns control inputs that wait for an operand's producer. Arguments and feeds need none: they are always ready.

        The compiler can't wait for a feed: it replaces the Placeholder's value, and then finds the node still in use.
        """
        name = producer(operand)
        return [] if self._known().get(name) in ("", "Placeholder") else [f"^{name}"]

    def output(self, node: node_def_pb2.NodeDef, output: str, index: int = 0) -> str:
        """Returns how other nodes refer to an output, for ops whose outputs all share one name."""
        if self.name:
            return f"{node.name}:{output}:{index}"
        return f"{node.name}:{index}" if index else node.name

    def outputs(self, node: node_def_pb2.NodeDef, results: Iterable[Result]) -> list[str]:
        """Returns how other nodes refer to each of a node's results, given the results from `ops.results`."""
        if self.name:
            return [f"{node.name}:{result.output}:{result.index}" for result in results]
        return [f"{node.name}:{port}" if port else node.name for port, _ in enumerate(results)]

    def rename_output(self, node: node_def_pb2.NodeDef, before: str, after: str, first: int = 0) -> None:
        """Records that a node's new op has another name for an output, or has it as part of another from `first` on.

        `use_renamed` updates the users.
        """
        self.renamed[node.name, before] = after, first

    def _known(self) -> dict[str, str]:
        if not self._ops:
            self._ops.update(dict.fromkeys(self._arguments, ""))
            self._ops.update((node.name, node.op) for node in self.nodes)
        return self._ops


def use_renamed(function: function_pb2.FunctionDef, renamed: Mapping[tuple[str, str], tuple[str, int]]) -> None:
    """Updates a function's references to renamed outputs; see `Scope.rename_output`."""
    if not renamed:
        return

    def current(operand: str) -> str:
        node, separator, rest = operand.partition(":")
        output, _, index = rest.partition(":")
        if not separator or (node, output) not in renamed:
            return operand
        after, first = renamed[node, output]
        return f"{node}:{after}:{first + int(index)}"

    for node in function.node_def:
        node.input[:] = [current(operand) for operand in node.input]
    for key in [*function.ret]:  # copy the keys: writing to a proto's map during iteration would skip entries
        function.ret[key] = current(function.ret[key])
