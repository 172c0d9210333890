"""Taps: tensors inside a model that become outputs, so that a test can say where numbers first go wrong. Pure.

The tapped graph isn't the one that ships: calls of functions are inlined into their callers, and a value that is an output isn't
fused away. docs/guide/debugging.md explains the consequences.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence

from tensorflow.core.framework import graph_pb2, node_def_pb2
from tensorflow.python.framework import op_def_registry

from tfaot.core import caller, dtypes
from tfaot.core.errors import TfaotError, listed
from tfaot.export.assemble import Entry, Whole
from tfaot.export.traced import Edge
from tfaot.graph.calls import inline_calls
from tfaot.graph.names import tensor_name
from tfaot.graph.ops import CONTROL_FLOW_V1
from tfaot.graph.program import Program, Tensor

_SHOWN = 100
"""How many names an error lists. Users look up names in this list."""

_GIVEN = frozenset({"Const", "Placeholder", "VarHandleOp", "ReadVariableOp"})
"""Ops whose values nothing computes. Variables and inputs are checked without taps."""

_STATIC = frozenset({"Rank", "Shape", "ShapeN", "Size"})
"""Ops whose results the compiler knows, whatever the feeds."""


@dataclasses.dataclass(frozen=True)
class _Tappable:
    node: str
    port: int
    tensor: Tensor

    @property
    def label(self) -> str:
        """The name for patterns and messages."""
        return f"{self.node}:{self.port}" if self.port else self.node


def tapped(whole: Whole, patterns: Sequence[str], *, what: str, batch: int = 0) -> Whole:
    """Adds outputs to each entry point, before its own, in an order in which they can be computed.

    Args:
      whole: the assembled model.
      patterns: globs for whole node names, whose `*` also matches `/`. Later ones take precedence: a pattern after `!` excludes
        nodes that earlier ones selected.
      what: names the model or its file, for messages.
      batch: a batch size, if the first dimension of inputs is open. Then only tensors with a value for each row are tapped.

    Returns:
      The model with its calls inlined. Nodes in loops and branches stay where they are, and can't be tapped.

    Raises:
      TfaotError: a pattern has no effect.
    """
    program = Program(
        graph_pb2.GraphDef(),
        {edge.name: Tensor(edge.shape, edge.dtype) for entry in whole.entries for edge in entry.inputs},
        [edge.name for entry in whole.entries for edge in entry.outputs],
    )
    program.graph.CopyFrom(whole.graph)
    inline_calls(program)
    sources = dict(whole.sources)
    for node, origin in program.origins.items():
        if place := whole.sources.get(origin):
            sources[node] = place
    result = Whole(program.graph, whole.entries, sources)
    tappable = _tappable(program, batch)
    taken = _chosen(tappable, patterns, what)
    entries = []
    for entry in whole.entries:
        reached = {node.name for node in result.of(entry).node}
        taps = [
            Edge(
                f"{tap.node}:{tap.port}",
                f"tap/{tap.label}",
                tap.tensor.dtype,
                (None, *(tap.tensor.shape or ())[1:]) if batch else tap.tensor.shape,
                sources.get(tap.node, ""),
            )
            for tap in taken
            if tap.node in reached
        ]
        entries.append(Entry(entry.name, entry.inputs, (*taps, *entry.outputs)))
    return dataclasses.replace(result, entries=tuple(entries))


def _chosen(tappable: Sequence[_Tappable], patterns: Sequence[str], what: str) -> list[_Tappable]:
    taken: set[str] = set()
    for pattern in patterns:
        glob = pattern.removeprefix("!")
        matching = {tap.label for tap in tappable if fnmatch.fnmatchcase(tap.node, glob) or tap.label == glob}
        if not (matching if glob == pattern else matching & taken):
            raise TfaotError(
                f'{what}: {caller.setting("taps", patterns)}: "{pattern}" '
                + ("matches no tensor" if glob == pattern else "excludes nothing that an earlier pattern selected"),
                exists=listed([tap.label for tap in tappable], limit=_SHOWN),
                do='use a node\'s name, or a pattern such as "dense/*"; you can tap only values of known shape that depend on '
                "inputs or variables, and none inside loops or branches",
            )
        taken = taken | matching if glob == pattern else taken - matching
    return [tap for tap in tappable if tap.label in taken]


def _tappable(program: Program, batch: int) -> list[_Tappable]:
    """Returns all tensors that can be tapped, in an order in which they can be computed."""
    tensors_by_size = [_tensors(program, size) for size in ((batch, batch + 1) if batch else (0,))]
    passed = _in_control_flow(program.graph) | {tensor_name(fetch)[0] for fetch in program.fetches}
    live: set[str] = set()
    result = []
    for node in _ordered(program.graph):
        if not _is_live(node, live, program):
            continue
        live.add(node.name)
        if node.op in _GIVEN or node.op in _STATIC or node.op in CONTROL_FLOW_V1 or node.name in passed:
            continue
        for port in range(_outputs(node, tensors_by_size[0])):
            tensors = [tensors[f"{node.name}:{port}"] for tensors in tensors_by_size]
            shape = tensors[0].shape
            if tensors[0].dtype not in dtypes.BY_ENUM or shape is None or None in shape:
                continue
            # A value with a batch has as many rows as the batch, whatever its size, and rows of one shape.
            if batch and not all(
                tensor.shape == (size, *shape[1:]) for size, tensor in zip((batch, batch + 1), tensors, strict=True)
            ):
                continue
            result.append(_Tappable(node.name, port, tensors[0]))
    return result


def _tensors(program: Program, batch: int) -> Mapping[str, Tensor]:
    feeds = {
        name: Tensor(feed.shape and tuple(batch if size is None else size for size in feed.shape), feed.dtype)
        for name, feed in program.feeds.items()
    }
    return Program(program.graph, feeds, program.fetches).tensors()


def _outputs(node: node_def_pb2.NodeDef, tensors: Mapping[str, Tensor]) -> int:
    """Returns how many results of a node mean the same in TensorFlow and XLA."""
    if node.op.startswith("FusedBatchNorm") and not node.op.startswith("FusedBatchNormGrad"):
        # Each keeps different values for the gradient.
        return 3 if node.attr["is_training"].b or "is_training" not in node.attr else 1
    if node.op.startswith("FusedBatchNormGrad"):
        return 3
    count = 0
    while f"{node.name}:{count}" in tensors:
        count += 1
    return count


def _is_live(node: node_def_pb2.NodeDef, live: set[str], program: Program) -> bool:
    """Returns whether an input, variable, or random op affects a node's value. Its operands must be checked before."""
    if node.op in _STATIC:
        return False
    definition = op_def_registry.get(node.op)
    if node.op in ("Placeholder", "VarHandleOp") or (definition is not None and definition.is_stateful):
        return True
    return any(tensor_name(operand)[0] in live for operand in node.input if not operand.startswith("^"))


def _ordered(graph: graph_pb2.GraphDef) -> list[node_def_pb2.NodeDef]:
    """Returns nodes after everything that they take or wait for, as close to the graph's own order as possible."""
    users: dict[str, list[int]] = defaultdict(list)
    left = []
    for index, node in enumerate(graph.node):
        # A TensorFlow 1 loop is a cycle, closed by its NextIteration.
        producers = {tensor_name(operand)[0] for operand in node.input} if node.op != "NextIteration" else set()
        left.append(len(producers))
        for producer in producers:
            users[producer].append(index)
    ready = [index for index, count in enumerate(left) if not count]
    heapq.heapify(ready)
    result = []
    while ready:
        node = graph.node[heapq.heappop(ready)]
        result.append(node)
        for index in users[node.name]:
            left[index] -= 1
            if not left[index]:
                heapq.heappush(ready, index)
    return result


def _in_control_flow(graph: graph_pb2.GraphDef) -> set[str]:
    """Returns nodes in TensorFlow 1 loops and branches, which can run several times or not at all."""
    nodes = {node.name: node for node in graph.node}
    users: dict[str, list[str]] = defaultdict(list)
    for node in graph.node:
        for operand in node.input:
            users[tensor_name(operand)[0]].append(node.name)

    def heads_loop(node: node_def_pb2.NodeDef) -> bool:
        return any(nodes[tensor_name(operand)[0]].op.endswith("NextIteration") for operand in node.input)

    starts = [
        node.name
        for node in graph.node
        if node.op.endswith(("Enter", "Switch")) or (node.op.endswith("Merge") and heads_loop(node))
    ]
    hidden = set(starts)
    while starts:
        for user in users[starts.pop()]:
            node = nodes[user]
            ends = node.op.endswith("Exit") or (node.op.endswith("Merge") and not heads_loop(node))
            if user not in hidden and not ends:
                hidden.add(user)
                starts.append(user)
    return hidden
