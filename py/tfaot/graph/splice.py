"""Replaces a node with ops that TensorFlow's Python functions make, in a graph or in a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tensorflow.core.framework import attr_value_pb2, function_pb2, graph_pb2, node_def_pb2

from tfaot.graph.attributes import Shape, shape_of, type_attribute, types_attribute
from tfaot.graph.functions import EditableFunction
from tfaot.graph.program import Program

Build = Callable[..., Any]
"""Takes a node's operands as tensors, and returns its results."""
Results = Sequence[tuple[str, int]]
"""Tensors and their dtypes."""


def _identity(results: Results) -> tuple[str, list[str], dict[str, attr_value_pb2.AttrValue]]:
    """Returns the op, the operands, and the attributes of an identity."""
    tensors, dtypes = [tensor for tensor, _ in results], [dtype for _, dtype in results]
    if len(results) == 1:
        return "Identity", tensors, {"T": type_attribute(dtypes[0])}
    return "IdentityN", tensors, {"T": types_attribute(dtypes)}


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

    def become_identity(self, node: node_def_pb2.NodeDef, results: Results) -> None:
        """Turns a node into an identity of tensors."""
        op, tensors, attributes = _identity(results)
        self._program.become(node, op, tensors, **attributes)


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

    def become_identity(self, node: node_def_pb2.NodeDef, results: Results) -> None:
        """Turns a node into an identity of tensors."""
        op, tensors, attributes = _identity(results)
        self._body.become(node, op, tensors, **attributes)


Target = GraphTarget | FunctionTarget


def splice(target: Target, node: node_def_pb2.NodeDef, operands: Sequence[Any], build: Build) -> None:
    """Replaces a node with the ops that TensorFlow creates for a function of tensors.

    Args:
      target: what the node is part of.
      node: a node.
      operands: a `tf.TensorSpec` for each operand.
      build: the function. It returns a tensor, or a tuple of the node's results.
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
    results = result if isinstance(result, tuple) else (result,)
    target.become_identity(node, [(outside(one.name), one.dtype.as_datatype_enum) for one in results])


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
    count = 0

    def rewrite_in(target: Target, nodes: Mapping[str, node_def_pb2.NodeDef], shape: Callable[[str], Shape]) -> None:
        nonlocal count
        for node in [*nodes.values()]:
            if applies(node.op):
                rewrite(target, node, nodes, shape)
                count += 1

    if not any_node(program.graph, applies):
        return 0
    rewrite_in(GraphTarget(program), program.nodes(), shapes_of(program))
    library = {function.signature.name: function for function in program.graph.library.function}
    for function in program.graph.library.function:
        if any(applies(node.op) for node in function.node_def):
            body = EditableFunction(function, library)
            rewrite_in(FunctionTarget(body), body.nodes, shapes_in(program, function))
            function.CopyFrom(body.function(function.signature.name))
    return count


def shapes_of(program: Program) -> Callable[[str], Shape]:
    """Returns the shapes of a graph's tensors by `node:port`."""
    tensors = program.tensors()
    return lambda name: tensors[name].shape


def shapes_in(
    program: Program,
    function: function_pb2.FunctionDef,
    arguments: Sequence[Shape] | None = None,
    variables: Mapping[str, node_def_pb2.NodeDef] = MappingProxyType({}),
) -> Callable[[str], Shape]:
    """Returns the shapes of the tensors in one of a program's functions by `node:port`.

    Args:
      program: has the functions that this one calls.
      function: the function.
      arguments: their shapes.
      variables: the VarHandleOp that an argument is, by the argument's name.
    """
    import tensorflow as tf
    from tensorflow.python.framework import function_def_to_graph

    with tf.Graph().as_default():
        # Where functions find those that they call.
        tf.import_graph_def(graph_pb2.GraphDef(library=program.graph.library, versions=program.graph.versions))
        shapes = None if arguments is None else [tf.TensorShape(shape) for shape in arguments]
        if variables:
            # What reads a variable has its shape only from such an op.
            copy, function = function, function_pb2.FunctionDef()
            function.CopyFrom(copy)
            for node in function.node_def:
                node.input[:] = [f"{name}/handle:resource:0" if name in variables else name for name in node.input]
            for name, variable in variables.items():
                function.node_def.add().CopyFrom(variable)
                function.node_def[-1].name = f"{name}/handle"
        inner = function_def_to_graph.function_def_to_graph(function, input_shapes=shapes)
    return {
        tensor.name: shape_of(tensor.shape) for operation in inner.get_operations() for tensor in operation.outputs
    }.get


def operands(node: node_def_pb2.NodeDef) -> list[str]:
    """Returns a node's operands, as `node:port`."""
    return [name if ":" in name else f"{name}:0" for name in node.input if not name.startswith("^")]
