"""Checks a model: opens it, and collects what stands in the way of compiling each of its entry points."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Sequence

import numpy as np
from google.protobuf import message, text_format
from tensorflow.core.framework import graph_pb2, node_def_pb2, op_def_pb2
from tensorflow.core.protobuf import saved_model_pb2

from tfaot.core import caller, dtypes, knowledge
from tfaot.core.errors import TfaotError
from tfaot.export.request import ModelRequest
from tfaot.export.rewrites import freeze, seeds
from tfaot.export.rewrites.random import state
from tfaot.export.sources import tables
from tfaot.export.sources.model import Model
from tfaot.export.traced import Edge, Function, Source
from tfaot.graph.attributes import Array, dtype_shown
from tfaot.graph.names import canonical, tensor_name
from tfaot.graph.ops import definition, dtypes_of, functions_of
from tfaot.graph.prune import prune
from tfaot.graph.variables import name_variables, variable_uses
from tfaot.preflight import kernels, shapes
from tfaot.preflight.constants import Constants, Unknown
from tfaot.preflight.nesting import Nesting
from tfaot.preflight.report import BLOCKER, HAZARD, NEEDED, EntryPoint, Finding, Place, Report
from tfaot.preflight.shapes import AssumedDims, Open


def check(request: ModelRequest) -> Report:
    """Returns the report. A model that can't be read is a finding, too."""
    import tensorflow as tf

    try:
        source = request.model.open()
        names = [own for _, own in request.entry_points] or _default(source)
    except TfaotError as error:
        return failed(request, error)
    labels: set[str] = set()
    entry_points = [_entry_point(source, name, request, labels) for name in names]
    try:
        if labels:
            AssumedDims(request.dims_with({}), batched=False).check_used(request.model.path, labels)
    except TfaotError as error:
        return failed(request, error)
    return Report.of(tf.__version__, request.model.path, entry_points)


def failed(request: ModelRequest, error: TfaotError) -> Report:
    """Returns the report for a model that couldn't be checked."""
    import tensorflow as tf

    return Report.of(tf.__version__, request.model.path, [_unreadable("", error)])


def recursive(request: ModelRequest) -> Report | None:
    """Returns the report on functions that call themselves, of which TensorFlow dies; None if there are none.

    It reads the model's file and nothing else.
    """
    import tensorflow as tf

    findings = []
    for graph in _graphs(request.model):
        functions = graph_pb2.GraphDef()
        for function in graph.library.function:
            functions.node.add(name=function.signature.name, op=function.signature.name)
        functions.library.CopyFrom(graph.library)
        nesting = Nesting(functions)
        for name in nesting.recursive:
            findings.append(_recursion(nesting, name))
    if not findings:
        return None
    return Report.of(tf.__version__, request.model.path, [EntryPoint("", 0, 0, tuple(findings))])


def _graphs(model: Model) -> list[graph_pb2.GraphDef]:
    """Returns the graphs in a model's file, as far as they can be read."""
    try:
        if model.saved_model is not None:
            with open(os.path.join(model.saved_model, "saved_model.pb"), "rb") as file:
                saved = saved_model_pb2.SavedModel.FromString(file.read())
            return [meta.graph_def for meta in saved.meta_graphs]
        if model.graph is not None:
            with open(model.graph, "rb") as file:
                data = file.read()
            try:
                return [graph_pb2.GraphDef.FromString(data)]
            except message.DecodeError:
                return [text_format.Parse(data.decode(), graph_pb2.GraphDef())]
    except (OSError, UnicodeDecodeError, message.DecodeError, text_format.ParseError):
        pass
    return []


def _recursion(nesting: Nesting, name: str) -> Finding:
    call = next(candidate for candidate in nesting.calls[name] if candidate.function in nesting.recursive)
    place = Place(call.node.name, call.function, nesting.chain(call.function), 1, "", "")
    what = f"the function {name} calls itself, which compiled code can't"
    return Finding("recursion", BLOCKER, call.node.op, what, "use a loop", 1, (place,))


def _default(source: Source) -> tuple[str, ...]:
    """Returns the default entry point, or all if the model has no default."""
    try:
        return (source.default_entry_point,)
    except TfaotError:
        if not source.entry_points:
            raise
        return source.entry_points


def _entry_point(source: Source, name: str, request: ModelRequest, labels: set[str]) -> EntryPoint:
    """Checks an entry point, and adds its inputs to `labels`."""
    dims = AssumedDims(
        request.dims_with({name: own[-1] for name, own in request.buckets.items() if own}), batched=False
    )
    try:
        function = source.function(name, dims)
        frozen = _frozen(request, function)
    except TfaotError as error:
        return _unreadable(name, error)
    labels |= {edge.label for edge in function.inputs}
    return Checker(function, frozen=frozen, opened=dims.opened(batched=bool(request.batch_sizes))).entry_point()


def _frozen(request: ModelRequest, function: Function) -> frozenset[str]:
    """Returns the variables that become constants, as the export stage chooses them for a single entry point."""
    graph = prune(function.graph, _nodes(function.outputs), _nodes(function.inputs))
    name_variables(graph)
    uses = variable_uses(graph)
    written = {use.shared_name for use in uses if use.written}
    several = (request.entry_points, request.batch_sizes, *request.buckets.values())
    one = max(map(len, several)) <= 1
    default = one and not written
    return freeze.chosen([use.shared_name for use in uses], written, request.frozen, default_frozen=default)


def _nodes(edges: Sequence[Edge]) -> list[str]:
    return [tensor_name(edge.name)[0] for edge in edges]


def _unreadable(name: str, error: TfaotError) -> EntryPoint:
    what = "; ".join(part for part in (error.asked, error.exists) if part)
    because = " ".join(error.details.split())
    place = Place(name or "the model", "", (), 1, "", because)
    return EntryPoint(name, 0, 0, (Finding("unreadable", BLOCKER, "", what, error.do, 1, (place,)),))


class Checker:
    """Collects findings in one entry point."""

    def __init__(self, function: Function, *, frozen: Collection[str] = (), opened: Sequence[Open] = ()) -> None:
        """Prunes the entry point's graph, and walks over it.

        Args:
          function: the entry point, whose inputs have known shapes.
          frozen: the variables that become constants, by name.
          opened: the inputs whose shapes are assumed.
        """
        self._function = function
        self._opened = opened
        graph = prune(function.graph, _nodes(function.outputs), _nodes(function.inputs))
        name_variables(graph)
        self._graph = seeds.without_unused(graph, _nodes(function.outputs))
        self._filled = tables.filled(self._graph)
        self._sources = function.sources
        self._nesting = Nesting(self._graph)
        labels = {tensor_name(edge.name)[0]: edge.label for edge in function.inputs}
        self._constants = Constants(self._nesting, labels, frozen)
        self._found: dict[tuple[str, str, str, str, str], list[Place]] = defaultdict(list)

    def entry_point(self) -> EntryPoint:
        """Returns all findings."""
        for function, node in self._nesting.nodes():
            if node.op in self._nesting.library or (not function and node.name in self._filled):
                continue  # what uses a table is a finding, and not what fills it
            defined = definition(node.op)
            if self._kernel(function, node, defined) and defined is not None:
                self._constant_arguments(function, node, defined)
                self._hazards(function, node, defined)
                self._called(function, node)
        self._edges()
        self._resources()
        self._empty_slices()
        if not self._nesting.recursive and not any(severity == BLOCKER for _, severity, *_ in self._found):
            self._random()
            self._shapes()
        findings = [
            Finding(kind, severity, op, what, rewrite, sum(place.count for place in places), tuple(places))
            for (kind, severity, op, what, rewrite), places in self._found.items()
        ]
        findings += [_recursion(self._nesting, name) for name in self._nesting.recursive]
        nodes = sum(1 for _ in self._nesting.nodes())
        return EntryPoint(self._function.name, nodes, len(self._nesting.bodies) - 1, tuple(findings))

    def _add(
        self,
        kind: str,
        severity: str,
        function: str,
        node: node_def_pb2.NodeDef,
        what: str,
        rewrite: str,
        because: str = "",
    ) -> None:
        prefix = f"{function}/" if function else ""
        place = Place(
            node=node.name,
            function=function,
            nesting=self._nesting.chain(function),
            count=self._nesting.count(function),
            source=self._sources.get(prefix + node.name, ""),
            because=because,
        )
        self._add_place(kind, severity, node.op, what, rewrite, place)

    def _kernel(self, function: str, node: node_def_pb2.NodeDef, defined: op_def_pb2.OpDef | None) -> bool:
        """Returns whether the compiler can lower a node, as far as its op and dtypes say."""
        missing = kernels.missing(node, defined)
        if missing is None:
            reason = knowledge.NOT_AHEAD_OF_TIME.get(node.op)
            if reason is not None:
                rewrite = knowledge.lowered_otherwise(node.op)
                self._add("not_ahead_of_time", BLOCKER, function, node, f"{node.op}: {reason}", rewrite)
            return reason is None
        if not missing.dtypes:
            why, rewrite = knowledge.why_missing(node.op, defined)
            self._add("unsupported_op", BLOCKER, function, node, f"XLA can't compile {node.op}: {why}", rewrite)
            return False
        lacking = sorted({dtype for dtype, _ in missing.dtypes.values()})
        common = set.intersection(*(set(compiled) for _, compiled in missing.dtypes.values()))
        allowed = [dtype.name for dtype in dtypes.ALL if dtype.name in common]
        what = f"XLA can't compile {node.op} of {', '.join(lacking)}"
        rewrite = f"cast its operands to a dtype that XLA has it for: {', '.join(allowed)}"
        self._add("unsupported_dtype", BLOCKER, function, node, what, rewrite)
        return False

    def _called(self, function: str, node: node_def_pb2.NodeDef) -> None:
        for _, called in functions_of(node):
            if called.name and called.name not in self._nesting.library:
                what = f"the graph lacks the function {called.name}, which a node calls"
                rewrite = "save the whole graph, with its library of functions"
                self._add("missing_function", BLOCKER, function, node, what, rewrite)

    def _constant_arguments(self, function: str, node: node_def_pb2.NodeDef, defined: op_def_pb2.OpDef) -> None:
        if node.op in knowledge.UNLIMITED:
            limit = self._literal(function, node, defined, knowledge.UNLIMITED[node.op])
            if limit is not None and (limit < 0).any():
                self._add("unbounded_loop", BLOCKER, function, node, f"{node.op}: {_UNBOUNDED}", knowledge.BOUNDED_LOOP)
        tolerated = set(knowledge.TOLERATED.get(node.op, ()))
        if node.op in knowledge.ONE_STEP:
            strides = self._literal(function, node, defined, "strides")
            if strides is not None and (strides == 1).all():
                tolerated.update(knowledge.ONE_STEP[node.op])
        if node.op in knowledge.EMPTY_SLICES:
            strides = self._literal(function, node, defined, "strides")
            if strides is not None and (np.abs(strides) != 1).any():
                what = f"{node.op}: XLA can't compile an assignment to a slice with a step"
                rewrite = "write rows by index: tf.tensor_scatter_nd_update(tensor, indices, rows)"
                self._add("not_ahead_of_time", BLOCKER, function, node, what, rewrite)
        for argument in knowledge.CONSTANTS.get(node.op, ()):
            if argument in tolerated:
                continue
            operands = self._operands(node, defined, argument)
            unknown = next(filter(None, (self._constants.operand(function, operand) for operand in operands)), None)
            if unknown is not None:
                self._not_constant(function, node, argument, unknown)

    def _operands(self, node: node_def_pb2.NodeDef, defined: op_def_pb2.OpDef, argument: str) -> list[str]:
        """Returns the operands of an argument."""
        data = [operand for operand in node.input if not operand.startswith("^")]
        at = 0
        for arg in defined.input_arg:
            width = len(dtypes_of(node, arg, defined))
            if arg.name == argument:
                return data[at : at + width]
            at += width
        return []

    def _literal(
        self, function: str, node: node_def_pb2.NodeDef, defined: op_def_pb2.OpDef, argument: str
    ) -> Array | None:
        """Returns the value of an argument that is a constant."""
        for operand in self._operands(node, defined, argument):
            return self._constants.literal(function, operand)
        return None

    def _not_constant(self, function: str, node: node_def_pb2.NodeDef, argument: str, unknown: Unknown) -> None:
        because = f"it depends on {unknown.reason}"
        if node.op in _LOOP_LISTS:
            self._add(
                "unbounded_loop", BLOCKER, function, node, f"{node.op}: {_UNBOUNDED}", knowledge.BOUNDED_LOOP, because
            )
            return
        what = f"{node.op}: its argument {argument} must be known at build time"
        self._add("not_constant", BLOCKER, function, node, what, knowledge.constant(node.name), because)

    def _hazards(self, function: str, node: node_def_pb2.NodeDef, defined: op_def_pb2.OpDef) -> None:
        if node.op in knowledge.CHECKS:
            what, rewrite = knowledge.CHECKS[node.op]
            self._add("dropped_check", HAZARD, function, node, what, rewrite)
        if node.op in knowledge.CLAMPED and not self._known(function, node, defined, "indices"):
            what, rewrite = knowledge.CLAMPED[node.op]
            self._add("clamped_index", HAZARD, function, node, f"{node.op}: {what}", rewrite)
        if self._is_dynamic(function, node, defined):
            what = f"{node.op}: the size of its result depends on values; compiled code has a bound for it"
            rewrite = (
                "use a mask or tf.where with three arguments if all rows can stay; an output then has a fixed size"
            )
            self._add("dynamic_size", HAZARD, function, node, what, rewrite)
        if node.op in knowledge.SEEDED and self._known(function, node, defined, "seed"):
            what = f"{node.op}: its seed is a constant, so each run draws the same numbers"
            rewrite = "make the seed an input, or draw with tf.random.uniform and its like, which follow Seed()"
            self._add("fixed_seed", HAZARD, function, node, what, rewrite)
        if node.op == "TensorListSetItem" and node.attr["resize_if_index_out_of_bounds"].b:
            what = "a write can make a tf.TensorArray grow; compiled code would lose what is beyond its first size"
            self._add("growing_list", BLOCKER, function, node, what, knowledge.fixed_list(node.name))
        if node.op == "TensorArrayV3" and node.attr["dynamic_size"].b:
            what = "a tf.TensorArray grows; compiled code would lose what is beyond its first size"
            self._add("growing_list", BLOCKER, function, node, what, knowledge.fixed_list(node.name))

    def _known(self, function: str, node: node_def_pb2.NodeDef, defined: op_def_pb2.OpDef, argument: str) -> bool:
        """Returns whether the compiler knows an argument."""
        operands = self._operands(node, defined, argument)
        return all(self._constants.operand(function, operand) is None for operand in operands)

    def _is_dynamic(self, function: str, node: node_def_pb2.NodeDef, defined: op_def_pb2.OpDef) -> bool:
        """Returns whether the size of a node's result depends on values."""
        if node.op not in knowledge.SIZES:
            return node.op in knowledge.DYNAMIC
        if node.op == "StridedSlice" and node.attr["shrink_axis_mask"].i:
            return False  # an index, whose end follows from its start
        return not self._known(function, node, defined, knowledge.SIZES[node.op])

    def _resources(self) -> None:
        """Lists captured resources that nothing can run: not variables, and not tables."""
        for node in self._graph.node:
            if node.op in ("Placeholder", *tables.TABLES) and (text := self._function.resources.get(node.name)):
                what = "the function uses a resource other than variables"
                rewrite = "don't use datasets, queues, or tables that change in it: look up values where you prepare its inputs"
                self._add_place("unsupported_op", BLOCKER, "", what, rewrite, Place(text, "", (), 1, "", ""))

    def _edges(self) -> None:
        """Checks dtypes and sizes of inputs and outputs."""
        for kind, edges in (("input", self._function.inputs), ("output", self._function.outputs)):
            for edge in edges:
                if edge.dtype not in dtypes.BY_ENUM:
                    what = f"the {kind} {edge.label} is {dtype_shown(edge.dtype)}, which can't cross the model's edge"
                    rewrite = f"use one of {', '.join(dtype.name for dtype in dtypes.ALL)}"
                    self._add_place("edge_dtype", BLOCKER, "", what, rewrite, _edge_place(edge, ""))
        if self._opened:
            sizes = {opened.edge.label: opened.assumed for opened in self._opened}
            where = " on the target" if caller.in_bazel() else ""
            rewrite = f"give the sizes{where}, such as {caller.setting('dims', sizes)}"
            if all(opened.edge.shape is not None and None not in opened.edge.shape[1:] for opened in self._opened):
                rewrite += ", or serve any batch: " + caller.setting("batch_sizes", [1, 8, 64])
            for opened in self._opened:
                what = "inputs have dimensions that aren't known at build time"
                self._add_place("unknown_size", NEEDED, "", what, rewrite, _edge_place(opened.edge, opened.because))

    def _empty_slices(self) -> None:
        nodes = [node for node in self._nesting.bodies[""].nodes if node.op in knowledge.EMPTY_SLICES]
        sizes = shapes.inferred(self._graph) if nodes else {}
        for node in nodes:
            defined = definition(node.op)
            assert defined is not None
            (value,) = self._operands(node, defined, knowledge.EMPTY_SLICES[node.op])
            if 0 in (sizes.get(canonical(value)) or ()):
                what = f"{node.op}: XLA can't compile an assignment to an empty slice"
                self._add("not_ahead_of_time", BLOCKER, "", node, what, knowledge.EMPTY_SLICE)

    def _random(self) -> None:
        for left in state.seeded(self._graph).left:
            function, _, name = left.name.rpartition("/")
            while function and function not in self._nesting.bodies:  # a node's name can contain slashes, too
                function, _, part = function.rpartition("/")
                name = f"{part}/{name}"
            node = self._nesting.bodies[function].by_name.get(name)
            if node is not None:
                what = f"{left.op} can't use the class's seed"
                rewrite = (
                    "draw in the loop's body and not in its condition, or with tf.random.stateless_uniform and the like, "
                    "which take their seed as an input"
                )
                self._add("random", BLOCKER, function, node, what, rewrite, left.reason)

    def _shapes(self) -> None:
        outputs = {edge.name: edge.label for edge in self._function.outputs}
        for lost in shapes.lost(self._graph, self._nesting, outputs):
            body = self._nesting.bodies.get(lost.function)
            node = None if body is None else body.by_name.get(lost.node)
            if node is None or node.op in knowledge.DYNAMIC or node.op in knowledge.SIZES:
                continue
            what = f"{node.op}: TensorFlow doesn't know the shape of its result, though it knows its operands'"
            rewrite = "nothing, if the build succeeds: the compiler finds the shape or a bound; otherwise, give sizes as constants"
            self._add("lost_shape", HAZARD, lost.function, node, what, rewrite, lost.because)

    def _add_place(self, kind: str, severity: str, op: str, what: str, rewrite: str, place: Place) -> None:
        self._found[kind, severity, op, what, rewrite].append(place)


def _edge_place(edge: Edge, because: str) -> Place:
    return Place(edge.label, "", (), 1, edge.source, because)


_UNBOUNDED = "a loop, or its gradient, keeps a list whose size isn't known at build time"

_LOOP_LISTS = ("EmptyTensorList", "StackV2", "TensorArrayV3", "TensorListReserve")
"""Ops that make lists, in both versions of control flow."""
