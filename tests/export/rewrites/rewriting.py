"""Runs a graph before and after a rewrite, in sessions, and compiles it: each in a forked child."""

from __future__ import annotations

import dataclasses
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tfaot.core import dtypes, environment, isolate

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Model:
    """A graph with feeds and fetches, as input to a rewrite."""

    graph: Any
    """Pruned GraphDef."""
    inputs: tuple[Any, ...]
    """Edges."""
    outputs: tuple[Any, ...]
    initial: Mapping[str, Array]
    """Initial values by shared name."""
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a rewrite."""

    before: tuple[tuple[Array, ...], ...]
    """The outputs of each run, then after all runs, the remaining variables in the graph's order."""
    after: tuple[tuple[Array, ...], ...]
    fed: tuple[str, ...]
    """Shared names of the remaining variables."""
    complaint: str
    """The compiler's error, empty if there is none."""
    graph: bytes
    """The rewritten GraphDef."""
    optimized: str
    """Optimized HLO, without metadata."""
    signature: str
    """Dtypes and shapes of the compiled code's parameters and results, in HLO's notation."""


def built(build: Callable[[], Any], edit: Callable[[Any], None] = lambda graph: None) -> Model:
    """Returns a v1 graph, built in this process by a function that returns its placeholders and its outputs.

    Args:
      build: called within the graph.
      edit: changes the GraphDef in place.
    """
    import tensorflow as tf

    from tfaot.export.traced import Edge
    from tfaot.graph.prune import prune

    v1 = tf.compat.v1
    v1.disable_eager_execution()
    v1.enable_resource_variables()
    v1.enable_control_flow_v2()

    def edge(tensor: Any) -> Edge:
        return Edge(tensor.name, tensor.op.name, tensor.dtype.as_datatype_enum, tuple(tensor.shape.as_list()))

    graph = tf.Graph()
    with graph.as_default():
        inputs, outputs = build()
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            variables = v1.global_variables()
            values = session.run([variable.read_value() for variable in variables])
        definition = prune(
            graph.as_graph_def(), [tensor.op.name for tensor in outputs], [tensor.op.name for tensor in inputs]
        )
    edit(definition)
    initial = {variable.op.name: np.asarray(value) for variable, value in zip(variables, values, strict=True)}
    return Model(definition, tuple(map(edge, inputs)), tuple(map(edge, outputs)), initial)


def compared(
    make: Callable[[], Model], rewrite: Callable[[Model], Model], feeds: Sequence[Sequence[Any]], *, runs: int = 2
) -> Outcome:
    """Rewrites a graph, then runs and compiles the result, in a child.

    Args:
      make: returns the model.
      rewrite: its edges keep the user's dtypes and shapes, whatever their nodes have.
      feeds: for each run, a value for each input. Further runs use the last one again.
      runs: the number of consecutive runs, so that writes show.
    """

    def work() -> Outcome:
        with tempfile.TemporaryDirectory() as folder:
            environment.prepare(xla_flags=(f"--xla_dump_to={folder}", "--xla_dump_hlo_as_text"))
            model = make()
            kept = model.graph.SerializeToString(deterministic=True)
            changed = rewrite(model)
            assert model.graph.SerializeToString(deterministic=True) == kept, "the rewrite changed what it was given"
            values = [list(feeds[min(run, len(feeds) - 1)]) for run in range(runs)]
            fed = _variables(changed.graph)
            before, after = _run(model, values, fed), _run(changed, values, fed)
            return Outcome(before, after, tuple(fed), *_compile(changed, folder))

    return isolate.run_isolated(work, what="rewriting a graph")


def _variables(graph: Any) -> dict[str, str]:
    """Returns nodes of handles by shared name."""
    names: dict[str, str] = {}
    for node in graph.node:
        if node.op == "VarHandleOp":
            names.setdefault(node.attr["shared_name"].s.decode(), node.name)
    return names


def _stored(value: Array, dtype: Any) -> Array:
    """Returns a value as a graph with another dtype has it: its bits, or pairs of reals."""
    if value.dtype == dtype:
        return value
    pairs = (2,) if value.dtype.kind == "c" else ()
    return np.ascontiguousarray(value).reshape(-1).view(dtype).reshape((*value.shape, *pairs))


def _seen(value: Array, dtype: Any) -> Array:
    """Returns a graph's value as the user sees it."""
    if value.dtype == dtype:
        return value
    shape = value.shape[:-1] if np.dtype(dtype).kind == "c" else value.shape
    return np.ascontiguousarray(value).reshape(-1).view(dtype).reshape(shape)


def _run(model: Model, feeds: Sequence[Sequence[Any]], read: Iterable[str]) -> tuple[tuple[Array, ...], ...]:
    """Runs a graph from its initial values."""
    import tensorflow as tf

    raw = tf.raw_ops
    graph = tf.Graph()
    with graph.as_default(), tf.compat.v1.Session() as session:
        tf.import_graph_def(model.graph, name="")
        handles = {}
        for name, node in _variables(model.graph).items():
            dtype = graph.get_operation_by_name(node).get_attr("dtype")
            handles[name] = (graph.get_tensor_by_name(f"{node}:0"), dtype)
            value = tf.constant(_stored(model.initial[name], dtype.as_numpy_dtype), dtype)
            session.run(raw.AssignVariableOp(resource=handles[name][0], value=value))
        results: list[tuple[Array, ...]] = []
        for values in feeds:
            fed = {}
            for edge, value in zip(model.inputs, values, strict=True):
                array = np.asarray(value, dtypes.BY_ENUM[edge.dtype].numpy())
                fed[edge.name] = _stored(array, graph.get_tensor_by_name(edge.name).dtype.as_numpy_dtype)
            outputs = session.run([edge.name for edge in model.outputs], fed)
            results.append(
                tuple(
                    _seen(np.asarray(value), dtypes.BY_ENUM[edge.dtype].numpy())
                    for edge, value in zip(model.outputs, outputs, strict=True)
                )
            )
        final = []
        for name in read:
            handle, dtype = handles[name]
            value = session.run(raw.ReadVariableOp(resource=handle, dtype=dtype))
            final.append(_seen(np.asarray(value), model.initial[name].dtype))
    return (*results, tuple(final))


def _compile(model: Model, dump: str) -> tuple[str, bytes, str, str]:
    """Returns the last four fields of an outcome, from the text files that XLA writes to a folder."""
    from tensorflow.compiler.tf2xla import tf2xla_pb2

    from tfaot.export import verdict
    from tfaot.graph.names import tensor_name
    from tfaot.graph.variables import variable_uses

    config = tf2xla_pb2.Config()
    for kind, edges in (("feed", model.inputs), ("fetch", model.outputs)):
        for index, edge in enumerate(edges):
            dtype = dtypes.BY_ENUM[edge.dtype]
            entry = getattr(config, kind).add(name=f"{kind}{index}", type=dtypes.BY_NAME[dtype.stored].enum)
            entry.id.node_name, entry.id.output_index = tensor_name(edge.name)
            _set_shape(entry.shape, [*edge.shape, *[dtype.parts] * (dtype.parts > 1)])
    for index, use in enumerate(variable_uses(model.graph)):
        entry = config.variable.add(
            node_name=use.shared_name, name=f"variable{index}", type=use.dtype, readonly=not use.written
        )
        _set_shape(entry.shape, use.shape or ())
    answer = verdict.results(model.graph, config)
    graph = model.graph.SerializeToString(deterministic=True)
    if isinstance(answer, str):
        return answer, graph, "", ""
    (path,) = Path(dump).glob("*.cpu_*after_optimizations.txt")
    text = re.sub(r", metadata=\{[^}]*\}", "", path.read_text())
    signature = text.partition("entry_computation_layout={")[2].partition("\n")[0].removesuffix("}")
    return "", graph, text, re.sub(r"(?<=\])\{[\d,]*\}", "", signature)


def _set_shape(shape: Any, sizes: Sequence[int]) -> None:
    shape.SetInParent()
    for size in sizes:
        shape.dim.add(size=size)
