"""Replaces a node with ops that TensorFlow's Python functions make, in a graph or in a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.graph.attributes import Shape, shape_of, type_attribute
from tfaot.graph.functions import EditableFunction
from tfaot.graph.program import Program

Build = Callable[..., Any]
"""Takes a node's operands as tensors, and returns its result."""


class GraphTarget:
    """A program's graph, as a target for new nodes."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def nodes(self) -> Iterator[node_def_pb2.NodeDef]:
        """Iterates over all nodes."""
        return iter(self._program.graph.node)

    def add(self, node: node_def_pb2.NodeDef, name: str, inputs: list[str], origin: str) -> str:
        """Adds a copy of a node under a unique name, and returns the name."""
        added = self._program.add(node.op, name, inputs, origin=origin, **node.attr)
        return str(added.name)

    def become_identity(self, node: node_def_pb2.NodeDef, tensor: str, dtype: int) -> None:
        """Turns a node into an identity of a tensor."""
        self._program.become(node, "Identity", [tensor], T=type_attribute(dtype))


class FunctionTarget:
    """A function's body, as a target for new nodes."""

    def __init__(self, body: EditableFunction) -> None:
        self._body = body

    def nodes(self) -> Iterator[node_def_pb2.NodeDef]:
        """Iterates over all nodes."""
        return iter(self._body.nodes.values())

    def add(self, node: node_def_pb2.NodeDef, name: str, inputs: list[str], origin: str) -> str:
        """Adds a copy of a node under a unique name, and returns the name."""
        return str(self._body.add(node.op, name, inputs, **node.attr).name)

    def become_identity(self, node: node_def_pb2.NodeDef, tensor: str, dtype: int) -> None:
        """Turns a node into an identity of a tensor."""
        self._body.become(node, "Identity", [tensor], T=type_attribute(dtype))


Target = GraphTarget | FunctionTarget


def splice(target: Target, node: node_def_pb2.NodeDef, operands: Sequence[Any], build: Build) -> None:
    """Replaces a node with the ops that TensorFlow creates for a function of tensors.

    Args:
      target: what the node is part of.
      node: a node with one result.
      operands: a `tf.TensorSpec` for each operand.
      build: the function.
    """
    import tensorflow as tf

    operands_of_node = [operand for operand in node.input if not operand.startswith("^")]
    with tf.Graph().as_default() as built:
        placed = {f"operand_{index}": operand for index, operand in enumerate(operands_of_node)}
        made = zip(operands, placed, strict=True)
        result = build(*(tf.compat.v1.placeholder(spec.dtype, spec.shape, name) for spec, name in made))
    names: dict[str, str] = {}

    def outside(tensor: str) -> str:
        if tensor.startswith("^"):
            return f"^{names[tensor[1:]]}"
        name, separator, port = tensor.partition(":")
        return placed[name] if name in placed else f"{names[name]}{separator or ':'}{port or 0}"

    for part in built.as_graph_def().node:
        if part.name not in placed:
            part.attr.pop("_class", None)  # names nodes as they were
            inputs = [outside(operand) for operand in part.input]
            names[part.name] = target.add(part, f"{node.name}/{part.name}", inputs, node.name)
    target.become_identity(node, outside(result.name), result.dtype.as_datatype_enum)


Rewrite = Callable[[Target, node_def_pb2.NodeDef, Mapping[str, node_def_pb2.NodeDef], Callable[[str], Shape]], None]
"""Replaces a node of a target, given all of the target's nodes, and the shapes of its tensors by `node:port`."""


def any_node(graph: graph_pb2.GraphDef, applies: Callable[[str], object]) -> bool:
    """Returns whether a graph, or one of its functions, has an op of some type."""
    return any(
        applies(node.op) for nodes in (graph.node, *(f.node_def for f in graph.library.function)) for node in nodes
    )


def rewrite_nodes(program: Program, applies: Callable[[str], object], rewrite: Rewrite) -> int:
    """Rewrites all nodes of some types, also in functions, and returns how many there were.

    Args:
      program: changed in place.
      applies: whether to rewrite an op of this type.
      rewrite: rewrites one.
    """
    from tensorflow.python.framework import function_def_to_graph

    count = 0

    def rewrite_in(target: Target, nodes: Mapping[str, node_def_pb2.NodeDef], shape: Callable[[str], Shape]) -> None:
        nonlocal count
        for node in [*nodes.values()]:
            if applies(node.op):
                rewrite(target, node, nodes, shape)
                count += 1

    if not any_node(program.graph, applies):
        return 0
    tensors = program.tensors()
    rewrite_in(GraphTarget(program), program.nodes(), lambda name: tensors[name].shape)
    library = {function.signature.name: function for function in program.graph.library.function}
    for function in program.graph.library.function:
        if any(applies(node.op) for node in function.node_def):
            body = EditableFunction(function, library)
            inner = function_def_to_graph.function_def_to_graph(function)
            shapes = {
                tensor.name: shape_of(tensor.shape)
                for operation in inner.get_operations()
                for tensor in operation.outputs
            }
            rewrite_in(FunctionTarget(body), body.nodes, shapes.get)
            function.CopyFrom(body.function(function.signature.name))
    return count


def operands(node: node_def_pb2.NodeDef) -> list[str]:
    """Returns a node's operands, as `node:port`."""
    return [name if ":" in name else f"{name}:0" for name in node.input if not name.startswith("^")]
