"""Cuts clusters out of a graph: each becomes a function, and a node in the graph calls it. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.cluster.candidates import SIZES, Nodes
from tfaot.cluster.clusters import Cluster
from tfaot.cluster.resize_sampling import Sample
from tfaot.core import dtypes
from tfaot.export.sources.subgraph import add_placeholder
from tfaot.export.traced import Array, Edge, Function
from tfaot.graph.attributes import type_attribute, types_attribute
from tfaot.graph.edits import set_attributes
from tfaot.graph.names import canonical, producer, take, tensor_name
from tfaot.graph.program import Tensor
from tfaot.graph.prune import prune


@dataclasses.dataclass(frozen=True)
class Part:
    """A cluster as a function."""

    cluster: Cluster
    node: str
    """The node of the cut graph that calls it."""
    function: Function
    inputs: tuple[str, ...]
    """What its node takes: tensors of the uncut graph, `node:port`."""
    samples: Mapping[int, Sample]
    """The inputs of which the function takes a sample, in several tensors. It takes the others as they are."""
    outputs: tuple[str, ...]
    """What it returns."""
    rows: Mapping[str, int]
    """How many elements a row has in the first dimension, of those tensors that have rows there."""

    def taken(self, values: Sequence[Array]) -> list[Array]:
        """Returns what the function takes if these are the values of `inputs`."""
        return [
            part
            for index, value in enumerate(values)
            for part in (self.samples[index].values(value) if index in self.samples else [value])
        ]


@dataclasses.dataclass(frozen=True)
class Cut:
    """A graph whose clusters are calls."""

    graph: graph_pb2.GraphDef
    outputs: tuple[Edge, ...]
    """The graph's outputs, which may be a cluster's now."""
    parts: tuple[Part, ...]


def cut(nodes: Nodes, clusters: Sequence[Cluster], outputs: Sequence[Edge], feeds: Sequence[str], op: str) -> Cut:
    """Cuts clusters out of a graph.

    Args:
      nodes: the graph.
      clusters: what to cut out.
      outputs: the graph's outputs.
      feeds: the nodes of its inputs.
      op: the op that calls a cluster, by its attribute `cluster`.
    """
    by_name = {node.name: node for node in nodes.graph.node}
    inside = {name: cluster.name for cluster in clusters for name in cluster.nodes}
    wanted = _crossing(nodes, inside, [canonical(edge.name) for edge in outputs])
    taken = set(by_name)
    called = {cluster.name: take(f"tfaot/{cluster.name}", taken) for cluster in clusters}
    parts = [_part(nodes, by_name, cluster, inside, wanted[cluster.name], called[cluster.name]) for cluster in clusters]
    moved = {
        tensor: f"{part.node}:{port}" if port else part.node
        for part in parts
        for port, tensor in enumerate(part.outputs)
    }
    result = graph_pb2.GraphDef(versions=nodes.graph.versions, library=nodes.graph.library)
    for node in nodes.graph.node:
        if node.name in inside:
            continue
        copy = result.node.add()
        copy.CopyFrom(node)
        copy.input[:] = _moved(node.input, moved, inside, called)
    for index, part in enumerate(parts):
        call = result.node.add(name=part.node, op=op)
        data = _moved(part.inputs, moved, inside, called)
        call.input.extend(operand.removesuffix(":0") for operand in data)
        call.input.extend(_waits(by_name, part, inside, called))
        set_attributes(
            call,
            {
                "cluster": index,
                "Tin": types_attribute(nodes.tensors[tensor].dtype for tensor in part.inputs),
                "Tout": types_attribute(nodes.tensors[tensor].dtype for tensor in part.outputs),
            },
        )
        if part.samples:
            codes = [part.samples[place].code if place in part.samples else 0 for place in range(len(part.inputs))]
            call.attr["samples"].list.i.extend(codes)
    edges = [dataclasses.replace(edge, name=canonical(moved.get(canonical(edge.name), edge.name))) for edge in outputs]
    pruned = prune(result, [producer(edge.name) for edge in edges], feeds)
    return Cut(pruned, tuple(edges), tuple(parts))


def _crossing(nodes: Nodes, inside: Mapping[str, str], fetched: Sequence[str]) -> dict[str, list[str]]:
    """Returns the tensors that leave each cluster, in the order of their nodes."""
    leaving: set[str] = {tensor for tensor in fetched if tensor_name(tensor)[0] in inside}
    copies = _only_copied(nodes, inside, fetched)
    for node in nodes.graph.node:
        if node.name in copies:
            continue
        for operand in node.input:
            source = producer(operand)
            if not operand.startswith("^") and source in inside and inside.get(node.name) != inside[source]:
                leaving.add(canonical(operand))
    place = {node.name: index for index, node in enumerate(nodes.graph.node)}
    result: dict[str, list[str]] = {name: [] for name in inside.values()}
    for tensor in sorted(leaving, key=lambda name: (place[tensor_name(name)[0]], tensor_name(name)[1])):
        result[inside[tensor_name(tensor)[0]]].append(tensor)
    return result


def _only_copied(nodes: Nodes, inside: Mapping[str, str], fetched: Sequence[str]) -> set[str]:
    """Returns the nodes of which only clusters' copies are left, so nothing outside takes their operands."""
    batches = {name: nodes.batch(node) for node in nodes.graph.node if (name := node.name) in inside}
    taken = {tensor_name(tensor)[0] for tensor in fetched}
    copies = set()
    for node in reversed(nodes.graph.node):
        if node.name in nodes.sized and node.name not in taken:
            copies.add(node.name)
            continue
        for operand in node.input:
            name = producer(operand)
            if operand.startswith("^") or node.name not in inside or not nodes.is_copied(name, batches[node.name]):
                taken.add(name)
    return copies


def _moved(
    operands: Sequence[str], moved: Mapping[str, str], inside: Mapping[str, str], called: Mapping[str, str]
) -> list[str]:
    """Returns operands as they are in the cut graph."""
    result = []
    for operand in operands:
        if operand.startswith("^"):
            name = operand[1:]
            operand = f"^{called[inside[name]]}" if name in inside else operand
            if operand in result:
                continue
        else:
            operand = moved.get(canonical(operand), operand)
        result.append(operand)
    return result


def _waits(
    by_name: Mapping[str, node_def_pb2.NodeDef], part: Part, inside: Mapping[str, str], called: Mapping[str, str]
) -> list[str]:
    """Returns what a cluster waits for: what its nodes wait for, and the constants that it has copies of.

    In a branch, only these may say whether it runs.
    """
    own = part.cluster.name
    copies = [node.name for node in part.function.graph.node if node.name in by_name]
    waits = {
        f"^{called[inside[name]]}" if (name := operand[1:]) in inside else operand
        for copy in copies
        for operand in by_name[copy].input
        if operand.startswith("^") and inside.get(operand[1:]) != own
    }
    return sorted(waits)


def _part(
    nodes: Nodes,
    by_name: Mapping[str, node_def_pb2.NodeDef],
    cluster: Cluster,
    inside: Mapping[str, str],
    outputs: Sequence[str],
    call: str,
) -> Part:
    """Returns a cluster as a function, with copies of the known nodes that it uses."""
    graph = graph_pb2.GraphDef(versions=nodes.graph.versions, library=nodes.graph.library)
    copied = dict.fromkeys(cluster.nodes)
    pending = list(cluster.nodes)
    while pending:
        for operand in by_name[pending.pop()].input:
            name = producer(operand)
            if operand.startswith("^") or name in copied or not nodes.is_copied(name, cluster.batch):
                continue
            copied[name] = None
            if not _is_measured(nodes, by_name[name]):
                pending.append(name)
    taken = set(by_name)
    samples = [nodes.samples[name].within(copied) for name in cluster.nodes if name in nodes.samples]
    sampled = {sample.path[0]: sample for sample in samples}
    inputs: dict[str | Sample, list[Edge]] = {}
    for node in [node for node in nodes.graph.node if node.name in copied]:
        if _is_measured(nodes, node):
            continue
        copy = graph.node.add()
        copy.CopyFrom(node)
        del copy.input[:]
        for operand in node.input:
            name = producer(operand)
            if operand.startswith("^"):
                if name in copied:
                    copy.input.append(operand)
                continue
            if name not in copied:
                tensor = canonical(operand)
                source = sampled.get((node.name, tensor), tensor)
                if source not in inputs:
                    own = nodes.tensors[tensor]
                    inputs[source] = _edges(
                        [own] if isinstance(source, str) else source.parts(own), sum(map(len, inputs.values())), taken
                    )
                operand = tensor_name(inputs[source][0].name)[0]
            copy.input.append(operand)
    for sample in samples:
        sample.interpolate(graph, [tensor_name(edge.name)[0] for edge in inputs[sample][1:]])
    edges = [edge for fed in inputs.values() for edge in fed]
    tensors = tuple(source if isinstance(source, str) else source.image for source in inputs)
    batched = next((edge for edge in edges if edge.shape and edge.shape[0] is None), None)
    for name in copied:
        if batched and _is_measured(nodes, by_name[name]):
            _measure(graph, nodes, by_name[name], batched, taken)
    results = []
    for index, tensor in enumerate(outputs):
        own = nodes.tensors[tensor]
        identity = graph.node.add(
            name=take(f"tfaot/output_{index}", taken), op="Identity", input=[tensor.removesuffix(":0")]
        )
        identity.attr["T"].CopyFrom(type_attribute(own.dtype))
        results.append(Edge(f"{identity.name}:0", f"output_{index}", own.dtype, own.shape))
    for edge in edges:
        add_placeholder(graph, tensor_name(edge.name)[0], edge.dtype, edge.shape)
    names = [tensor_name(edge.name)[0] for edge in results]
    if cluster.batch and not batched:  # nothing says how many rows there are
        return Part(cluster, call, Function(cluster.name, graph, (), tuple(results)), (), {}, tuple(outputs), {})
    graph = prune(graph, names, [tensor_name(edge.name)[0] for edge in edges])
    function = Function(cluster.name, graph, tuple(edges), tuple(results))
    rows = {
        tensor: nodes.rows[tensor].width
        for tensor in (*tensors, *outputs)
        if tensor in nodes.rows and nodes.rows[tensor].axis == 0
    }
    places = {place: source for place, source in enumerate(inputs) if isinstance(source, Sample)}
    return Part(cluster, call, function, tensors, places, tuple(outputs), rows)


def _edges(tensors: Sequence[Tensor], first: int, taken: set[str]) -> list[Edge]:
    """Returns inputs of a cluster's function, numbered from `first`."""
    return [
        Edge(f"{take(f'tfaot/input_{number}', taken)}:0", f"input_{number}", tensor.dtype, tensor.shape)
        for number, tensor in enumerate(tensors, first)
    ]


def _is_measured(nodes: Nodes, node: node_def_pb2.NodeDef) -> bool:
    """Returns whether a node takes the size of a tensor that has rows of a batch."""
    return node.op in SIZES and canonical(node.input[0]) in nodes.rows


def _measure(
    graph: graph_pb2.GraphDef, nodes: Nodes, node: node_def_pb2.NodeDef, batched: Edge, taken: set[str]
) -> None:
    """Adds what computes the size of a tensor, which may be outside of the cluster, from the number of rows of an input."""
    tensor = canonical(node.input[0])
    shape, rows = nodes.tensors[tensor].shape or (), nodes.rows[tensor]
    dtype = type_attribute(nodes.tensors[f"{node.name}:0"].dtype)
    index = np.dtype(np.int32)

    def add(name: str, op: str, operands: Sequence[str], attributes: Mapping[str, object]) -> str:
        name = name if name == node.name else take(name, taken)
        set_attributes(graph.node.add(name=name, op=op, input=operands), attributes)
        return name

    def constant(value: int) -> str:
        array = np.array(value, dtypes.BY_ENUM[dtype.type].name)
        return add(f"{node.name}/tfaot_size", "Const", [], {"dtype": dtype, "value": array})

    def places(value: int) -> str:
        return add(f"{node.name}/tfaot_place", "Const", [], {"dtype": index, "value": np.array([value], index)})

    if node.op == "Rank":
        array = np.array(len(shape), dtypes.BY_ENUM[dtype.type].name)
        add(node.name, "Const", [], {"dtype": dtype, "value": array})
        return
    whole = add(
        f"{node.name}/tfaot_shape",
        "Shape",
        [tensor_name(batched.name)[0]],
        {"T": type_attribute(batched.dtype), "out_type": dtype},
    )
    masks = dict.fromkeys(("begin_mask", "ellipsis_mask", "end_mask", "new_axis_mask"), 0)
    count = add(
        f"{node.name}/tfaot_rows",
        "StridedSlice",
        [whole, places(0), places(1), places(1)],
        {"T": dtype, "Index": index, **masks, "shrink_axis_mask": 1},
    )
    others = math.prod(size for size in shape if size is not None)
    if node.op == "Size":
        add(node.name, "Mul", [count, constant(rows.width * others)], {"T": dtype})
        return
    if rows.width > 1:
        count = add(f"{node.name}/tfaot_elements", "Mul", [count, constant(rows.width)], {"T": dtype})
    sizes = [count if size is None else constant(size) for size in shape]
    add(node.name, "Pack", sizes, {"T": dtype, "N": len(sizes), "axis": 0})
