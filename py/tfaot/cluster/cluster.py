"""The stage as a whole: opens the model, cuts its clusters out, and exports them as one model with an entry point each."""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import tensorflow as tf

from tfaot.cluster import cpp, trial
from tfaot.cluster.candidates import OPEN, Nodes, examine
from tfaot.cluster.clusters import MOVES, Clustering, find
from tfaot.cluster.cut import Cut, Part, cut
from tfaot.cluster.host_model import Running, Whole, save
from tfaot.cluster.pipeline import pipeline
from tfaot.cluster.recorded import record
from tfaot.cluster.request import Request
from tfaot.core import drawn, dtypes, names, safetensors
from tfaot.core.errors import TfaotError, listed
from tfaot.core.session import session_config
from tfaot.core.user_code import SEED
from tfaot.export import export, golden
from tfaot.export.request import Request as ExportRequest
from tfaot.export.rewrites import freeze
from tfaot.export.sources import tables
from tfaot.export.sources.model import Model
from tfaot.export.sources.subgraph import PLACEHOLDERS
from tfaot.export.traced import Array, Dims, Edge, Function, Source, check_resources
from tfaot.graph.names import tensor_name
from tfaot.graph.ops import CONTROL_FLOW_V1
from tfaot.graph.prune import prune
from tfaot.graph.variables import name_variables, variable_uses


@dataclasses.dataclass(frozen=True)
class _Open(Dims):
    """Sizes as the target gives them. Others stay open."""

    def fix(self, what: str, edges: Sequence[Edge]) -> tuple[Edge, ...]:
        """Returns the inputs with the sizes that are known; see `Dims`."""
        fixed = []
        for edge in edges:
            asked = self.sizes.get(edge.label)
            if asked is not None:
                own = edge.shape if edge.shape is not None else (None,) * len(asked)
                pairs = list(zip(own, asked, strict=False))
                if len(own) != len(asked) or any(a is not None and b is not None and a != b for a, b in pairs):
                    super().fix(what, [edge])  # says what doesn't fit
                edge = dataclasses.replace(edge, shape=tuple(b if a is None else a for a, b in pairs))
            fixed.append(edge)
        return tuple(fixed)


@dataclasses.dataclass(frozen=True)
class _Parts:
    """The clusters as a model; see `traced.Source`."""

    parts: tuple[Part, ...]
    values: Mapping[tuple[str, int], Sequence[Array]]
    """Inputs of clusters in a run of the whole, by cluster and step."""
    most: int
    """The largest batch of which a cluster's test gets the rows."""

    @property
    def entry_points(self) -> tuple[str, ...]:
        return tuple(part.cluster.name for part in self.parts)

    @property
    def default_entry_point(self) -> str:
        return self.entry_points[0]

    def function(self, entry_point: str, dims: Dims) -> Function:
        return next(part.function for part in self.parts if part.cluster.name == entry_point)

    def initial(self, names: Collection[str]) -> Mapping[str, Array]:
        return {}

    def golden(
        self, entry_point: str, inputs: Sequence[Edge], step: int, rng: np.random.Generator
    ) -> Sequence[Array] | None:
        values = self.values.get((entry_point, step))
        if values is None or not all(value.size for value in values):
            return None  # drawn instead
        return [
            value[: self.most] if None in (edge.shape or ()) else value
            for edge, value in zip(inputs, values, strict=True)
        ]


@dataclasses.dataclass(frozen=True)
class _Model(Model):
    """The clusters, for the export stage."""

    source: Source | None = None

    def open(self) -> Source:
        assert self.source is not None
        return self.source


_IDLE = (
    MOVES
    | CONTROL_FLOW_V1
    | {
        "AssignVariableOp",
        "Const",
        "NoOp",
        "Placeholder",
        "PlaceholderV2",
        "PlaceholderWithDefault",
        "ReadVariableOp",
        "VarHandleOp",
    }
)
"""Ops that compute nothing."""


def op_name(cpp_class: str) -> str:
    """Returns the op that runs the clusters of a class. `runtime/tfaot/tensorflow_op.cc` makes the same name."""
    return f"Tfaot{names.symbol(cpp_class)}"


def cluster(request: Request) -> None:
    """Writes what the export stage writes for the clusters, and the whole.

    Raises:
      TfaotError: the model can't be read, or no part of it compiles.
    """
    what = request.model.path
    if len(request.entry_points) > 1:
        raise TfaotError(
            f"{what}: entry_points = {[own for _, own in request.entry_points]}",
            exists="tf_aot_clusters cuts one function of a model",
            do="declare a target for each, with a cpp_class of its own, because the class also names the op",
        )
    if request.sizes:
        raise TfaotError(
            f"{what}: sizes = {{{', '.join(sorted(request.sizes))}}}",
            exists="tf_aot_clusters compiles for known sizes, and TensorFlow runs what is open",
            do="give a number in dims in place of the name, or None to leave that part to TensorFlow, and remove sizes",
        )
    if request.batch_sizes and request.pipeline_header:
        raise TfaotError(
            f"{what}: pipeline = True, and batch_sizes = {list(request.batch_sizes)}",
            exists="a pipeline's class has memory for tensors of known sizes",
            do="give the sizes with dims instead of batch_sizes, or remove pipeline",
        )
    source = request.model.open()
    name = request.entry_points[0][1] if request.entry_points else source.default_entry_point
    dims = _Open(request.dims_with({}))
    function = source.function(name, dims)
    dims.check_used(what, {edge.label for edge in function.inputs})
    unfilled = {node.name for node in function.graph.node if node.op in PLACEHOLDERS | tables.TABLES}
    check_resources(
        what,
        [text for name, text in function.resources.items() if name in unfilled],
        do="only tables that are filled once, and not by the function, can be in a SavedModel of clusters: don't use other "
        "tables, datasets, or queues in it",
    )
    function, variables = _frozen(source, function, request.frozen)
    feeds = [tensor_name(edge.name)[0] for edge in function.inputs]
    refused: dict[str, str] = {}
    while True:
        nodes, clustering = settled(
            function,
            what=what,
            least=request.min_ops,
            refused=refused,
            batched=bool(request.batch_sizes),
            pipeline=bool(request.pipeline_header),
        )
        made = cut(nodes, clustering.clusters, function.outputs, feeds, op_name(request.cpp_class))
        new = {node: why for part in made.parts for node, why in trial.refused(part).items()}
        if not new:
            break
        refused |= new
    if not made.parts:
        raise nothing(nodes, clustering, f"{what}: no part of {name} is worth compiling")
    if request.batch_sizes and not any(part.cluster.batch for part in made.parts):
        raise nothing(nodes, clustering, f"{what}: batch_sizes = {list(request.batch_sizes)}, and no cluster has rows")
    most = max(request.batch_sizes, default=0)
    words = tables.words(nodes.uncut)
    steps = _inputs(source, name, function.inputs, request.golden_steps, what, most, words)
    values = _inside(Whole(nodes.graph, function.inputs, function.outputs, variables), made.parts, steps)
    os.makedirs(request.out_configs, exist_ok=True)
    model = _Model(model=request.model.path, source=_Parts(made.parts, values, most))
    export.export(
        ExportRequest(
            model=model,
            cpp_class=request.cpp_class,
            golden_steps=request.golden_steps,
            out_graph=request.out_graph,
            out_configs=tuple(
                os.path.join(request.out_configs, f"{part.cluster.name}.config.pbtxt") for part in made.parts
            ),
            out_manifest=request.out_manifest,
            out_variables=request.out_variables,
            out_golden_inputs=request.out_golden_inputs,
            out_sources=request.out_sources,
            out_weights=request.out_weights,
            entry_points=tuple((part.cluster.name, part.cluster.name) for part in made.parts),
            batch_sizes=request.batch_sizes,
            some_batched=True,
        )
    )
    save(Whole(made.graph, function.inputs, made.outputs, variables), request.out_saved_model, version=tf.__version__)
    with open(request.out_uncut, "wb") as file:
        file.write(nodes.uncut.SerializeToString(deterministic=True))
    serialized = {
        f"{step}/{index}": np.frombuffer(tf.make_tensor_proto(value).SerializeToString(), np.uint8)
        for step, values in enumerate(steps)
        for index, value in enumerate(values)
    }
    with open(request.out_inputs, "wb") as file:
        safetensors.write(file, serialized)
    with open(request.out_plan, "w", encoding="utf-8") as file:
        file.write(json.dumps(plan(nodes, clustering, made, function, request.cpp_class), indent=2) + "\n")
    if request.pipeline_header:
        _write_pipeline(request, nodes, made, function, variables, steps, what)


def _write_pipeline(
    request: Request,
    nodes: Nodes,
    made: Cut,
    function: Function,
    variables: Mapping[str, Array],
    steps: Sequence[Sequence[Array]],
    what: str,
) -> None:
    """Writes the class that calls the program for what stays, and its test."""
    planned = pipeline(nodes, made, function.inputs, function.outputs, variables, what)
    cpp.render(
        planned,
        cpp.Request(
            request.cpp_class,
            request.pipeline_header,
            request.library_header,
            tf.__version__,
            len(steps),
            request.out_pipeline_header,
            request.out_pipeline_test,
            request.out_pipeline_initial,
        ),
    )
    with open(request.out_pipeline_values, "wb") as file:
        file.write(planned.initial)
    with open(request.out_pipeline_goldens, "wb") as file:
        safetensors.write(file, record(planned, nodes, function.inputs, function.outputs, variables, steps))


def settled(
    function: Function,
    *,
    what: str,
    least: int,
    refused: Mapping[str, str],
    batched: bool = False,
    pipeline: bool = False,
) -> tuple[Nodes, Clustering]:
    """Returns a function's nodes and clusters. Updates of variables that aren't part of one cluster stay one op."""
    kept: set[str] = set()
    while True:
        nodes = examine(function, what=what, kept=kept, batched=batched, pipeline=pipeline).without(refused)
        clustering = find(nodes, least=least)
        if not (apart := apart_from(nodes, clustering)):
            return nodes, clustering
        kept |= apart


def apart_from(nodes: Nodes, clustering: Clustering) -> set[str]:
    """Returns the updates whose arithmetic isn't inside of one cluster."""
    inside = [set(cluster.nodes) for cluster in clustering.clusters]
    return {
        update
        for update, made in nodes.updates.items()
        if not any(cluster.issuperset({*made.arithmetic, *made.sums} - nodes.constants) for cluster in inside)
    }


def nothing(nodes: Nodes, clustering: Clustering, asked: str) -> TfaotError:
    """Returns the error for a graph without clusters."""
    reasons = Counter(f"{op}: {reason}" for reason, op in _left(nodes, clustering))
    return TfaotError(
        asked,
        exists=listed([f"{reason} ({count})" for reason, count in reasons.most_common(8)]) or "no ops that compute",
        do="give the sizes of inputs (dims), lower min_ops, or keep the model in TensorFlow",
    )


def _left(nodes: Nodes, clustering: Clustering) -> list[tuple[str, str]]:
    """Returns the reason and op of each node that stays, without those that are only wires."""
    wires = ("it is an input", "it computes nothing", "TensorFlow runs it for free")
    return [
        (clustering.left[node.name], node.op)
        for node in nodes.graph.node
        if node.name in clustering.left and clustering.left[node.name] not in wires
    ]


def _frozen(source: Source, function: Function, patterns: tuple[str, ...] | None) -> tuple[Function, dict[str, Array]]:
    """Turns variables into constants: by default, those that the model only reads.

    Returns:
      The function, and the values of all other variables.
    """
    graph = prune(
        function.graph,
        *([tensor_name(edge.name)[0] for edge in edges] for edges in (function.outputs, function.inputs)),
    )
    name_variables(graph)
    uses = variable_uses(graph)
    written = {use.shared_name for use in uses if use.written}
    names = [use.shared_name for use in uses]
    chosen = freeze.chosen(names, written, patterns, default_frozen=True)
    values = source.initial(names)
    constants = {name: values[name] for name in names if name in chosen}
    graph = freeze.freeze(graph, constants, function.sources)
    return dataclasses.replace(function, graph=graph), {name: values[name] for name in names if name not in chosen}


def _inputs(
    source: Source, entry: str, edges: Sequence[Edge], count: int, what: str, most: int, words: Sequence[bytes]
) -> list[list[Array]]:
    """Returns the inputs of the steps to verify: the user's, or else drawn ones, of which strings are words that a table has.

    With batches, of which `most` is the largest compiled size, these have one row, that size, and more rows, in turn.
    """
    rng = np.random.default_rng(SEED)
    user = golden.User(source, what)
    steps = []
    for step in range(count):
        values = user.inputs(entry, edges, step)
        if values is not None:
            steps.append(list(values))
            continue
        if not words and (odd := [edge.label for edge in edges if edge.dtype not in dtypes.BY_ENUM]):
            raise TfaotError(
                f"{what}: {listed(odd)} can't be drawn at random",
                exists="strings have a form that only the model knows",
                do='give the model inputs to verify: golden_inputs = "inputs.py", a file that defines golden_fn(step, rng)',
            )
        rows = (1, most, 2 * most + 1)[step % 3] if most else 2
        steps.append([_drawn(edge, rng, rows, words) for edge in edges])
    golden.check_steps(source, count)
    return steps


def _drawn(edge: Edge, rng: np.random.Generator, rows: int, words: Sequence[bytes]) -> Array:
    shape = tuple(rows if size is None else size for size in edge.shape or ())
    if edge.dtype not in dtypes.BY_ENUM:
        texts = [b" ".join(rng.choice(words, int(count))) for count in rng.geometric(0.7, int(np.prod(shape)))]
        return np.array(texts, np.object_).reshape(shape)
    return drawn.values(dtypes.BY_ENUM[edge.dtype].name, shape, drawn.Draw(int(rng.integers(1, 1 << 62))))


def _inside(
    whole: Whole, parts: Sequence[Part], steps: Sequence[Sequence[Array]]
) -> dict[tuple[str, int], list[Array]]:
    """Returns the values of clusters' inputs in a run of the whole, where there are any."""
    running = Running(whole, session_config())
    taken = {}
    for step, values in enumerate(steps):
        for part in parts:
            try:
                taken[part.cluster.name, step] = part.taken(running.inside(part.inputs, values))
            except (tf.errors.OpError, ValueError):
                continue  # a branch that isn't taken, or the inside of a loop
    return taken


def plan(nodes: Nodes, clustering: Clustering, made: Cut, function: Function, cpp_class: str) -> dict[str, object]:
    """Returns what became of the graph, for the plan's JSON."""
    operations = {node.name: node.op for node in nodes.uncut.node}
    open_nodes = {
        node.name
        for node in nodes.uncut.node
        if nodes.reasons.get(node.name) == OPEN or any(map(nodes.is_open, (*node.input, f"{node.name}:0")))
    }
    copied = {*nodes.constants, *nodes.sized}
    origins = nodes.origins()
    contained = {
        part.cluster.name: list(
            dict.fromkeys(
                original
                for name in part.cluster.nodes
                for original in origins.get(name, (name,))
                if original in operations
            )
        )
        for part in made.parts
    }

    def edges(sequence: Sequence[Edge]) -> list[dict[str, object]]:
        return [
            {
                "label": edge.label,
                "tensor": edge.name,
                "dtype": tf.as_dtype(edge.dtype).name,
                "shape": None if edge.shape is None else list(edge.shape),
            }
            for edge in sequence
        ]

    left: dict[str, Counter[str]] = {}
    for reason, op in _left(nodes, clustering):
        left.setdefault(reason, Counter())[op] += 1
    return {
        "cpp_class": cpp_class,
        "op": op_name(cpp_class),
        "inputs": edges(function.inputs),
        "outputs": edges(function.outputs),
        "cut_outputs": edges(made.outputs),
        "nodes": len(operations),
        "known": len(nodes.constants),
        "computing": {
            kind: [
                name
                for name, op in operations.items()
                if name not in copied and op not in _IDLE and (name in open_nodes) == (kind == "open")
            ]
            for kind in ("fixed", "open")
        },
        "clusters": [
            {
                "name": part.cluster.name,
                "batch": part.cluster.batch,
                "nodes": contained[part.cluster.name],
                "computing": sum(1 for name in contained[part.cluster.name] if operations[name] not in MOVES),
                "ops": dict(sorted(Counter(operations[name] for name in contained[part.cluster.name]).items())),
                "inputs": list(part.inputs),
                "outputs": list(part.outputs),
            }
            for part in made.parts
        ],
        "left": {reason: dict(sorted(ops.items())) for reason, ops in sorted(left.items())},
    }
