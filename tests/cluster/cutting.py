"""Cuts graphs in tests, and runs what is cut in TensorFlow: each cluster is a function that its node calls."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import function_pb2, graph_pb2

from tfaot.cluster.candidates import Nodes
from tfaot.cluster.cluster import settled
from tfaot.cluster.clusters import Clustering
from tfaot.cluster.cut import Cut, Part, cut
from tfaot.cluster.host_model import Running, Whole
from tfaot.export.sources.ref_variables import name_variables
from tfaot.export.sources.subgraph import Feed, Fetch, function_of_graph
from tfaot.export.traced import Array, Dims, Edge
from tfaot.graph.names import producer, tensor_name

v1 = tf.compat.v1

OP = "TfaotM4test"
"""The op that calls clusters."""


@dataclasses.dataclass(frozen=True)
class Made:
    """A graph and what it was cut into."""

    nodes: Nodes
    found: Clustering
    cut: Cut
    inputs: tuple[Edge, ...]
    outputs: tuple[Edge, ...]

    @property
    def operations(self) -> list[list[str]]:
        """The ops of each cluster, in alphabetical order."""
        by_name = {node.name: node.op for node in self.nodes.graph.node}
        return [sorted(by_name[name] for name in cluster.nodes) for cluster in self.found.clusters]

    def reason(self, op: str) -> str:
        """Returns why the first node of an op stays with TensorFlow."""
        return next(self.found.left.get(node.name, "") for node in self.nodes.graph.node if node.op == op)


def made(
    graph: tf.Graph,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    *,
    least: int = 1,
    batched: bool = False,
    pipeline: bool = False,
) -> Made:
    """Cuts a graph."""

    class Open(Dims):
        def fix(self, what: str, edges: Sequence[Edge], *, lengths: bool = True) -> tuple[Edge, ...]:
            return tuple(edges)

    proto = graph.as_graph_def()
    name_variables(proto)
    function = function_of_graph(
        proto,
        [Feed(tensor.name, tensor.op.name) for tensor in inputs],
        [Fetch(tensor.name, tensor.name.replace(":", "_")) for tensor in outputs],
        name="main",
        what="the test's graph",
        dims=Open({}),
        sources={},
    )
    nodes, found = settled(
        function, what="the test's graph", least=least, refused={}, batched=batched, pipeline=pipeline
    )
    feeds = [tensor_name(edge.name)[0] for edge in function.inputs]
    return Made(
        nodes, found, cut(nodes, found.clusters, function.outputs, feeds, OP), function.inputs, function.outputs
    )


def both(made: Made, variables: dict[str, Array] | None = None) -> tuple[Running, Running]:
    """Returns the uncut graph, and the cut one with a function for each cluster, ready to run."""
    graph = graph_pb2.GraphDef()
    graph.CopyFrom(made.cut.graph)
    graph.library.CopyFrom(made.nodes.graph.library)
    for node in graph.node:
        if node.op == OP:
            part = made.cut.parts[node.attr["cluster"].i]
            graph.library.function.append(_function(part))
            node.op = "PartitionedCall"
            del node.attr["cluster"]
            node.attr["f"].func.name = part.cluster.name
    values = variables or {}
    return (
        Running(Whole(made.nodes.uncut, made.inputs, made.outputs, values)),
        Running(Whole(graph, made.inputs, made.cut.outputs, values)),
    )


def _function(part: Part) -> function_pb2.FunctionDef:
    from tensorflow.python.framework import graph_to_function_def

    with tf.Graph().as_default() as graph:
        tf.import_graph_def(part.function.graph, name="")
        inputs = [graph.get_tensor_by_name(edge.name) for edge in part.function.inputs]
        outputs = [graph.get_tensor_by_name(edge.name) for edge in part.function.outputs]
        fed = {tensor.op.name for tensor in inputs}
        operations = [operation for operation in graph.get_operations() if operation.name not in fed]
        result = graph_to_function_def.graph_to_function_def(graph, operations, inputs, outputs)
    result.signature.name = part.cluster.name
    # Like the op, it runs as a whole, when all of its inputs are there.
    result.attr["_noinline"].b = True
    return result


def effects(graph: graph_pb2.GraphDef) -> set[tuple[str, str]]:
    """Returns the pairs of nodes outside of clusters of which the second runs after the first."""
    before: dict[str, set[str]] = {}
    for node in _sorted(graph):
        before[node.name] = set()
        for operand in node.input:
            name = producer(operand)
            before[node.name] |= before.get(name, set()) | {name}
    return {(first, second) for second, all_before in before.items() for first in all_before}


def _sorted(graph: graph_pb2.GraphDef) -> list[Any]:
    """Returns the nodes, each after its operands; raises ValueError if there is a cycle."""
    left = {node.name: node for node in graph.node}
    done: list[Any] = []
    while left:
        ready = [
            name
            for name, node in left.items()
            if not any(
                producer(operand) in left and left[producer(operand)].op != "NextIteration" for operand in node.input
            )
        ]
        if not ready:
            raise ValueError(f"a cycle among {sorted(left)}")
        done += [left.pop(name) for name in ready]
    return done
