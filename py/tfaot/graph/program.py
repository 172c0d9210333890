"""The graph of one entry point, as passes see and edit it."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.graph.attributes import Array, Shape, shape_of
from tfaot.graph.edits import replace, set_attributes
from tfaot.graph.names import take, tensor_name
from tfaot.graph.ops import definition, fill_in_defaults, has_effects
from tfaot.graph.prune import prune


@dataclasses.dataclass(frozen=True)
class Tensor:
    """What is known about a tensor without running the graph."""

    shape: Shape
    dtype: int
    """`tensorflow.DataType`."""


@dataclasses.dataclass(frozen=True)
class User:
    """An operand of a node that takes a tensor."""

    node: node_def_pb2.NodeDef
    operand: int
    """The operand's position among the node's inputs."""
    port: int
    """The index of the producer's result; -1 for a control input."""


class Program:
    """The graph of one compiled function. Passes rewrite it in place.

    Everything that the config names must stay: a feed keeps its node; a fetch keeps its node's name, port, dtype, and
    shape; a VarHandleOp keeps its shared name. `become` and `add` preserve this. To replace a value, change its node in
    place.
    """

    def __init__(self, graph: graph_pb2.GraphDef, feeds: Mapping[str, Tensor], fetches: Sequence[str]) -> None:
        """Wraps a graph.

        Args:
          graph: rewritten in place.
          feeds: what is known about each fed tensor, by name with its port, `x:0`.
          fetches: names of tensors with their ports, `y:0`.
        """
        self.graph = graph
        self.feeds = dict(feeds)
        self.fetches = tuple(fetches)
        self.origins: dict[str, str] = {}
        """For each node that a pass added, the exported graph's node that it replaces, `node` or `function/node`."""
        self.running = ""
        """The name of the pass that runs."""
        self.reasons: dict[tuple[str, str], str] = {}
        """Why a pass left a node as it is, by the pass's name and the node's."""
        self._names = {node.name for node in graph.node}

    def missed(self, node: node_def_pb2.NodeDef, reason: str) -> None:
        """Notes a near miss of the pass that runs: it is for such nodes, but the change isn't legal, or doesn't pay off."""
        self.reasons.setdefault((self.running, node.name), reason)

    @staticmethod
    def of(graph: graph_pb2.GraphDef, config: Any) -> Program:
        """Copies the part of a graph that one entry point needs.

        Args:
          graph: the graph of all entry points.
          config: the `tf2xla.Config` of one entry point, with its batch size filled in.
        """
        nodes = {node.name: node for node in graph.node}
        feeds = {}
        for feed in config.feed:
            shape = None if feed.shape.unknown_rank else tuple(dim.size for dim in feed.shape.dim)
            dtype = feed.type or nodes[feed.id.node_name].attr["dtype"].type
            feeds[f"{feed.id.node_name}:{feed.id.output_index}"] = Tensor(shape, dtype)
        fetches = [f"{fetch.id.node_name}:{fetch.id.output_index}" for fetch in config.fetch]
        program = Program(graph_pb2.GraphDef(), feeds, fetches)
        program.graph.CopyFrom(graph)
        program.prune()
        _fill_in_defaults(program.graph)
        return program

    def _forget_order(self) -> None:
        """Drops control inputs from ops that have no effects and depend on none.

        The outputs of a Keras model wait for all of its weights, which would keep all of them in the graph.
        """
        users = self.users()
        called = {function.signature.name for function in self.graph.library.function}
        effects = [node.name for node in self.graph.node if node.op in called or has_effects(node.op)]
        ordered = set(effects)
        while effects:
            for user in users[effects.pop()]:
                if user.node.name not in ordered:
                    ordered.add(user.node.name)
                    effects.append(user.node.name)
        for node in self.graph.node:
            kept = [operand for operand in node.input if not operand.startswith("^") or operand[1:] in ordered]
            if len(kept) != len(node.input):
                node.ClearField("input")
                node.input.extend(kept)

    def prune(self) -> None:
        """Drops what the fetches don't need. Node objects that a pass keeps are invalid afterwards."""
        self._forget_order()
        handles = {variable.name for variable in self.graph.node if variable.op == "VarHandleOp"}
        fetches = [tensor_name(fetch)[0] for fetch in self.fetches]
        pruned = prune(self.graph, fetches, {tensor_name(feed)[0] for feed in self.feeds})
        kept = {node.name for node in pruned.node}
        pruned.node.extend(node for node in self.graph.node if node.name in handles - kept)
        self.graph.CopyFrom(pruned)
        self._names = {node.name for node in self.graph.node}

    def nodes(self) -> dict[str, node_def_pb2.NodeDef]:
        """Returns the graph's current nodes by name, without those in functions."""
        return {node.name: node for node in self.graph.node}

    def users(self) -> dict[str, list[User]]:
        """Returns the current users of each node, including those that wait for it. Fetches don't count."""
        users: dict[str, list[User]] = defaultdict(list)
        for node in self.graph.node:
            for index, operand in enumerate(node.input):
                producer, port = tensor_name(operand)
                users[producer].append(User(node, index, port))
        return users

    def kept(self) -> set[str]:
        """Returns the nodes that must keep their values: those of feeds and fetches."""
        return {tensor_name(tensor)[0] for tensor in (*self.feeds, *self.fetches)}

    def feed_of(self, tensor: str) -> str:
        """Returns the feed that a tensor is, or whose bits or parts it is made of."""
        nodes = self.nodes()
        while tensor not in self.feeds:
            name, port = tensor_name(tensor)
            if f"{name}:{port}" in self.feeds:
                return f"{name}:{port}"
            tensor = nodes[name].input[0]
        return tensor

    def tensors(self) -> dict[str, Tensor]:
        """Returns the dtypes and shapes of all tensors, by `node:port`, inferred from the feeds."""
        import tensorflow as tf

        with tf.Graph().as_default() as built:
            fed = {
                name: tf.compat.v1.placeholder(feed.dtype, feed.shape, name=f"tfaot_feed/{index}")
                for index, (name, feed) in enumerate(self.feeds.items())
            }
            tf.import_graph_def(self.graph, input_map=fed, name="")
            return {
                tensor.name: Tensor(shape_of(tensor.shape), tensor.dtype.as_datatype_enum)
                for operation in built.get_operations()
                for tensor in operation.outputs
            } | self.feeds

    def unique(self, name: str) -> str:
        """Reserves a name for a node: `name`, or the first of `name_1`, `name_2`, … that is free."""
        return take(name, self._names)

    def add(
        self, op: str, name: str, inputs: Iterable[str], *, origin: str, **attributes: object
    ) -> node_def_pb2.NodeDef:
        """Adds a node to the graph.

        Args:
          op: the op's type.
          name: the node's name; made unique.
          inputs: its operands.
          origin: the node that it replaces. Errors name that node's source line.
          **attributes: see `attributes.attribute`.
        """
        node = self.graph.node.add(op=op, name=self.unique(name), input=inputs)
        set_attributes(node, attributes)
        self.origins[node.name] = self.origins.get(origin, origin)
        return node

    def copied(self, node: node_def_pb2.NodeDef) -> node_def_pb2.NodeDef:
        """Adds a copy of a node, under its name."""
        copy = self.graph.node.add()
        copy.CopyFrom(node)
        self._names.add(copy.name)
        return copy

    def constant(self, name: str, value: Array, *, origin: str) -> node_def_pb2.NodeDef:
        """Adds a constant."""
        return self.add("Const", name, (), origin=origin, dtype=value.dtype, value=value)

    def become(self, node: node_def_pb2.NodeDef, op: str, inputs: Iterable[str], **attributes: object) -> None:
        """Replaces a node's op, operands, and attributes; see `edits.replace`."""
        replace(node, op, inputs, attributes)


def _fill_in_defaults(graph: graph_pb2.GraphDef) -> None:
    """Writes default attributes into all nodes, including those of functions."""
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        for node in nodes:
            if (defined := definition(node.op)) is not None:
                fill_in_defaults(node, defined)
