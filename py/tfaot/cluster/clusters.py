"""Which nodes form clusters. Pure."""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from tfaot.cluster.candidates import Nodes
from tfaot.cluster.order import Merging
from tfaot.graph.names import producer

FREE = frozenset(
    {"ExpandDims", "Identity", "IdentityN", "PreventGradient", "Reshape", "Snapshot", "Squeeze", "StopGradient"}
)
"""Ops that TensorFlow runs without touching a value."""

MOVES = FREE | {
    "BatchToSpaceND",
    "BroadcastTo",
    "Concat",
    "ConcatV2",
    "DepthToSpace",
    "Diag",
    "Fill",
    "Gather",
    "GatherNd",
    "GatherV2",
    "MatrixDiag",
    "MirrorPad",
    "OnesLike",
    "Pack",
    "Pad",
    "PadV2",
    "Reverse",
    "ReverseV2",
    "Roll",
    "Shape",
    "ShapeN",
    "Size",
    "Slice",
    "SpaceToBatchND",
    "SpaceToDepth",
    "Split",
    "SplitV",
    "StridedSlice",
    "Tile",
    "Transpose",
    "Unpack",
    "ZerosLike",
}
"""Ops that only move data."""


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Nodes that become one function."""

    name: str
    nodes: tuple[str, ...]
    """In the graph's order."""
    batch: str = ""
    """The batch whose rows it computes; empty if all of its sizes are known."""


@dataclasses.dataclass(frozen=True)
class Clustering:
    """The clusters of a graph, and what was left out."""

    clusters: tuple[Cluster, ...]
    left: Mapping[str, str]
    """Why each other node stays with TensorFlow."""


def find(nodes: Nodes, *, least: int) -> Clustering:
    """Returns the clusters of a graph, in its order.

    Args:
      nodes: the graph.
      least: the smallest number of nodes that compute, rather than move data, for which a cluster is worth its calls.
    """
    order = [node.name for node in nodes.graph.node]
    operations = {node.name: node.op for node in nodes.graph.node}
    origins = nodes.origins()

    def count(names: Sequence[str]) -> int:
        # TensorFlow's kernel of an update is fused, too, so the update counts as one op.
        return len(
            {original for name in names if operations[name] not in MOVES for original in origins.get(name, (name,))}
        )

    left = dict(nodes.reasons)
    batches = _batches(nodes)
    clusters: list[Cluster] = []
    for members in _merged(nodes, batches, order, count, max(1, least)):
        kept = _without_free_edges(nodes, members)
        left.update((name, "TensorFlow runs it for free") for name in members if name not in kept)
        computing = count(kept)
        if computing < max(1, least) or not _is_used(nodes, kept):
            why = f"a cluster of {computing} computing ops isn't worth a call" if computing else "it only moves data"
            left.update((name, why) for name in kept)
        else:
            clusters.append(Cluster(f"cluster_{len(clusters)}", tuple(kept), batches[kept[0]]))
    return Clustering(tuple(clusters), left)


def _batches(nodes: Nodes) -> dict[str, str]:
    """Returns the batch of each candidate."""
    return {node.name: nodes.batch(node) for node in nodes.graph.node if nodes.is_candidate(node.name)}


def _merged(
    nodes: Nodes, batches: Mapping[str, str], order: Sequence[str], count: Callable[[Sequence[str]], int], least: int
) -> list[list[str]]:
    """Merges candidates along their edges for as long as no cycle appears. Returns groups in the graph's order.

    A group that is too small then joins one that isn't, if neither depends on the other. In a loop, it doesn't: it may be
    what decides early whether there is another step.
    """
    index = {name: number for number, name in enumerate(order)}
    edges: list[tuple[int, int]] = []
    data: list[tuple[int, int]] = []
    for number, node in enumerate(nodes.graph.node):
        for operand in node.input:
            first = index[producer(operand)]
            if nodes.graph.node[first].op in ("NextIteration", "RefNextIteration"):
                continue  # the way back of a loop
            edges.append((first, number))
            if (
                not operand.startswith("^")
                and nodes.is_candidate(order[first])
                and nodes.is_candidate(node.name)
                and nodes.predicates[order[first]] == nodes.predicates[node.name]
                and batches[order[first]] == batches[node.name]
            ):
                data.append((first, number))
    merging = Merging(len(order), edges)
    for sample in nodes.samples.values():  # each node is the only user of the one before it
        for before, after in itertools.pairwise(sample.nodes):
            merging.merge(index[before], index[after])
    changed = True
    while changed:
        changed = False
        for first, second in sorted(data, key=lambda edge: (merging.rank(edge[0]), merging.rank(edge[1]), edge)):
            changed |= merging.merge(first, second)
        data = [edge for edge in data if merging.find(edge[0]) != merging.find(edge[1])]
    groups: dict[int, list[str]] = defaultdict(list)
    for number, name in enumerate(order):
        if nodes.is_candidate(name):
            groups[merging.find(number)].append(name)
    large = [number for number, members in groups.items() if count(members) >= least]
    for number, members in [*groups.items()]:
        if nodes.predicates[members[0]].frame or not 0 < count(members) < least:
            continue
        for other in large:
            alike = nodes.predicates[members[0]] == nodes.predicates[groups[other][0]]
            if alike and batches[members[0]] == batches[groups[other][0]] and merging.join(other, number):
                groups[other] = sorted([*groups[other], *groups.pop(number)], key=index.__getitem__)
                break
    return list(groups.values())


def _without_free_edges(nodes: Nodes, members: Sequence[str]) -> list[str]:
    """Leaves out ops at a cluster's edge that TensorFlow runs for free. Inside, they would only add a copy."""
    left = set(members)
    by_name = {node.name: node for node in nodes.graph.node if node.name in left}
    users: dict[str, set[str]] = defaultdict(set)
    operands: dict[str, set[str]] = {}
    for name in members:
        operands[name] = {producer(operand) for operand in by_name[name].input} & left
        for operand in operands[name]:
            users[operand].add(name)
    pending = list(members)
    while pending:
        name = pending.pop()
        if name not in left or by_name[name].op not in FREE:
            continue
        if not operands[name] & left or not users[name] & left:
            left.discard(name)
            pending += [*operands[name], *users[name]]
    return [name for name in members if name in left]


def _is_used(nodes: Nodes, members: Sequence[str]) -> bool:
    """Returns whether anything takes a cluster's results, rather than only waiting for it."""
    inside = set(members)
    if inside & nodes.fetched:
        return True
    return any(
        not operand.startswith("^") and producer(operand) in inside
        for node in nodes.graph.node
        if node.name not in inside
        for operand in node.input
    )
