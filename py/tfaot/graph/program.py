"""A graph on its way into the compiler, as passes see and change it."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.graph.attributes import Array, Shape
from tfaot.graph.edits import replace, set_attributes
from tfaot.graph.names import take, tensor_name
from tfaot.graph.ops import definition, fill_in_defaults, has_effects
from tfaot.graph.prune import prune


@dataclasses.dataclass(frozen=True)
class Tensor:
    """What is known of a tensor without running the graph."""

    shape: Shape
    dtype: int
    """`tensorflow.DataType`."""


@dataclasses.dataclass(frozen=True)
class User:
    """One operand of a node that takes a tensor."""

    node: node_def_pb2.NodeDef
    operand: int
    """Its position among the node's inputs."""
    port: int
    """Which result of the producer it is; -1 for a control input."""


class Program:
    """The graph of one compiled function. Passes rewrite it in place.

    What the config names must stay: a feed keeps its node; a fetch keeps its node's name, position, dtype, and shape; a
    VarHandleOp keeps its shared name. `become` and `add` do: nodes that others, control inputs, or fetches name keep their
    names, and what replaces a value takes over its node.
    """

    def __init__(
        self,
        graph: graph_pb2.GraphDef,
        feeds: Mapping[str, Tensor],
        fetches: Sequence[str],
    ) -> None:
        """Wraps a graph.

        Args:
          graph: rewritten in place.
          feeds: what is fed, by tensor's name with its port, `x:0`.
          fetches: names of tensors with their ports, `y:0`.
        """
        self.graph = graph
        self.feeds = dict(feeds)
        self.fetches = tuple(fetches)
        self.origins: dict[str, str] = {}
        """The node, as the exported graph calls it, that a node of a pass stands for; keys are `node` or `function/node`."""
        self._names = {node.name for node in graph.node}

    @staticmethod
    def of(graph: graph_pb2.GraphDef, config: Any) -> Program:
        """Copies what one entry point needs of a graph.

        Args:
          graph: of all entry points.
          config: `tf2xla.Config` of one of them, with the size of batch put in.
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
        """Drops control inputs that wait for values alone: of ops without effects, behind which none with effects is.

        A Keras model's outputs wait for all of its weights, which would keep every one of them in the graph.
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
        """Drops what the fetches do not need. Nodes that a pass holds are invalid afterwards."""
        self._forget_order()
        handles = {variable.name for variable in self.graph.node if variable.op == "VarHandleOp"}
        fetches = [tensor_name(fetch)[0] for fetch in self.fetches]
        pruned = prune(self.graph, fetches, {tensor_name(feed)[0] for feed in self.feeds})
        kept = {node.name for node in pruned.node}
        pruned.node.extend(node for node in self.graph.node if node.name in handles - kept)
        self.graph.CopyFrom(pruned)
        self._names = {node.name for node in self.graph.node}

    def nodes(self) -> dict[str, node_def_pb2.NodeDef]:
        """All nodes of the graph, without those in functions, by name; as of now."""
        return {node.name: node for node in self.graph.node}

    def users(self) -> dict[str, list[User]]:
        """Which operands take a result of each node, control inputs included; as of now. Fetches are no users."""
        found: dict[str, list[User]] = defaultdict(list)
        for node in self.graph.node:
            for index, operand in enumerate(node.input):
                producer, port = tensor_name(operand)
                found[producer].append(User(node, index, port))
        return found

    def kept(self) -> set[str]:
        """Nodes whose value someone outside sees: those of feeds and fetches."""
        return {tensor_name(tensor)[0] for tensor in (*self.feeds, *self.fetches)}

    def tensors(self) -> dict[str, Tensor]:
        """What is known of each tensor of the graph, by `node:port`, given what is fed."""
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
        """Returns a node's name that is not taken yet, `name` or `name_1` …, and takes it."""
        return take(name, self._names)

    def add(
        self, op: str, name: str, inputs: Iterable[str], *, origin: str, **attributes: object
    ) -> node_def_pb2.NodeDef:
        """Adds a node to the graph.

        Args:
          op: the op's type.
          name: of the node; made unique.
          inputs: operands.
          origin: the node that it stands for: errors name that one's source line.
          **attributes: as of `attributes.attribute`.
        """
        node = self.graph.node.add(op=op, name=self.unique(name), input=inputs)
        set_attributes(node, attributes)
        self.origins[node.name] = self.origins.get(origin, origin)
        return node

    def constant(self, name: str, value: Array, *, origin: str) -> node_def_pb2.NodeDef:
        """Adds a constant."""
        return self.add("Const", name, (), origin=origin, dtype=value.dtype, value=value)

    def become(self, node: node_def_pb2.NodeDef, op: str, inputs: Iterable[str], **attributes: object) -> None:
        """Makes another op of a node; who takes its results, or waits for it, now does so with the new one's.

        Control inputs of the node stay.
        """
        replace(node, op, inputs, attributes)


def _fill_in_defaults(graph: graph_pb2.GraphDef) -> None:
    """Writes down all attributes of nodes, also of those of functions."""
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        for node in nodes:
            if (found := definition(node.op)) is not None:
                fill_in_defaults(node, found)


def shape_of(shape: Any) -> Shape:
    """A `tf.TensorShape` as a tuple."""
    return None if shape.rank is None else tuple(shape.as_list())
