"""The stage as a whole: opens the model, rewrites its graph, names everything, infers configs, and writes the outputs."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tensorflow.core.framework import graph_pb2

from tfaot.core import buckets, caller, fingerprint, manifest, names, safetensors
from tfaot.core.errors import TfaotError, listed
from tfaot.export import config as configs
from tfaot.export import describe, golden, gradients, initial, replicas, taps, user_config
from tfaot.export.assemble import Entry, Whole, assemble
from tfaot.export.batch_independence import check as rows
from tfaot.export.request import Request
from tfaot.export.rewrites import clone_shared_functions, edges, freeze, least_sizes, lists, narrow, open_size, seeds
from tfaot.export.rewrites.random import state
from tfaot.export.traced import Array, Dims, Function, Source, check_resources
from tfaot.graph import structure
from tfaot.graph.names import tensor_name
from tfaot.graph.ops import functions_of
from tfaot.graph.variables import VariableUse, variable_uses


def export(request: Request) -> None:
    """Writes graph, configs, manifest, variables, golden inputs, and the map from nodes to source lines.

    Raises:
      TfaotError: the class name, the user's code, its model, an attribute of the target, or the user's config is
        invalid.
    """
    what = request.model.path
    if request.cpp_class:
        names.split_class(request.cpp_class)
    _check(request)
    largest = request.max_batch or max(request.batch_sizes, default=0)
    source = request.model.open()
    wanted = request.entry_points or (("Run", source.default_entry_point),)
    own_functions, functions = _functions(request, source, wanted)
    golden_inputs, calls = golden.inputs_and_calls(
        source,
        functions,
        dict(wanted),
        what=what,
        steps=request.golden_steps,
        calls=request.golden_calls,
        largest=largest,
        buckets=request.buckets,
    )
    rewritten = _rewritten(request, source, functions, largest)
    own_graph = _own_graph(request, own_functions, rewritten) if request.sizes and not request.taps else None
    whole, constants = rewritten.whole, rewritten.constants
    target = describe.Target(
        what,
        request.cpp_class,
        bool(request.entry_points),
        request.batch_sizes,
        largest,
        request.buckets,
        request.edge,
        rewritten.unset,
        request.some_batched,
    )
    described = describe.describe(target, whole, rewritten.uses, constants)
    points = zip(described.manifest.entry_points, functions, strict=True)
    result = dataclasses.replace(
        described.manifest,
        weights=rewritten.weights,
        entry_points=tuple(
            dataclasses.replace(entry, requirements=open_size.requirements(function, [*request.buckets]))
            for entry, function in points
        ),
    )
    inferred = described.configs
    result = dataclasses.replace(
        result,
        replicas=replicas.count(described.graph, result, whole.sources, what, wanted=request.model.replicas),
        gradients=gradients.pairs(described.graph, result, [(entry.inputs, entry.outputs) for entry in whole.entries]),
    )
    for entry in result.entry_points:
        if entry.batch_sizes and not request.rows_independent:
            graph, of_size = described.graph, entry
            if entry.sizes:
                graph, of_size = _of_largest(graph, entry)
            rows.check(graph, of_size, result.variables, what=what, sources=whole.sources)
    if rewritten.user is not None:
        inferred = user_config.override(inferred, rewritten.user, path=rewritten.user_path)
        result = user_config.reread(result, inferred, rewritten.user_path)
    graph = described.graph.SerializeToString(deterministic=True)
    texts = [configs.to_text(config) for config in inferred]
    shas = {name: fingerprint.of_value(value) for name, value in constants.items()}
    result = dataclasses.replace(
        result,
        frozen=tuple(
            manifest.Frozen(name, str(value.dtype), value.shape, shas[name]) for name, value in constants.items()
        ),
        random_state=rewritten.random_state,
        calls=calls,
        fingerprints=_fingerprints(result, described.graph, frozen=fingerprint.of_values(shas) if shas else ""),
    )
    fed = {variable.name: rewritten.values[variable.name] for variable in result.variables}
    inputs = {"": golden_inputs} | golden.of_others(
        source, functions, dict(wanted), what=what, calls=calls, replicas=result.replicas
    )
    _write(request, result, graph, texts, whole.sources, fed, inputs, rewritten.before, own_graph)


def _fingerprints(result: manifest.Manifest, graph: graph_pb2.GraphDef, *, frozen: str) -> manifest.Fingerprints:
    runs = [(entry.feeds, entry.fetches) for entry in result.entry_points]
    identity = structure.structure(graph, runs, [variable.name for variable in result.variables])
    return manifest.Fingerprints(
        graph=identity.graph,
        shapes=fingerprint.shapes(result, identity.shapes),
        constants=identity.constants,
        config=fingerprint.config(result),
        frozen=frozen,
    )


def _functions(
    request: Request, source: Source, wanted: Sequence[tuple[str, str]]
) -> tuple[list[Function], list[Function]]:
    """Returns the entry points with the target's names: as the model has them, and with their open size.

    Checks that what the target says about inputs is used.
    """
    what = request.model.path
    named = {
        label: {axis: size for axis, size in enumerate(shape) if isinstance(size, str)}
        for label, shape in request.dims.items()
    }
    dims = Dims(request.dims_with({}), bool(request.batch_sizes), named)
    functions = [dataclasses.replace(source.function(own_name, dims), name=name) for name, own_name in wanted]
    for function, (_, own_name) in zip(functions, wanted, strict=True):
        check_resources(
            own_name,
            function.resources.values(),
            do="look up values where you prepare its inputs; or leave tables to TensorFlow: tf_aot_clusters compiles the rest",
        )
        _check_calls(what, function)
    labels = {edge.label for function in functions for edge in function.inputs}
    dims.check_used(what, labels)
    functions = [least_sizes.required(function, dims, request.buckets) for function in functions]
    own = functions
    functions = [open_size.opened(function, dims, request.buckets, what) for function in functions]
    if unused := sorted(set(request.model.signature) - labels):
        raise TfaotError(
            f"{what}: {caller.option('signature')} names {listed(unused)}, but no entry point has a parameter with this name",
            exists=listed(sorted(labels)),
            do="name parameters, or inputs by the names listed here",
        )
    describe.check_dtypes(what, "input", [edge for function in functions for edge in function.inputs])
    describe.check_dtypes(what, "output", [edge for function in functions for edge in function.outputs])
    return own, functions


def _of_largest(
    graph: graph_pb2.GraphDef, entry: manifest.EntryPoint
) -> tuple[graph_pb2.GraphDef, manifest.EntryPoint]:
    """Returns the graph and the entry point for inputs of the largest open sizes, which are then constants."""
    largest = entry.buckets[-1]
    indices = {tensor_name(tensor.name)[0]: entry.open_size(tensor) for tensor in entry.inputs}
    sizes = {name: largest[index] for name, index in indices.items() if index is not None}
    shapes = {
        tensor_name(tensor.name)[0]: {axis.dim: largest[axis.size] for axis in tensor.axes} for tensor in entry.inputs
    }
    others = tuple(tensor for tensor in entry.inputs if entry.open_size(tensor) is None)
    return open_size.fixed(graph, sizes, shapes), dataclasses.replace(entry, inputs=others, sizes=())


def _check_calls(what: str, function: Function) -> None:
    """Checks that a graph has the functions that its nodes call. TensorFlow imports some graphs without them."""
    library = {definition.signature.name for definition in function.graph.library.function}
    bodies = [function.graph.node, *(definition.node_def for definition in function.graph.library.function)]
    called = {
        call.name: f"{node.name} ({node.op})" for body in bodies for node in body for _, call in functions_of(node)
    }
    if missing := sorted(set(called) - library - {""}):
        raise TfaotError(
            f"{what}: the graph lacks {len(missing)} function(s) that its nodes call",
            exists=listed([f"{name}, called by {called[name]}" for name in missing]),
            do="save the whole graph, with its library of functions",
        )


@dataclasses.dataclass(frozen=True)
class _Rewritten:
    """A model in the form in which it is compiled."""

    whole: Whole
    uses: Sequence[Sequence[VariableUse]]
    """The variables of each entry point, before some became constants."""
    values: Mapping[str, Array]
    """Initial values of all variables."""
    constants: Mapping[str, Array]
    """The frozen variables."""
    weights: manifest.Weights
    before: Mapping[str, Array]
    """The weights that have been rounded, before that."""
    unset: frozenset[str]
    """The variables for which the model has no value."""
    random_state: str
    """The variable that random ops draw from. Empty if there is none."""
    user: Any
    """The user's part of the config, or None."""
    user_path: str
    """The file that contains it."""


def _rewritten(request: Request, source: Source, functions: Sequence[Function], largest: int) -> _Rewritten:
    """Joins the entry points into one graph, and rewrites it step by step."""
    what = request.model.path
    whole = assemble(functions)
    if request.taps:
        whole = taps.tapped(whole, request.taps, what=what, batch=largest)
    lists.check(whole.graph, whole.sources, what)
    whole, random_state = _seeded(whole, what)
    uses = [variable_uses(whole.of(entry)) for entry in whole.entries]
    uses_by_name = {use.shared_name: use for entry_uses in uses for use in entry_uses}
    written = {use.shared_name for entry_uses in uses for use in entry_uses if use.written}
    one = max(len(several) for several in (functions, request.batch_sizes, *request.buckets.values())) == 1
    user, user_path = _user_config(request, source)
    frozen = freeze.chosen(list(uses_by_name), written, request.frozen, default_frozen=one and not written)
    unset = frozenset(getattr(source, "unset", ())) if request.weights is None else frozenset[str]()
    if request.frozen is None and user is not None:
        frozen -= {variable.node_name for variable in user.variable}  # a configured variable is fed
    elif request.frozen is None and request.model.jax is not None:
        frozen -= unset
    elif refused := sorted(frozen & unset):
        raise TfaotError(
            f"{what}: {caller.option('frozen')} names {len(refused)} variable(s) for which the model has no value",
            exists=listed(refused),
            do=f"add a checkpoint or weights with their values, or take them out of "
            f"{caller.option('frozen')}: callers then set them",
        )
    if user is not None:
        # The entries of a graph's own config that no output needs have no effect either.
        own = request.model.graph is not None or request.model.config is None
        without = {
            v.node_name for v in user.variable if v.node_name in frozen or (own and v.node_name not in uses_by_name)
        }
        user = user_config.without_variables(user, without)
    values = initial.values(source, request.weights, list(uses_by_name.values()), random_state)
    constants = {name: values[name] for name in uses_by_name if name in frozen}
    whole, weights, before = _with_values(request, whole, uses, constants)
    return _Rewritten(whole, uses, values, constants, weights, before, unset, random_state or "", user, user_path)


def _seeded(whole: Whole, what: str) -> tuple[Whole, str | None]:
    """Returns the model with random ops that draw from a variable, and its name, or None if there are no such ops."""
    fetches = [name for entry in whole.entries for name in entry.fetches]
    whole = dataclasses.replace(whole, graph=seeds.without_unused(whole.graph, fetches))
    seeded = state.seeded(whole.graph, [entry.fetches for entry in whole.entries])
    if seeded.left:
        raise state.refusal(what, seeded.left, whole.sources)
    return dataclasses.replace(whole, graph=seeded.graph), seeded.variable


def _with_values(
    request: Request, whole: Whole, uses: Sequence[Sequence[VariableUse]], constants: Mapping[str, Array]
) -> tuple[Whole, manifest.Weights, dict[str, Array]]:
    """Freezes and rounds weights, and converts dtypes at the edge. Returns rounded weights as they were before, too."""
    what = request.model.path
    whole = dataclasses.replace(whole, graph=freeze.freeze(whole.graph, constants, whole.sources))
    if request.edge == "cpp":
        whole = _stored(whole, what)
    whole = dataclasses.replace(whole, graph=clone_shared_functions.clone_shared_functions(whole.graph, whole.sources))
    wanted = narrow.wanted(request.weights_dtype, request.weights_tolerance)
    if wanted is None:
        return whole, manifest.Weights("", 0.0, ()), {}
    fetches = [name for entry in whole.entries for name in entry.fetches]
    rounded = narrow.narrowed(whole.graph, fetches, wanted.dtype, uses, constants, what)
    weights = manifest.Weights(wanted.dtype, wanted.tolerance, tuple(rounded.before))
    return dataclasses.replace(whole, graph=rounded.graph), weights, dict(rounded.before)


def _own_graph(request: Request, functions: Sequence[Function], rewritten: _Rewritten) -> bytes:
    """Returns the model's graph without anything that is there for its open size, for TensorFlow to run.

    Its inputs have any size, and it ignores the size that is one more input of the compiled graph.
    """
    whole, _ = _seeded(assemble(functions, spell_out=False), request.model.path)
    whole, _, _ = _with_values(request, whole, rewritten.uses, rewritten.constants)
    for entry in rewritten.whole.entries:
        for edge in entry.inputs:
            if edge.open_size:
                placeholder = whole.graph.node.add(name=tensor_name(edge.name)[0], op="Placeholder")
                placeholder.attr["dtype"].type = edge.dtype
                placeholder.attr["shape"].shape.SetInParent()
    serialized: bytes = whole.graph.SerializeToString(deterministic=True)
    return serialized


def _user_config(request: Request, source: Source) -> tuple[Any, str]:
    """Returns the user's part of the config that hasn't been used yet, or None, and its file."""
    if request.model.graph is not None or request.model.config is None:
        return getattr(source, "variable_config", None), request.model.config or ""
    return user_config.read(request.model.config), request.model.config


def _check(request: Request) -> None:
    """Checks for contradictory attributes before anything runs.

    Raises:
      TfaotError: attributes contradict each other.
    """
    buckets.check(request.dims, request.sizes, request.batch_sizes)
    if request.golden_steps < 1:
        raise TfaotError(caller.setting("golden_steps", request.golden_steps), do="verify at least one step")
    sizes = request.batch_sizes
    largest = caller.setting("max_batch", request.max_batch)
    example = caller.setting("batch_sizes", [1, 8, 64])
    if sizes and (min(sizes) < 1 or list(sizes) != sorted(set(sizes))):
        raise TfaotError(
            caller.setting("batch_sizes", sizes),
            do=f"use sizes of at least 1, in ascending order: {sorted({max(1, s) for s in sizes})}",
        )
    if sizes and 0 < request.max_batch < sizes[-1]:
        raise TfaotError(
            f"{largest}, and {caller.setting('batch_sizes', sizes)}",
            exists="code for a larger batch than the class ever gets",
            do=f"use sizes up to {request.max_batch}, or remove {caller.option('max_batch')}, which then defaults to {sizes[-1]}",
        )
    if request.max_batch and not sizes:
        raise TfaotError(
            f"{largest} without {caller.option('batch_sizes')}", do=f"set the sizes to compile for: {example}"
        )
    if request.rows_independent and not sizes:
        raise TfaotError(
            f"{caller.setting('rows_independent', True)} without {caller.option('batch_sizes')}",
            exists=f"no {caller.option('batch_sizes')}, so nothing is split",
            do=f"remove {caller.option('rows_independent')}, or set the sizes to compile for: {example}",
        )
    cpp_names = [cpp_name for cpp_name, _ in request.entry_points]
    if twice := [name for name, count in Counter(cpp_names).items() if count > 1]:
        raise TfaotError(
            f"{caller.option('entry_points')} names {listed(twice)} more than once",
            do="give each entry point its own name",
        )
    if unknown := [call for call in request.golden_calls if call not in (cpp_names or ["Run"])]:
        raise TfaotError(
            f"{caller.option('golden_calls')} names {listed(sorted(set(unknown)))}, which isn't an entry point",
            exists=listed(cpp_names or ["Run"]),
            do=f"name some of {caller.the('entry_points')}",
        )


def _stored(whole: Whole, what: str) -> Whole:
    """Converts dtypes that the compiler refuses at the edge."""
    entries = []
    graph = whole.graph
    for entry in whole.entries:
        graph, inputs, outputs = edges.stored(graph, entry.inputs, entry.outputs)
        entries.append(Entry(entry.name, inputs, outputs))
    graph = edges.stored_variables(graph, whole.sources, what)
    return Whole(graph, tuple(entries), whole.sources)


def _write(
    request: Request,
    result: manifest.Manifest,
    graph: bytes,
    texts: Sequence[str],
    sources: Mapping[str, str],
    fed: Mapping[str, Array],
    golden_inputs: Mapping[str, Sequence[Sequence[Array] | None]],
    before: Mapping[str, Array],
    own_graph: bytes | None,
) -> None:
    with open(request.out_graph, "wb") as file_:
        file_.write(graph)
    for path, text in zip(request.out_configs, texts, strict=True):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    with open(request.out_manifest, "w", encoding="utf-8") as file:
        file.write(result.to_json())
    with open(request.out_variables, "wb") as file_:
        safetensors.write(file_, fed, aligned=True)
    with open(request.out_golden_inputs, "wb") as file_:
        safetensors.write(
            file_,
            {
                f"step{step}/{tensor.cpp_name}{replica}": value
                for replica, inputs in golden_inputs.items()
                for step, (call, values) in enumerate(zip(result.calls, inputs, strict=True))
                if values is not None
                for tensor, value in zip(result.entry_point(call.entry_point).inputs, values, strict=True)
            }
            # The verify stage alone needs these, too.
            | {manifest.UNROUNDED + name: value for name, value in before.items()}
            | ({} if own_graph is None else {manifest.OWN_GRAPH: np.frombuffer(own_graph, np.uint8)}),
        )
    with open(request.out_sources, "w", encoding="utf-8") as file:
        json.dump(dict(sources), file, indent=0, sort_keys=True)
        file.write("\n")
    with open(request.out_weights, "w", encoding="utf-8") as file:
        weights = fingerprint.of_values({name: fingerprint.of_value(value) for name, value in fed.items()})[:16]
        file.write(fingerprint.weights_assembly(result.cpp_class, weights) if result.cpp_class else weights + "\n")
