"""What a graph computes, whatever its nodes and functions are called. Pure, and linear in the number of nodes.

A node is identified by what leads to it: its op, its attributes, and its operands, down to inputs and variables, which
are identified by their position. Fingerprints (`tfaot.core.fingerprint`) and explanations of rebuilds
(`tfaot.explain`) are made from this.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence

from tensorflow.core.framework import attr_value_pb2, graph_pb2, node_def_pb2, tensor_shape_pb2

from tfaot.graph.names import producer
from tfaot.graph.ops import Library

_IGNORED = frozenset({"config_proto", "container", "debug_name", "executor_type", "shared_name"})
"""Attributes that name things, or that only TensorFlow's runtime reads. So are those that start with an underscore."""


@dataclasses.dataclass(frozen=True)
class Node:
    """A node, and what identifies it."""

    name: str
    """`node`, or `function/node` inside functions, as in the map of source lines."""
    proto: node_def_pb2.NodeDef
    key: bytes
    """The same for nodes with the same op, attributes, and operands. Constants' values and shapes don't count."""
    operands: tuple[bytes, ...]
    """The keys of what it takes and waits for."""


@dataclasses.dataclass(frozen=True)
class Structure:
    """A graph in an order that doesn't depend on names. Digests have 64 bits, as hexadecimal digits."""

    nodes: tuple[Node, ...]
    """Each follows its operands, except in TensorFlow 1's loops. A function's nodes come before the first node that calls it."""
    graph: str
    """Digest of ops, attributes, and edges."""
    shapes: str
    """Digest of attributes that are shapes."""
    constants: str
    """Digest of attributes that are tensors: constants' values."""


def structure(
    graph: graph_pb2.GraphDef, runs: Sequence[tuple[Sequence[str], Sequence[str]]], variables: Sequence[str]
) -> Structure:
    """Returns the structure of the part of a graph that its entry points need.

    Args:
      graph: a graph.
      runs: what each entry point feeds and fetches: tensors, `node:port`. No two feed the same node.
      variables: the shared names of its variables, in an order that means something to the caller.
    """
    library = _Library(graph, {name: index for index, name in enumerate(variables)})
    edges = {
        producer(feed): f"input {number}.{index}".encode()
        for number, (feeds, _) in enumerate(runs)
        for index, feed in enumerate(feeds)
    }
    nodes = {node.name: node for node in graph.node}
    starts = [fetch for _, fetches in runs for fetch in fetches]
    digests = library.body("", nodes, edges, starts)
    return Structure(tuple(library.nodes), *(_digest(digest).hex() for digest in digests))


@dataclasses.dataclass(frozen=True)
class _Attributes:
    """A node's attributes, serialized by kind."""

    structure: bytes
    shapes: bytes
    constants: bytes


class _Library:
    """The functions of a graph, which are identified by their bodies."""

    def __init__(self, graph: graph_pb2.GraphDef, variables: Mapping[str, int]) -> None:
        self.nodes: list[Node] = []
        """All nodes that bodies have been made of."""
        self._functions: Library = {function.signature.name: function for function in graph.library.function}
        self._gradients = {gradient.function_name: gradient.gradient_func for gradient in graph.library.gradient}
        self._variables = variables
        self._digests: dict[str, tuple[bytes, bytes, bytes]] = {}

    def _function(self, name: str) -> tuple[bytes, bytes, bytes]:
        """Returns the digests of a function: structure, shapes, constants. An unknown function is its name."""
        if name not in self._functions:
            return name.encode(), b"", b""
        if name not in self._digests:
            self._digests[name] = (b"itself", b"", b"")  # a function that calls itself
            function = self._functions[name]
            signature = function.signature
            edges = {arg.name: f"argument {index}".encode() for index, arg in enumerate(signature.input_arg)}
            nodes = {node.name: node for node in function.node_def}
            starts = [function.ret[result.name] for result in signature.output_arg]
            digests = self.body(name, nodes, edges, starts, whole=True)
            if name in self._gradients:
                more = self._function(self._gradients[name])
                digests = (_digest(digests[0], more[0]), _joined([digests[1], more[1]]), _joined([digests[2], more[2]]))
            self._digests[name] = digests
        return self._digests[name]

    def body(
        self,
        name: str,
        nodes: Mapping[str, node_def_pb2.NodeDef],
        edges: Mapping[str, bytes],
        starts: Sequence[str],
        *,
        whole: bool = False,
    ) -> tuple[bytes, bytes, bytes]:
        """Adds the nodes of a body, and returns its digests: structure, shapes, constants.

        Args:
          name: the function's name; empty for the graph.
          nodes: its nodes, by name.
          edges: what identifies inputs or arguments, by name.
          starts: the operands that the body returns.
          whole: whether nodes count that the results don't need. XLA compiles all nodes of a function.
        """
        attributes: dict[str, _Attributes] = {}
        keys: dict[str, bytes] = dict(edges)
        opened: dict[str, None] = {}

        def visit(start: str) -> None:
            pending = [start]
            while pending:
                name = pending[-1]
                if name in keys or name not in nodes:
                    pending.pop()
                    continue
                operands = nodes[name].input
                if name not in opened:
                    opened[name] = None
                    attributes[name] = self._attributes(nodes[name])
                    pending += [p for p in map(producer, reversed(operands)) if p not in keys and p not in opened]
                    continue
                pending.pop()
                taken = [keys.get(producer(o), b"loop") + _output(o) for o in operands if not o.startswith("^")]
                waits = sorted(keys.get(producer(o), b"loop") for o in operands if o.startswith("^"))
                keys[name] = _digest(attributes[name].structure, _digest(*taken), _digest(*waits), size=16)

        for start in starts:
            visit(producer(start))
        if whole:
            for node in nodes:
                visit(node)
        order = _order(nodes, keys, edges, [*map(producer, starts), *sorted(opened, key=lambda n: keys[n])])
        numbers = {node: str(index).encode() for index, node in enumerate(order)}

        def edge(operand: str) -> bytes:
            start = producer(operand)
            return edges.get(start) or numbers.get(start, start.encode())

        structure = [_digest(*(edge(start) + _output(start) for start in starts))]
        shapes, constants = [], []
        for node in order:
            operands = nodes[node].input
            taken = [edge(o) + _output(o) for o in operands if not o.startswith("^")]
            waits = sorted(edge(o) for o in operands if o.startswith("^"))
            structure.append(_digest(attributes[node].structure, _digest(*taken), _digest(*waits)))
            shapes.append(attributes[node].shapes)
            constants.append(attributes[node].constants)
            operand_keys = tuple(keys.get(producer(o), b"loop") for o in operands)
            prefix = f"{name}/" if name else ""
            self.nodes.append(Node(prefix + node, nodes[node], keys[node], operand_keys))
        return _digest(*structure), _joined(shapes), _joined(constants)

    def _attributes(self, node: node_def_pb2.NodeDef) -> _Attributes:
        structure, shapes, constants = [node.op.encode()], [], []
        if node.op in self._functions:
            own = self._function(node.op)
            structure, shapes, constants = [own[0]], [own[1]], [own[2]]
        if node.op == "VarHandleOp":
            shared = node.attr["shared_name"].s.decode()
            # The order of variables is the caller's, and a variable that the caller doesn't know is its name.
            structure.append(f"variable {self._variables.get(shared, shared)}".encode())
        for key in sorted(node.attr):
            if key in _IGNORED or key.startswith("_"):
                continue
            value = node.attr[key]
            kind = value.WhichOneof("value")
            structure.append(key.encode())
            if kind == "tensor":
                constants.append(value.tensor.SerializeToString(deterministic=True))
            elif kind == "shape":
                shapes.append(_shape(value.shape))
            elif kind == "list" and value.list.shape:
                shapes += [_shape(shape) for shape in value.list.shape]
            elif kind == "func" or (kind == "list" and value.list.func):
                for function in [value.func] if kind == "func" else value.list.func:
                    digests = self._function(function.name)
                    structure += [digests[0], *self._bound(function)]
                    shapes.append(digests[1])
                    constants.append(digests[2])
            else:
                structure.append(value.SerializeToString(deterministic=True))
        return _Attributes(_digest(*structure, size=16), _joined(shapes), _joined(constants))

    def _bound(self, function: attr_value_pb2.NameAttrList) -> list[bytes]:
        """Returns what identifies the attributes that a call gives a function."""
        return [
            part
            for key in sorted(function.attr)
            if not key.startswith("_")
            for part in (key.encode(), function.attr[key].SerializeToString(deterministic=True))
        ]


def _order(
    nodes: Mapping[str, node_def_pb2.NodeDef],
    keys: Mapping[str, bytes],
    edges: Mapping[str, bytes],
    starts: Sequence[str],
) -> list[str]:
    """Returns the names of nodes, each after its operands. What a node waits for comes in the order of keys, not of names."""
    ordered: dict[str, None] = {}
    opened: set[str] = set()
    pending = [start for start in reversed(starts)]
    while pending:
        current = pending[-1]
        if current in ordered or current not in nodes or current in edges:
            pending.pop()
        elif current in opened:
            pending.pop()
            ordered[current] = None
        else:
            opened.add(current)
            operands = nodes[current].input
            waits = sorted((o[1:] for o in operands if o.startswith("^")), key=lambda name: keys.get(name, b""))
            following = [*(producer(o) for o in operands if not o.startswith("^")), *waits]
            pending += [name for name in reversed(following) if name not in opened]
    return list(ordered)


def _output(operand: str) -> bytes:
    """Returns which output of its producer an operand is, in both notations: the first one can go without a number."""
    rest = operand.partition(":")[2]
    return b":" + (rest or "0").encode()


def _shape(shape: tensor_shape_pb2.TensorShapeProto) -> bytes:
    return b"?" if shape.unknown_rank else ",".join(str(dim.size) for dim in shape.dim).encode() + b"."


def _joined(parts: Sequence[bytes]) -> bytes:
    """Returns the digest of the parts that aren't empty, or nothing. What has no shapes or constants doesn't count there."""
    nonempty = [part for part in parts if part]
    return _digest(*nonempty) if nonempty else b""


def _digest(*parts: bytes, size: int = 8) -> bytes:
    digest = hashlib.blake2b(digest_size=size)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()
