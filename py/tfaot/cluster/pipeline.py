"""The other way to run the whole: a C++ class that runs the clusters, and calls the program for the ops between them.

This module decides what the class does, step by step, and where each value lies. `templates/` spell it out.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from tensorflow.core.framework import graph_pb2, node_def_pb2

from tfaot.cluster.candidates import Nodes
from tfaot.cluster.clusters import FREE
from tfaot.cluster.cut import Cut
from tfaot.cluster.order import Merging
from tfaot.core import dtypes
from tfaot.core.errors import TfaotError, listed
from tfaot.export.traced import Array, Edge
from tfaot.graph.attributes import complete, literal
from tfaot.graph.names import canonical, producer, tensor_name
from tfaot.graph.ops import CONTROL_FLOW_V1, IDENTITIES
from tfaot.graph.program import Tensor
from tfaot.graph.variables import READS

ALIGNMENT = 64
"""Where values start, in bytes."""

_UPDATES = {"AssignVariableOp": "copy", "AssignAddVariableOp": "add", "AssignSubVariableOp": "subtract"}
"""Writes that the class does itself."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Values in the class's memory."""

    offset: int
    tensor: Tensor

    @property
    def dtype(self) -> dtypes.DType:
        """The type of a value."""
        return dtypes.BY_ENUM[self.tensor.dtype]

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes, all of which are known."""
        return tuple(size or 0 for size in self.tensor.shape or ())

    @property
    def bytes(self) -> int:
        """Without padding."""
        return math.prod(self.shape) * self.dtype.bytes


@dataclasses.dataclass(frozen=True)
class Argument:
    """What a callback reads or writes."""

    label: str
    tensor: str
    """`node:port` in the uncut graph, or empty for a variable."""
    place: Place
    written: bool


@dataclasses.dataclass(frozen=True)
class Host:
    """Ops that the program computes, in one callback."""

    name: str
    nodes: tuple[str, ...]
    ops: Mapping[str, int]
    arguments: tuple[Argument, ...]
    apart: tuple[str, ...]
    """What the callback must take from the program itself, or from an earlier callback, because no view can show it."""
    gives: tuple[str, ...]
    """What it must keep for the program, or for a later callback."""
    later: tuple[tuple[str, str], ...]
    """Variables that it uses, and nodes that write them later."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One thing that a run does."""

    kind: str
    """`call`, `host`, `copy`, `add`, or `subtract`."""
    index: int = 0
    """Of the cluster or of the host."""
    source: Place | None = None
    target: Place | None = None


@dataclasses.dataclass(frozen=True)
class Bound:
    """An input or output of a cluster, and where it lies."""

    cluster: int
    port: int
    is_input: bool
    place: Place


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """All that the class does."""

    inputs: tuple[tuple[Edge, Place], ...]
    outputs: tuple[tuple[Edge, Place], ...]
    apart: tuple[Edge, ...]
    """Inputs and outputs that only callbacks see."""
    variables: tuple[tuple[str, Place], ...]
    hosts: tuple[Host, ...]
    steps: tuple[Step, ...]
    bound: tuple[Bound, ...]
    initial: bytes
    """The first values of the class's memory. The rest is zero."""
    size: int
    """Of the class's memory."""


def pipeline(
    nodes: Nodes, made: Cut, inputs: Sequence[Edge], outputs: Sequence[Edge], values: Mapping[str, Array], what: str
) -> Pipeline:
    """Returns what the class does.

    Args:
      nodes: the graph.
      made: the graph, cut.
      inputs: the graph's inputs.
      outputs: the graph's outputs.
      values: initial values of variables, by shared name.
      what: the model, for messages.

    Raises:
      TfaotError: what runs outside of clusters depends on values.
    """
    if flow := sorted({node.op for node in made.graph.node if node.op in CONTROL_FLOW_V1}):
        raise TfaotError(
            f"{what}: no pipeline can be made of a graph with branches or loops of TensorFlow 1 outside of clusters",
            exists=listed(flow),
            do="keep pipeline = False and run the SavedModel, or write the branch with tf.cond in TensorFlow 2, "
            "which is compiled whole",
        )
    return _Maker(nodes, made, inputs, outputs, values).make()


class _Maker:
    """Makes one pipeline."""

    def __init__(
        self, nodes: Nodes, made: Cut, inputs: Sequence[Edge], outputs: Sequence[Edge], values: Mapping[str, Array]
    ) -> None:
        self._nodes, self._made, self._inputs, self._outputs, self._values = nodes, made, inputs, outputs, values
        self._graph: graph_pb2.GraphDef = made.graph
        self._by_name = {node.name: node for node in self._graph.node}
        self._calls = {part.node: index for index, part in enumerate(made.parts)}
        self._feeds = {tensor_name(edge.name)[0]: edge for edge in inputs}
        self._kinds: dict[str, str] = {}
        self._handles: dict[str, str] = {}
        self._classify()
        self._size = 0
        self._initial = bytearray()
        self._places: dict[str, Place] = {}

    def _tensor(self, name: str) -> Tensor | None:
        """Returns a tensor's dtype and shape, if a view can show it."""
        node, port = tensor_name(name)
        if node in self._calls:
            name = self._made.parts[self._calls[node]].outputs[port]
        tensor = self._nodes.tensors.get(canonical(name))
        if tensor is None or tensor.dtype not in dtypes.BY_ENUM or complete(tensor.shape) is None:
            return None
        return tensor

    def _classify(self) -> None:
        """Says what each node is: one pass, because operands come first but for calls, which hosts don't depend on here."""
        for node in self._graph.node:
            self._kinds[node.name] = self._kind(node)
        changed = True
        while changed:  # a wire behind a host's result is the host's
            changed = False
            for node in self._graph.node:
                if self._kinds[node.name] == "alias" and self._kinds[producer(node.input[0])] == "host":
                    self._kinds[node.name] = "host"
                    changed = True

    def _kind(self, node: node_def_pb2.NodeDef) -> str:
        if node.name in self._feeds:
            return "feed"
        if node.name in self._calls:
            return "call"
        if node.op == "VarHandleOp":
            self._handles[node.name] = node.attr["shared_name"].s.decode()
            return "handle"
        if node.op in IDENTITIES and producer(node.input[0]) in self._handles:
            self._handles[node.name] = self._handles[producer(node.input[0])]
            return "handle"
        if node.op == "NoOp":
            return "wire"
        if node.name in self._nodes.constants:
            return "known"
        of_variable = bool(node.input) and producer(node.input[0]) in self._handles
        if node.op == "ReadVariableOp" and of_variable and self._tensor(f"{node.name}:0"):
            return "read"
        if node.op in _UPDATES and of_variable and self._tensor(canonical(node.input[1])):
            return "write"
        if (
            node.op in FREE - {"IdentityN"}
            and self._tensor(f"{node.name}:0")
            and self._tensor(canonical(node.input[0]))
        ):
            return "alias"
        return "host"

    def _root(self, tensor: str) -> str:
        """Returns the tensor whose memory another is."""
        tensor = canonical(tensor)
        while self._kinds[name := tensor_name(tensor)[0]] == "alias":
            tensor = canonical(self._by_name[name].input[0])
        return tensor

    def _take(self, tensor: Tensor, value: Array | None = None) -> Place:
        place = Place(self._size, tensor)
        if value is not None:
            self._initial += bytes(self._size - len(self._initial)) + np.ascontiguousarray(value).tobytes()
        self._size += -(-place.bytes // ALIGNMENT) * ALIGNMENT
        return place

    def make(self) -> Pipeline:
        """Returns the pipeline."""
        groups = self._groups()
        position = {name: index for index, group in enumerate(groups) for name in group}
        uses = self._uses(position, len(groups))
        used = {
            self._handles[producer(operand)]
            for node in self._graph.node
            for operand in node.input
            if producer(operand) in self._handles and node.name not in self._handles
        }
        variables = {
            name: self._take(Tensor(value.shape, _enum(value)), value)
            for name, value in sorted(self._values.items())
            if name in used
        }
        for name in sorted({self._root(tensor) for tensor in uses}):
            node = self._by_name[tensor_name(name)[0]]
            if self._kinds[node.name] == "known":
                self._places[name] = self._take(self._must(name), self._constant(node))
        writes = self._writes()
        written: dict[str, list[int]] = defaultdict(list)
        for node_name, variable in writes.items():
            written[variable].append(position[node_name])
        snapshots: set[str] = set()
        for tensor, last in sorted(uses.items()):
            name = tensor_name(tensor)[0]
            if self._kinds[name] == "read":
                variable = self._handles[producer(self._by_name[name].input[0])]
                if any(position[name] < step <= last for step in written[variable]):
                    snapshots.add(tensor)
                    self._places[tensor] = self._take(self._must(tensor))
                else:
                    self._places[tensor] = variables[variable]
            elif tensor not in self._places:
                self._places[tensor] = self._take(self._must(tensor))
        for edge in self._inputs:
            if self._tensor(edge.name) and canonical(edge.name) not in self._places:
                self._places[canonical(edge.name)] = self._take(self._must(edge.name))
        hosts: list[Host] = []
        steps: list[Step] = []
        for group in groups:
            node = self._by_name[group[0]]
            kind = self._kinds[group[0]]
            if kind == "call":
                steps.append(Step("call", self._calls[node.name]))
            elif kind == "host":
                steps.append(Step("host", len(hosts)))
                later = [(variable, name) for name, variable in writes.items() if position[name] > position[node.name]]
                hosts.append(self._host(f"host_{len(hosts)}", group, set(uses), variables, later))
            elif kind == "read" and f"{node.name}:0" in snapshots:
                source = variables[self._handles[producer(node.input[0])]]
                steps.append(Step("copy", source=source, target=self._places[f"{node.name}:0"]))
            elif kind == "write":
                target = variables[self._handles[producer(node.input[0])]]
                steps.append(Step(_UPDATES[node.op], source=self._at(node.input[1]), target=target))
        shown = [
            (edge, self._at(now.name))
            for edge, now in zip(self._outputs, self._made.outputs, strict=True)
            if self._tensor(now.name)
        ]
        fed = [(edge, self._places[canonical(edge.name)]) for edge in self._inputs if self._tensor(edge.name)]
        seen = {edge.name for edge, _ in (*shown, *fed)}
        return Pipeline(
            tuple(fed),
            tuple(shown),
            tuple(edge for edge in (*self._inputs, *self._outputs) if edge.name not in seen),
            tuple(variables.items()),
            tuple(hosts),
            tuple(steps),
            tuple(self._bound()),
            bytes(self._initial),
            self._size,
        )

    def _must(self, tensor: str) -> Tensor:
        known_tensor = self._tensor(tensor)
        assert known_tensor is not None, tensor
        return known_tensor

    def _at(self, tensor: str) -> Place:
        """Returns where a tensor's values are, with the tensor's own shape."""
        return dataclasses.replace(self._places[self._root(tensor)], tensor=self._must(tensor))

    def _groups(self) -> list[list[str]]:
        """Returns the nodes that run together, in an order in which they can run."""
        order = [node.name for node in self._graph.node]
        index = {name: number for number, name in enumerate(order)}
        edges = [(index[producer(operand)], index[node.name]) for node in self._graph.node for operand in node.input]
        merging = Merging(len(order), edges)
        together = [(a, b) for a, b in edges if self._kinds[order[a]] == self._kinds[order[b]] == "host"]
        changed = True
        while changed:
            changed = False
            for first, second in sorted(
                together, key=lambda edge: (merging.rank(edge[0]), merging.rank(edge[1]), edge)
            ):
                changed |= merging.merge(first, second)
            together = [edge for edge in together if merging.find(edge[0]) != merging.find(edge[1])]
        groups: dict[int, list[str]] = defaultdict(list)
        for number in sorted(range(len(order)), key=lambda node: (merging.rank(node), node)):
            groups[merging.find(number)].append(order[number])
        return list(groups.values())

    def _uses(self, position: Mapping[str, int], end: int) -> dict[str, int]:
        """Returns the tensors that need memory, and the last step that reads each."""
        uses: dict[str, int] = {}

        def use(tensor: str, step: int) -> None:
            root = self._root(tensor)
            uses[root] = max(uses.get(root, -1), step)

        for node in self._graph.node:
            kind, step = self._kinds[node.name], position[node.name]
            data = [operand for operand in node.input if not operand.startswith("^")]
            if kind == "call":
                for operand in data:
                    use(operand, step)
            elif kind == "write":
                use(data[1], step)
            elif kind == "host":
                for operand in data:
                    name = producer(operand)
                    if self._kinds[name] in ("known", "handle") or position[name] == step or not self._tensor(operand):
                        continue
                    use(operand, step)
        for edge in self._made.outputs:
            if self._tensor(edge.name):
                use(edge.name, end)
        return uses

    def _writes(self) -> dict[str, str]:
        writes = {}
        for node in self._graph.node:
            kind = self._kinds[node.name]
            names = [self._handles[name] for operand in node.input if (name := producer(operand)) in self._handles]
            if names and (kind == "write" or (kind == "host" and node.op not in READS)):
                writes[node.name] = names[0]
        return writes

    def _constant(self, node: node_def_pb2.NodeDef) -> Array:
        if node.op != "Const":
            raise TfaotError(
                f"{node.name} is constant, and goes to a variable or an output without a computation",
                exists=f"{node.op}, which TensorFlow would compute",
                do="write the constant itself in the model",
            )
        return literal(node)

    def _host(
        self,
        name: str,
        group: Sequence[str],
        uses: set[str],
        variables: Mapping[str, Place],
        later: Sequence[tuple[str, str]],
    ) -> Host:
        arguments: dict[str, Argument] = {}
        apart: dict[str, None] = {}
        gives: dict[str, None] = {}
        inside = set(group)
        for node in (self._by_name[name] for name in group):
            for operand in [operand for operand in node.input if not operand.startswith("^")]:
                source, port = tensor_name(operand)
                if source in inside or self._kinds[source] == "known":
                    continue
                if source in self._handles:
                    variable = self._handles[source]
                    if variable in variables:
                        written = node.op not in READS or (
                            f"^{variable}" in arguments and arguments[f"^{variable}"].written
                        )
                        arguments[f"^{variable}"] = Argument(variable, "", variables[variable], written)
                    continue
                if self._tensor(operand) is None:
                    label = self._feeds[source].label if source in self._feeds else canonical(operand)
                    apart[label] = None
                    continue
                shown, original = self._named(source, port)
                arguments.setdefault(canonical(operand), Argument(shown, original, self._at(operand), False))
        for tensor in sorted(uses):
            source, port = tensor_name(tensor)
            if source in inside:
                shown, original = self._named(source, port)
                arguments[tensor] = Argument(shown, original, self._places[tensor], True)
        for node in self._graph.node:
            data = [operand for operand in node.input if node.name not in inside and not operand.startswith("^")]
            gives |= {
                canonical(operand): None
                for operand in data
                if producer(operand) in inside and self._tensor(operand) is None
            }
        for edge, now in zip(self._outputs, self._made.outputs, strict=True):
            if producer(now.name) in inside and self._tensor(now.name) is None:
                gives[edge.label] = None
        ops = Counter(self._by_name[name].op for name in group)
        return Host(
            name,
            tuple(group),
            dict(sorted(ops.items())),
            tuple(arguments.values()),
            tuple(apart),
            tuple(gives),
            tuple(later),
        )

    def _named(self, source: str, port: int) -> tuple[str, str]:
        """Returns a label for a tensor, and its name in the uncut graph."""
        if source in self._feeds:
            return self._feeds[source].label, canonical(source)
        original = self._made.parts[self._calls[source]].outputs[port] if source in self._calls else f"{source}:{port}"
        node, number = tensor_name(original)
        return f"{node}_{number}" if number else node, original

    def _bound(self) -> list[Bound]:
        bounds = []
        for index, part in enumerate(self._made.parts):
            call = self._by_name.get(part.node)
            if call is None:
                continue
            data = [operand for operand in call.input if not operand.startswith("^")]
            bounds += [Bound(index, port, True, self._at(operand)) for port, operand in enumerate(data)]
            bounds += [
                Bound(index, port, False, self._places[tensor])
                for port in range(len(part.outputs))
                if (tensor := f"{part.node}:{port}") in self._places
            ]
        return bounds


def _enum(value: Array) -> int:
    return dtypes.BY_NAME[str(value.dtype)].enum
