"""Functions, in the form in which passes read and edit them."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable

from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2, op_def_pb2, types_pb2

from tfaot.graph import ops
from tfaot.graph.edits import replace, set_attributes
from tfaot.graph.names import tensor_name, unused
from tfaot.graph.ops import CALLS, IDENTITIES, Library
from tfaot.graph.prune import reached


class EditableFunction:
    """A copy of a function with edges in a graph's notation: `node:port`, always with the port.

    An argument is a tensor `name:0` without a node. Edit the copy, then call `function` to get the result.
    """

    def __init__(self, function: function_pb2.FunctionDef, library: Library) -> None:
        """Reads a function.

        Args:
          function: stays unmodified.
          library: all functions, by name.
        """
        self._function = function
        self._library = library
        self.arguments: list[str] = [f"{arg.name}:0" for arg in function.signature.input_arg]
        """Tensors."""
        self.types: list[int] = [arg.type for arg in function.signature.input_arg]
        """The arguments' `tensorflow.DataType`s."""
        self.nodes: dict[str, node_def_pb2.NodeDef] = {}
        for node in function.node_def:
            self.nodes[node.name] = node_def_pb2.NodeDef()
            self.nodes[node.name].CopyFrom(node)
        outputs = {name: self._outputs(node) for name, node in self.nodes.items()}

        def flat(edge: str) -> str:
            if edge.startswith("^"):
                return edge
            name, _, rest = edge.partition(":")
            if not rest:
                return f"{name}:0"
            output, _, index = rest.rpartition(":")
            return f"{name}:{outputs[name].index((output, int(index)))}"

        for node in self.nodes.values():
            node.input[:] = [flat(edge) for edge in node.input]
        self.results: list[str] = [flat(function.ret[arg.name]) for arg in function.signature.output_arg]
        """Tensors that the function returns."""
        self.result_types: list[int] = [arg.type for arg in function.signature.output_arg]
        """The results' `tensorflow.DataType`s."""

    def _definition(self, node: node_def_pb2.NodeDef) -> op_def_pb2.OpDef:
        defined = ops.definition(node.op, self._library)
        assert defined is not None, node.op
        return defined

    def _outputs(self, node: node_def_pb2.NodeDef) -> list[tuple[str, int]]:
        """Returns how functions refer to each of a node's results: an output's name and an index, by port."""
        return [(result.output, result.index) for result in ops.results(node, self._definition(node))]

    def function(self, name: str) -> function_pb2.FunctionDef:
        """Returns the edited function.

        Args:
          name: its name.
        """
        result = function_pb2.FunctionDef()
        result.signature.name = name
        result.signature.is_stateful = self._function.signature.is_stateful
        for key, value in self._function.attr.items():
            if key != "_input_shapes":
                result.attr[key].CopyFrom(value)
        for argument, dtype in zip(self.arguments, self.types, strict=True):
            result.signature.input_arg.add(name=argument.removesuffix(":0"), type=dtype)
        outputs = {node.name: self._outputs(node) for node in self.nodes.values()}

        def nested(tensor: str) -> str:
            node, port = tensor_name(tensor)
            if port < 0:
                return tensor
            if node not in self.nodes:
                return node
            output, index = outputs[node][port]
            return f"{node}:{output}:{index}"

        for node in self.nodes.values():
            added = result.node_def.add()
            added.CopyFrom(node)
            added.input[:] = [nested(edge) for edge in node.input]
        for index, (returned, kept) in enumerate(zip(self.results, self.result_types, strict=True)):
            result.signature.output_arg.add(name=f"result_{index}", type=kept)
            result.ret[f"result_{index}"] = nested(returned)
        for effect, node_name in sorted(self._function.control_ret.items()):  # the order of a proto's map isn't stable
            if node_name in self.nodes:
                result.signature.control_output.append(effect)
                result.control_ret[effect] = node_name
        return result

    def write(self, function: function_pb2.FunctionDef) -> None:
        """Writes edited nodes into the function that this is a copy of, which keeps the names of its results."""
        edited = self.function(function.signature.name)
        del function.node_def[:]
        function.node_def.extend(edited.node_def)
        for index, result in enumerate(function.signature.output_arg):
            function.ret[result.name] = edited.ret[f"result_{index}"]

    def producer(self, tensor: str) -> node_def_pb2.NodeDef | None:
        """Returns the node that computes a tensor, or None for an argument."""
        return self.nodes.get(tensor_name(tensor)[0])

    def resolve(self, tensor: str) -> str:
        """Returns the tensor behind identities."""
        while (node := self.producer(tensor)) is not None and node.op in IDENTITIES:
            tensor = node.input[0]
        return tensor

    def argument(self, tensor: str) -> int | None:
        """Returns the position of the argument behind a tensor, past identities; None if there is no argument there."""
        resolved = self.resolve(tensor)
        return self.arguments.index(resolved) if resolved in self.arguments else None

    def users(self, tensor: str) -> list[tuple[node_def_pb2.NodeDef, int]]:
        """Returns the nodes that take a tensor, past identities, each with the position of the operand."""
        users = []
        pending = [tensor]
        while pending:
            wanted = pending.pop()
            for node in self.nodes.values():
                for index, operand in enumerate(node.input):
                    if operand != wanted:
                        continue
                    if node.op in IDENTITIES:
                        pending.append(f"{node.name}:0")
                    else:
                        users.append((node, index))
        return users

    def returned(self, tensor: str) -> list[int]:
        """Returns the positions at which the function returns a tensor, past identities."""
        return [index for index, result in enumerate(self.results) if self.resolve(result) == tensor]

    def unique(self, name: str) -> str:
        """Returns a name that no node or argument has. It doesn't reserve the name."""
        arguments = dict.fromkeys(tensor_name(argument)[0] for argument in self.arguments)
        return unused(name, ChainMap[str, object](self.nodes, arguments))

    def add(self, op: str, name: str, inputs: Iterable[str], **attributes: object) -> node_def_pb2.NodeDef:
        """Adds a node under a unique name. For the attributes, see `attributes.attribute`."""
        node = node_def_pb2.NodeDef(op=op, name=self.unique(name), input=inputs)
        set_attributes(node, attributes)
        self.nodes[node.name] = node
        return node

    def become(self, node: node_def_pb2.NodeDef, op: str, inputs: Iterable[str], **attributes: object) -> None:
        """Replaces a node's op, operands, and attributes; see `edits.replace`."""
        replace(node, op, inputs, attributes)

    def effects(self) -> list[node_def_pb2.NodeDef]:
        """Returns nodes that must run even if nothing uses their results, in the order that control inputs require."""
        resources = {
            argument
            for argument, dtype in zip(self.arguments, self.types, strict=True)
            if dtype == types_pb2.DT_RESOURCE
        }
        return [
            node
            for node in self.nodes.values()
            if (node.op in CALLS and CALLS[node.op].stateful == node.op)  # what it runs may have effects
            or self._definition(node).is_stateful
            or (node.op not in IDENTITIES and any(self.resolve(operand) in resources for operand in node.input))
        ]

    def needed(self, tensors: Iterable[str]) -> set[str]:
        """Returns the nodes and arguments, by name, that some tensors depend on, also through control inputs."""
        return reached(self.nodes, [tensor_name(tensor)[0] for tensor in tensors])

    def graph(self) -> graph_pb2.GraphDef:
        """Returns the nodes as a graph of their own, without arguments."""
        result = graph_pb2.GraphDef()
        result.node.extend(self.nodes.values())
        return result
