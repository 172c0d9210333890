"""A graph on its way into the compiler, as passes see and change it."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tensorflow.core.framework import attr_value_pb2, graph_pb2, node_def_pb2, tensor_shape_pb2, types_pb2
from tensorflow.python.framework import op_def_registry, tensor_util

from tfaot.graph.graph import prune, tensor_name

Array = npt.NDArray[Any]
Shape = tuple[int | None, ...] | None
"""Of a tensor; None for a size that is not known, or for a rank that is not known."""


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
        effects = [node.name for node in self.graph.node if node.op in called or _has_effects(node.op)]
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
                tensor.name: Tensor(_sizes(tensor.shape), tensor.dtype.as_datatype_enum)
                for operation in built.get_operations()
                for tensor in operation.outputs
            } | self.feeds

    def unique(self, name: str) -> str:
        """Returns a node's name that is not taken yet, `name` or `name_1` …, and takes it."""
        taken, count = name, 0
        while taken in self._names:
            count += 1
            taken = f"{name}_{count}"
        self._names.add(taken)
        return taken

    def add(
        self, op: str, name: str, inputs: Iterable[str], *, origin: str, **attributes: object
    ) -> node_def_pb2.NodeDef:
        """Adds a node to the graph.

        Args:
          op: the op's type.
          name: of the node; made unique.
          inputs: operands.
          origin: the node that it stands for: errors name that one's source line.
          **attributes: as of `attribute`.
        """
        node = self.graph.node.add(op=op, name=self.unique(name), input=inputs)
        for key, value in attributes.items():
            node.attr[key].CopyFrom(attribute(value))
        self.origins[node.name] = self.origins.get(origin, origin)
        return node

    def constant(self, name: str, value: Array, *, origin: str) -> node_def_pb2.NodeDef:
        """Adds a constant."""
        return self.add("Const", name, (), origin=origin, dtype=value.dtype, value=value)

    def become(self, node: node_def_pb2.NodeDef, op: str, inputs: Iterable[str], **attributes: object) -> None:
        """Makes another op of a node; who takes its results, or waits for it, now does so with the new one's.

        Control inputs of the node stay.
        """
        waits = [operand for operand in node.input if operand.startswith("^")]
        operands = [*inputs, *waits]
        node.op = op
        node.ClearField("input")
        node.input.extend(operands)
        node.attr.clear()
        for key, value in attributes.items():
            node.attr[key].CopyFrom(attribute(value))


def attribute(value: object) -> attr_value_pb2.AttrValue:
    """A value as a node's attribute.

    Args:
      value: an AttrValue, which is copied; a bool, int, float, or str; a numpy dtype; an array, which becomes a tensor; a
        TensorShapeProto; or a list of ints or of dtypes (ints of `tensorflow.DataType` go in as AttrValue).
    """
    result = attr_value_pb2.AttrValue()
    if isinstance(value, attr_value_pb2.AttrValue):
        result.CopyFrom(value)
    elif isinstance(value, bool):
        result.b = value
    elif isinstance(value, int):
        result.i = value
    elif isinstance(value, float):
        result.f = value
    elif isinstance(value, str):
        result.s = value.encode()
    elif isinstance(value, np.dtype):
        result.type = dtype_enum(value)
    elif isinstance(value, np.ndarray):
        result.tensor.CopyFrom(tensor_util.make_tensor_proto(value, shape=value.shape))
    elif isinstance(value, tensor_shape_pb2.TensorShapeProto):
        result.shape.CopyFrom(value)
    elif isinstance(value, list):
        result.list.i.extend(value)
        result.list.SetInParent()
    else:
        raise TypeError(f"no attribute can be made of {value!r}")
    return result


def type_attribute(dtype: int) -> attr_value_pb2.AttrValue:
    """An attribute that is a dtype, a `tensorflow.DataType`."""
    return attr_value_pb2.AttrValue(type=dtype)


def dtype_enum(dtype: np.dtype[Any]) -> int:
    """`tensorflow.DataType` of a numpy dtype."""
    import tensorflow as tf

    result: int = tf.as_dtype(dtype).as_datatype_enum
    return result


def literal(node: node_def_pb2.NodeDef) -> Array:
    """The value of a Const."""
    value: Array = tensor_util.MakeNdarray(node.attr["value"].tensor)
    return value


def constant_of(nodes: Mapping[str, node_def_pb2.NodeDef], tensor: str, fed: Collection[str] = ()) -> Array | None:
    """The value of an operand that is a constant, perhaps behind Identity; else None.

    Args:
      nodes: of the graph, by name.
      tensor: the operand.
      fed: tensors with values from outside, `node:port`.
    """
    while True:
        name, port = tensor_name(tensor)
        node = nodes.get(name)
        if node is None or port != 0 or f"{name}:0" in fed:
            return None
        if node.op == "Const":
            return literal(node)
        if node.op not in ("Identity", "StopGradient", "PreventGradient", "Snapshot"):
            return None
        tensor = node.input[0]


def _fill_in_defaults(graph: graph_pb2.GraphDef) -> None:
    """Writes down the attributes that nodes, also those of functions, leave at their defaults: functions of a SavedModel do."""
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        for node in nodes:
            definition = op_def_registry.get(node.op)
            for each in definition.attr if definition is not None else ():
                if each.HasField("default_value") and node.attr[each.name].WhichOneof("value") is None:
                    node.attr[each.name].CopyFrom(each.default_value)


def _has_effects(op: str) -> bool:
    definition = op_def_registry.get(op)
    return definition is None or bool(definition.is_stateful)


def _sizes(shape: Any) -> Shape:
    return None if shape.rank is None else tuple(shape.as_list())


FLOATS = (types_pb2.DT_FLOAT, types_pb2.DT_DOUBLE)
