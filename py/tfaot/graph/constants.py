"""Finds the constants of a graph and of its functions, and replaces their values. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.graph.attributes import Array
from tfaot.graph.ops import IDENTITIES


def constants(graph: graph_pb2.GraphDef) -> Iterator[tuple[str, node_def_pb2.NodeDef]]:
    """Yields each Const with its name: `node`, or `function/node` inside functions."""
    for node in graph.node:
        if node.op == "Const":
            yield node.name, node
    for function in graph.library.function:
        for node in function.node_def:
            if node.op == "Const":
                yield f"{function.signature.name}/{node.name}", node


def value_of(nodes: Mapping[str, node_def_pb2.NodeDef], tensor: str) -> Array | None:
    """Returns the value of a tensor, `node:port`, or None if it isn't a constant behind identities."""
    import tensorflow as tf

    node = nodes.get(tensor.partition(":")[0])
    while node is not None and node.op in IDENTITIES:
        node = nodes.get(node.input[0].partition(":")[0])
    if node is None or node.op != "Const":
        return None
    value: Array = tf.make_ndarray(node.attr["value"].tensor)
    return value


def with_values(graph: graph_pb2.GraphDef, values: Mapping[str, Array]) -> graph_pb2.GraphDef:
    """Returns a copy of a graph in which the named constants have other values of the same dtype and shape."""
    result = graph_pb2.GraphDef()
    result.CopyFrom(graph)
    for name, node in constants(result):
        if name in values:
            set_value(node, values[name])
    return result


def set_value(node: node_def_pb2.NodeDef, value: Array) -> None:
    """Gives a Const another value of the same dtype and shape."""
    tensor = node.attr["value"].tensor
    tensor.ClearField("float_val")
    tensor.tensor_content = value.tobytes()
