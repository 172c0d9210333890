"""Which nodes of a graph can be compiled, and why the others stay with TensorFlow."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2

from tfaot.cluster.batches import Rows, infer, static
from tfaot.cluster.control_flow import FUNCTIONAL, lowered
from tfaot.cluster.predicates import ALWAYS, Predicate, predicates
from tfaot.cluster.reads import forward, hoist, share_reads
from tfaot.cluster.resize_sampling import Sample
from tfaot.cluster.resize_sampling import find as find_samples
from tfaot.cluster.sparse import ROWS, declared, densify
from tfaot.cluster.updates import Update, spell_out
from tfaot.core import dtypes, knowledge
from tfaot.export.traced import Function
from tfaot.graph.attributes import Shape, attribute
from tfaot.graph.calls import inline_calls
from tfaot.graph.edits import Scope, replace, set_attributes
from tfaot.graph.names import canonical, producer, tensor_name
from tfaot.graph.ops import CALLS, CONTROL_FLOW_V1, IDENTITIES, definition, dtypes_of, has_effects
from tfaot.graph.program import Program, Tensor
from tfaot.graph.prune import prune
from tfaot.preflight.check import Checker
from tfaot.preflight.report import BLOCKER

SIZES = {"Rank", "Shape", "Size", "VariableShape"}
"""Ops whose result is known as soon as their operand's shape is."""

_SHAPED = {"BroadcastTo": 1, "Fill": 0, "Reshape": 1}
"""Ops of which an operand is the shape of the result."""

OPEN = "sizes aren't known"
"""Why an op stays that has an operand or a result of unknown size."""

_LARGEST_GROUP = 32
"""A NoOp that waits for more stays: with many users, the graph would grow by the product."""

_HANDLES = (types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT)


@dataclasses.dataclass(frozen=True)
class Nodes:
    """A graph, and what is known about its nodes."""

    graph: graph_pb2.GraphDef
    """All calls are inlined. Each node comes after those that it depends on, except for the way back of loops."""
    tensors: Mapping[str, Tensor]
    """By `node:port`. A size is open if it isn't known, or counts rows."""
    rows: Mapping[str, Rows]
    """Of the tensors that have rows of a batch; empty if clusters aren't for batches."""
    predicates: Mapping[str, Predicate]
    """When each node runs."""
    constants: frozenset[str]
    """Nodes whose values the compiler knows. Clusters have copies of them."""
    sized: Mapping[str, str]
    """The batch of nodes whose values follow from its number of rows. Its clusters have copies of them."""
    reasons: Mapping[str, str]
    """Why a node stays with TensorFlow, for those that do. Constants have no reason, nor have sized ones."""
    fetched: frozenset[str]
    """The nodes of the outputs."""
    uncut: graph_pb2.GraphDef
    """The same graph with updates of variables as they were."""
    updates: Mapping[str, Update]
    """The updates of variables that `graph` spells out, by their nodes in `uncut`."""
    samples: Mapping[str, Sample]
    """What candidates that are resizes of images of any size read, by node. The other nodes of a sample need it, too."""

    def is_open(self, operand: str) -> bool:
        """Returns whether a tensor has a size that isn't known."""
        tensor = self.tensors.get(canonical(operand))
        return tensor is not None and tensor.dtype not in _HANDLES and not static(tensor.shape)

    def batch(self, node: node_def_pb2.NodeDef) -> str:
        """Returns the batch whose rows a candidate has; empty for one whose sizes are all known."""
        return _batch(node, self.tensors, self.rows)

    def origins(self) -> dict[str, tuple[str, ...]]:
        """Returns the nodes of the uncut graph that each node of an update's arithmetic stands for."""
        left = {node.name for node in self.graph.node} - set(self.updates)
        originals: dict[str, tuple[str, ...]] = {}
        for update, made in self.updates.items():
            originals |= {
                name: tuple(original for original in stands if original not in left)
                for name, stands in made.sums.items()
            }
            originals |= dict.fromkeys(made.arithmetic, (update,))
        return originals

    def is_candidate(self, name: str) -> bool:
        """Returns whether a node can be a part of a cluster."""
        return name not in self.reasons and name not in self.constants and name not in self.sized

    def is_copied(self, name: str, batch: str) -> bool:
        """Returns whether clusters of a batch have copies of a node; the batch is empty for those without one."""
        return name in self.constants or (bool(batch) and self.sized.get(name) == batch)

    def without(self, refused: Mapping[str, str]) -> Nodes:
        """Returns the same, but that some nodes stay with TensorFlow."""
        samples = {name: sample for name, sample in self.samples.items() if not refused.keys() & set(sample.nodes)}
        lost = [node for name, sample in self.samples.items() if name not in samples for node in sample.nodes]
        return dataclasses.replace(
            self, samples=samples, reasons={**self.reasons, **dict.fromkeys(lost, OPEN), **refused}
        )


def examine(
    function: Function, *, what: str, kept: Collection[str] = (), batched: bool = False, pipeline: bool = False
) -> Nodes:
    """Returns the nodes that a function's outputs need.

    Args:
      function: an entry point; its inputs' sizes needn't be known.
      what: the model, for messages.
      kept: updates of variables that stay one op.
      batched: whether the first dimensions that inputs leave open count the rows of a batch.
      pipeline: whether a C++ class runs the whole. It calls the rest in one order, and has no images of unknown size, so it takes
        loops and branches whole, and no samples.
    """
    fetches = [edge.name for edge in function.outputs]
    feeds = {canonical(edge.name): Tensor(edge.shape, edge.dtype) for edge in function.inputs}
    graph = _inlined(function, feeds, fetches, bodies=not pipeline)
    _shape_lookups(graph)
    graph = _ordered(_without_groups(graph))
    uncut = graph_pb2.GraphDef()
    uncut.CopyFrom(graph)
    fetched = frozenset(map(producer, fetches))
    runs = predicates(graph.node)
    hoist(graph, runs, fetched)
    fed = [tensor_name(edge.name)[0] for edge in function.inputs]
    stands: dict[str, Mapping[str, tuple[str, ...]]] = {}
    replaced: Mapping[str, Tensor] = {}
    if any(node.op in ROWS for node in graph.node):
        replaced = infer(graph, what, fed, batched=False).tensors
        stands |= densify(graph, replaced, runs, kept)
        graph = _ordered(prune(graph, fetched, fed))
        runs = predicates(graph.node)
    updates = spell_out(graph, runs, kept)
    updates = {
        name: dataclasses.replace(made, sums=stands[name]) if name in stands else made for name, made in updates.items()
    }
    share_reads(graph, fetched)
    graph = _ordered(graph)
    forward(graph, predicates(graph.node), fetched)
    graph = _ordered(_without_groups(graph))
    when = predicates(graph.node)
    inferred = infer(graph, what, fed, batched=batched)
    tensors, rows = {**replaced, **inferred.tensors}, inferred.rows
    _fold_sizes(graph, tensors, when)
    tensors = {**tensors, **_fold_shapes(graph, tensors, when)}
    graph = _ordered(prune(graph, fetched, fed))
    when = predicates(graph.node)
    reasons = _reasons(dataclasses.replace(function, graph=graph), graph, tensors, rows)
    could = {name for name, why in reasons.items() if why == OPEN}
    samples = {} if pipeline else find_samples(graph, tensors, when, could, fetched)
    reasons = {
        name: why for name, why in reasons.items() if not any(name in sample.nodes for sample in samples.values())
    }
    constants = _constants(graph, reasons)
    sized = _sized(graph, rows, reasons, constants)
    for node in graph.node:
        batch = "" if node.name in reasons else _batch(node, tensors, rows)
        own = constants | {name for name, own_batch in sized.items() if own_batch == batch}
        if node.name not in reasons and node.name not in sized and (argument := _varying(node, own)):
            reasons[node.name] = f"its argument {argument} isn't constant"
    # What was known by way of such a node isn't.
    constants = _constants(graph, reasons)
    sized = _sized(graph, rows, reasons, constants)
    reasons = {name: why for name, why in reasons.items() if name not in sized}
    return Nodes(graph, tensors, rows, when, frozenset(constants), sized, reasons, fetched, uncut, updates, samples)


class _Whole(Program):
    """A graph that TensorFlow runs: in branches of TensorFlow 1, control inputs decide whether a node runs."""

    def prune(self) -> None:
        """Drops what the fetches don't need."""
        feeds = {tensor_name(feed)[0] for feed in self.feeds}
        self.graph.CopyFrom(prune(self.graph, [tensor_name(fetch)[0] for fetch in self.fetches], feeds))
        self._names = {node.name for node in self.graph.node}


def _inlined(
    function: Function, feeds: Mapping[str, Tensor], fetches: Sequence[str], *, bodies: bool
) -> graph_pb2.GraphDef:
    """Returns the graph without calls, and if bodies are cut, without loops and branches that don't compile whole."""
    program = _Whole(graph_pb2.GraphDef(), feeds, fetches)
    program.graph.CopyFrom(function.graph)
    program.prune()
    _inline(program)
    edges = [tensor_name(edge)[0] for edge in (*feeds, *fetches)]
    tried: set[str] = set()
    while bodies and (names := _blocked(dataclasses.replace(function, graph=program.graph)) - tried):
        program.graph.CopyFrom(lowered(program.graph, names, edges))
        _inline(program)
        tried |= names
    return program.graph


def _blocked(function: Function) -> set[str]:
    """Returns the loops and branches that no cluster can have: they don't compile, or take variables or lists."""
    bodies = [node for node in function.graph.node if node.op in FUNCTIONAL]
    names = {node.name for node in bodies} & _blockers(function).keys() if bodies else set()
    return names | {node.name for node in bodies if _takes_handles(node)}


def _takes_handles(node: node_def_pb2.NodeDef) -> bool:
    call = CALLS[node.op]
    return any(dtype in _HANDLES for key in (call.types, call.results) for dtype in node.attr[key].list.type)


def _inline(program: Program) -> None:
    for attributes in (node.attr for node in program.graph.node):
        attributes.pop("_XlaMustCompile", None)
        attributes.pop("_output_shapes", None)
    inline_calls(program)


def _without_groups(graph: graph_pb2.GraphDef) -> graph_pb2.GraphDef:
    """Makes nodes wait for what a NoOp waits for, instead of the NoOp, in place. A cluster can contain that, but no NoOp.

    The gradients of TensorFlow 1 have such a NoOp wherever an op has several.
    """
    waits = {
        node.name: list(node.input)
        for node in graph.node
        if node.op == "NoOp" and 0 < len(node.input) <= _LARGEST_GROUP
    }
    for node in graph.node:
        data = [operand for operand in node.input if not operand.startswith("^")]
        pending = [operand for operand in node.input if operand.startswith("^")]
        control: dict[str, None] = {}
        while pending:
            operand = pending.pop(0)
            if operand[1:] in waits and node.name not in waits:
                pending += [wait for wait in waits[operand[1:]] if wait not in control]
            else:
                control[operand] = None
        if len(control) + len(data) != len(node.input) or any(
            operand not in control for operand in node.input if operand[0] == "^"
        ):
            node.input[:] = [*data, *control]
    return graph


def _shape_lookups(graph: graph_pb2.GraphDef) -> None:
    """Gives what is found in tables the shape of its keys, in place. TensorFlow does that in Python, and not in graphs."""
    nodes = {node.name: node for node in graph.node}
    for node in list(graph.node):
        if node.op != "LookupTableFindV2":
            continue
        table = nodes[producer(node.input[0])]
        while table.op in IDENTITIES:
            table = nodes[producer(table.input[0])]
        if table.op != "HashTableV2":  # others can have tensors as values
            continue
        scope, name = Scope.graph(graph), node.name
        size = scope.add(f"{name}/tfaot_size", "Shape", [node.input[1]], {"T": node.attr["Tin"].type})
        lookup = scope.add(f"{name}/tfaot_found", "NoOp", [], {})
        new_name = lookup.name
        lookup.CopyFrom(node)
        lookup.name = new_name
        replace(node, "Reshape", [new_name, size.name], {"T": lookup.attr["Tout"]})


def _ordered(graph: graph_pb2.GraphDef) -> graph_pb2.GraphDef:
    """Returns the graph with each node after its operands, by name among those that are ready."""
    nodes = {node.name: node for node in graph.node}
    result = graph_pb2.GraphDef(versions=graph.versions, library=graph.library)
    waiting: dict[str, int] = {}
    users: dict[str, list[str]] = {name: [] for name in nodes}
    for name, node in nodes.items():
        operands = {producer(operand) for operand in node.input}
        operands = {operand for operand in operands if nodes[operand].op not in ("NextIteration", "RefNextIteration")}
        waiting[name] = len(operands)
        for operand in operands:
            users[operand].append(name)
    ready = sorted((name for name, count in waiting.items() if not count), reverse=True)
    while ready:
        name = ready.pop()
        result.node.append(nodes[name])
        freed = []
        for user in users[name]:
            waiting[user] -= 1
            if not waiting[user]:
                freed.append(user)
        ready += sorted(freed, reverse=True)
    return result


def _fold_sizes(graph: graph_pb2.GraphDef, tensors: Mapping[str, Tensor], when: Mapping[str, Predicate]) -> None:
    """Turns sizes that are known into constants, in place."""
    pivots: dict[Predicate, str] = {ALWAYS: ""}
    nodes = {node.name: node for node in graph.node}
    for node in graph.node:
        predicate = when[node.name]
        if node.op == "Identity" and nodes[producer(node.input[0])].op == "Switch":
            pivots.setdefault(predicate, f"^{node.name}")
        if node.op not in SIZES:
            continue
        shape = _measured(nodes[producer(node.input[0])], tensors[canonical(node.input[0])])
        if shape is None or (None in shape and node.op != "Rank") or predicate not in pivots:
            continue
        dtype = np.dtype(dtypes.BY_ENUM[tensors[f"{node.name}:0"].dtype].name)
        sizes = [size or 0 for size in shape]
        value = {"Rank": len(sizes), "Size": int(np.prod(sizes, dtype=np.int64))}.get(node.op, sizes)
        name, waits = node.name, [operand for operand in node.input if operand.startswith("^")]
        # In a branch, only a control input may say whether it runs.
        pivot = [pivots[predicate]] if pivots[predicate] not in ("", *waits) else []
        node.Clear()
        node.name, node.op = name, "Const"
        node.input.extend([*waits, *pivot])
        node.attr["dtype"].CopyFrom(attribute(dtype))
        node.attr["value"].CopyFrom(attribute(np.array(value, dtype)))


def _measured(node: node_def_pb2.NodeDef, tensor: Tensor) -> Shape | None:
    """Returns the shape of a tensor, or that of the variable if it is a handle."""
    return declared(node) if tensor.dtype == types_pb2.DT_RESOURCE else tensor.shape


def _fold_shapes(
    graph: graph_pb2.GraphDef, tensors: Mapping[str, Tensor], when: Mapping[str, Predicate]
) -> dict[str, Tensor]:
    """Gives ops whose operand is the shape of their result that shape as a constant, if it is known, in place.

    Returns:
      The new constants.
    """
    made: dict[str, Tensor] = {}
    scope = Scope.graph(graph)
    nodes = {node.name: node for node in graph.node}
    for node in list(graph.node):
        position = _SHAPED.get(node.op)
        shape = tensors[f"{node.name}:0"].shape if position is not None else None
        if position is None or when[node.name] != ALWAYS or shape is None or None in shape:
            continue
        if nodes[producer(node.input[position])].op == "Const":
            continue
        dtype = tensors[canonical(node.input[position])].dtype
        value = scope.add(f"{node.name}/tfaot_shape", "Const", [], {"dtype": dtype})
        set_attributes(value, {"value": np.array(shape, dtypes.BY_ENUM[dtype].name)})
        node.input[position] = value.name
        made[f"{value.name}:0"] = Tensor((len(shape),), dtype)
    return made


def _reasons(
    function: Function, graph: graph_pb2.GraphDef, tensors: Mapping[str, Tensor], rows: Mapping[str, Rows]
) -> dict[str, str]:
    reasons = _blockers(function)
    fed = {tensor_name(edge.name)[0] for edge in function.inputs}
    outputs: dict[str, list[Tensor]] = {}
    for name, tensor in tensors.items():
        outputs.setdefault(tensor_name(name)[0], []).append(tensor)
    for node in graph.node:
        operands = [tensors[canonical(operand)] for operand in node.input if not operand.startswith("^")]
        if (reason := _reason(node, operands, outputs.get(node.name, []), fed)) or (
            node.name not in reasons and (reason := _without_sizes(node, tensors, rows))
        ):
            reasons[node.name] = reason
    return reasons


def _edges(node: node_def_pb2.NodeDef, tensors: Mapping[str, Tensor]) -> list[str]:
    """Returns the tensors that a node takes and makes."""
    operands = [canonical(operand) for operand in node.input if not operand.startswith("^")]
    ports = itertools.takewhile(tensors.__contains__, (f"{node.name}:{port}" for port in itertools.count()))
    return [*operands, *ports]


def _batch(node: node_def_pb2.NodeDef, tensors: Mapping[str, Tensor], rows: Mapping[str, Rows]) -> str:
    """Returns the batch of a node's tensors, which all have the same one; empty if they have none."""
    return next((rows[tensor].batch for tensor in _edges(node, tensors) if tensor in rows), "")


def _without_sizes(node: node_def_pb2.NodeDef, tensors: Mapping[str, Tensor], rows: Mapping[str, Rows]) -> str:
    """Returns why a node stays because of its tensors' sizes; empty if they are known, or are those of one batch."""
    opened = [tensor for tensor in _edges(node, tensors) if not static(tensors[tensor].shape)]
    if any(tensor not in rows for tensor in opened):
        return OPEN
    batches = sorted({rows[tensor].batch for tensor in opened})
    return f"it takes rows of two batches, of {' and of '.join(batches)}" if len(batches) > 1 else ""


def _reason(
    node: node_def_pb2.NodeDef, operands: Sequence[Tensor], results: Sequence[Tensor], fed: Collection[str]
) -> str:
    """Returns why a node stays with TensorFlow, as far as it shows at the node itself; empty if nothing does."""
    if node.name in fed:
        return "it is an input"
    if node.op in CONTROL_FLOW_V1:
        return "it decides what runs"
    if any(tensor.dtype in _HANDLES for tensor in (*operands, *results)):
        return "it uses a variable or another resource"
    if node.op in knowledge.CHECKS:
        return "it checks values, and compiled code doesn't"
    if has_effects(node.op):
        return "it has effects"
    if not results:
        return "it computes nothing"
    odd = [tensor.dtype for tensor in (*operands, *results) if tensor.dtype not in dtypes.BY_ENUM]
    if odd:
        return f"it computes on {types_pb2.DataType.Name(odd[0])[3:].lower()}"
    return ""


def _blockers(function: Function) -> dict[str, str]:
    """Returns what the preflight check says, by node of the graph. A node stands for the functions that it calls."""
    blockers: dict[str, str] = {}
    for finding in Checker(function).entry_point().findings:
        if finding.severity != BLOCKER and finding.kind not in ("dropped_check", "dynamic_size"):
            continue
        for place in finding.places:
            node = place.nesting[0].partition("(")[0] if place.nesting else place.node
            blockers.setdefault(node, finding.what)
    return blockers


def _constants(graph: graph_pb2.GraphDef, reasons: Mapping[str, str]) -> set[str]:
    constants: set[str] = set()
    for node in graph.node:
        if node.name not in reasons and all(
            producer(operand) in constants for operand in node.input if not operand.startswith("^")
        ):
            constants.add(node.name)
    return constants


def _sized(
    graph: graph_pb2.GraphDef, rows: Mapping[str, Rows], reasons: Mapping[str, str], constants: Collection[str]
) -> dict[str, str]:
    """Returns the batch of each node whose value follows from the number of its rows."""
    sized: dict[str, str] = {}
    for node in graph.node:
        operands = [operand for operand in node.input if not operand.startswith("^")]
        if node.op in SIZES and (measured := rows.get(canonical(operands[0]))):
            sized[node.name] = measured.batch  # whatever the tensor's dtype is
            continue
        unknown = {producer(operand) for operand in operands} - set(constants)
        batches = {sized.get(name, "") for name in unknown}
        if node.name not in reasons and len(batches) == 1 and "" not in batches:
            sized[node.name] = batches.pop()
    return sized


def _varying(node: node_def_pb2.NodeDef, constants: Collection[str]) -> str:
    """Returns an argument that must be constant and isn't; empty if there is none."""
    defined = definition(node.op)
    if defined is None:
        return ""
    wanted = set(knowledge.CONSTANTS.get(node.op, ())) - set(knowledge.TOLERATED.get(node.op, ()))
    data = [operand for operand in node.input if not operand.startswith("^")]
    at = 0
    for arg in defined.input_arg:
        width = len(dtypes_of(node, arg, defined))
        if arg.name in wanted and any(producer(operand) not in constants for operand in data[at : at + width]):
            return str(arg.name)
        at += width
    return ""
