"""Makes a model's manifest: names, locations, sizes, and what each entry point does with each variable."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tfaot.core import caller, dtypes, manifest, names, safetensors
from tfaot.core.errors import TfaotError, listed
from tfaot.export import bounds, verdict
from tfaot.export import config as configs
from tfaot.export.assemble import Entry, Whole
from tfaot.export.traced import Edge, shown
from tfaot.graph.attributes import dtype_name
from tfaot.graph.variables import VariableUse


@dataclasses.dataclass(frozen=True)
class Target:
    """What the target says about the class."""

    what: str
    """The model's file or folder, for messages."""
    cpp_class: str
    """Empty if it is named later."""
    named: bool
    """Whether it names entry points. If not, the only one is `Run`."""
    batch_sizes: tuple[int, ...]
    max_batch: int
    """The largest batch of the class; 0 if there is none."""
    buckets: Mapping[str, tuple[int, ...]]
    """Those of open sizes, by name."""
    edge: str
    """One of `dtypes.EDGES`."""
    unset: frozenset[str] = frozenset()
    """The variables for which the model has no value."""
    some_batched: bool = False
    """Whether entry points can have no batch, though others do."""

    def stored(self, dtype: str) -> str:
        """Maps a dtype to the one that the compiler sees at the edge."""
        return dtypes.BY_NAME[dtype].stored if self.edge == "cpp" else dtype


@dataclasses.dataclass(frozen=True)
class Described:
    """A model about which everything except its weights is known."""

    manifest: manifest.Manifest
    """Without the fields for weights and goldens: `frozen`, `random_state`, `calls`, `fingerprints`."""
    configs: tuple[Any, ...]
    """One for each entry point."""
    graph: graph_pb2.GraphDef
    """The given graph, plus the nodes that compute true sizes of outputs."""


def describe(target: Target, whole: Whole, uses: Sequence[Sequence[VariableUse]], frozen: Collection[str]) -> Described:
    """Gives every edge and variable its C++ name, variables their location in the file, and outputs their shapes.

    Args:
      target: what the BUILD file says.
      whole: the graph to compile. Edges have the dtypes and shapes that the user sees.
      uses: the variables of each entry point.
      frozen: the variables that have become constants.

    Raises:
      TfaotError: a variable can't be an argument, an output has no size, or an entry point can't have a batch.
    """
    fed = {use.shared_name: use for entry_uses in uses for use in entry_uses if use.shared_name not in frozen}
    _check_variables(target.what, list(fed.values()))
    called = _names(target, whole, list(fed))
    places = safetensors.layout(
        ((use.shared_name, dtypes.BY_ENUM[use.dtype].name, use.shape or ()) for use in fed.values()), aligned=True
    )
    # Whether any run writes a variable is known only after all entry points.
    variables = tuple(
        manifest.Variable(
            place.name,
            cpp_name,
            place.dtype,
            place.shape,
            target.stored(place.dtype),
            written=True,
            offset=place.offset,
            unset=place.name in target.unset,
        )
        for place, cpp_name in zip(places, called.variables, strict=True)
    )
    points = []
    for entry, names_, entry_uses in zip(whole.entries, called.entries, uses, strict=True):
        whole, point = _entry_point(target, whole, entry, names_, entry_uses, variables)
        points.append(point)
    written = {use.variable for point in points for use in point.variables if use.written}
    variables = tuple(
        dataclasses.replace(variable, written=index in written) for index, variable in enumerate(variables)
    )
    result = manifest.Manifest(
        format=manifest.FORMAT,
        tensorflow=tf.__version__,
        cpp_class=target.cpp_class.removeprefix("::"),
        entry_points=tuple(points),
        variables=variables,
        frozen=(),
        random_state="",
        max_batch=target.max_batch,
        calls=(),
        fingerprints=manifest.Fingerprints("", "", "", "", ""),
    )
    return Described(result, tuple(configs.infer(point, variables) for point in points), whole.graph)


@dataclasses.dataclass(frozen=True)
class _EntryNames:
    """C++ names of an entry point and of its edges."""

    entry: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class _Names:
    """C++ names of a class's members."""

    entries: tuple[_EntryNames, ...]
    variables: tuple[str, ...]


def _names(target: Target, whole: Whole, variables: Sequence[str]) -> _Names:
    """Gives each entry point, edge, and variable a unique member name."""
    labels = [entry.name for entry in whole.entries] if target.named else []
    many = len(whole.entries) > 1
    for entry in whole.entries:
        labels += [f"{entry.name}/{edge.label}" if many else edge.label for edge in (*entry.inputs, *entry.outputs)]
    # `Run` is an ordinary name if the target names its entry points.
    taken = names.MEMBERS - {"Run"} if target.named else names.MEMBERS
    class_name = names.split_class(target.cpp_class)[1] if target.cpp_class else ""
    unique = iter(names.unique_identifiers([*labels, *variables], taken=taken, class_name=class_name))
    own = [next(unique) for _ in whole.entries] if target.named else ["Run"]
    entries = tuple(
        _EntryNames(name, tuple(next(unique) for _ in entry.inputs), tuple(next(unique) for _ in entry.outputs))
        for entry, name in zip(whole.entries, own, strict=True)
    )
    return _Names(entries, tuple(unique))


def _entry_point(
    target: Target,
    whole: Whole,
    entry: Entry,
    called: _EntryNames,
    uses: Sequence[VariableUse],
    variables: tuple[manifest.Variable, ...],
) -> tuple[Whole, manifest.EntryPoint]:
    """Describes an entry point.

    Returns:
      The graph, plus the nodes that compute true sizes of its outputs, and the entry point.
    """
    inputs = tuple(
        manifest.Input(
            edge.name,
            cpp_name,
            dtype,
            bounds.sizes(edge, target.max_batch),
            target.stored(dtype),
            batched=None in (edge.shape or ()),
            axes=edge.axes,
        )
        for edge, cpp_name, dtype in (
            (edge, cpp_name, dtypes.BY_ENUM[edge.dtype].name)
            for edge, cpp_name in zip(entry.inputs, called.inputs, strict=True)
        )
    )
    indices = {variable.name: index for index, variable in enumerate(variables)}
    used = [use for use in uses if use.shared_name in indices]
    draft = manifest.EntryPoint(
        entry.name,
        called.entry,
        inputs,
        (),
        tuple(manifest.Use(indices[use.shared_name], use.written) for use in used),
        target.batch_sizes if not target.some_batched or any(tensor.batched for tensor in inputs) else (),
        tuple(
            manifest.OpenSize(cpp_name, target.buckets[edge.label])
            for edge, cpp_name in zip(entry.inputs, called.inputs, strict=True)
            if edge.open_size
        ),
    )
    _check_batch(target.what, draft, [variable.name for variable in variables])
    graph, outputs = bounds.outputs(
        whole.graph,
        entry.outputs,
        draft,
        variables,
        cpp_names=called.outputs,
        stored=target.stored,
        largest=target.max_batch,
        what=target.what,
        sources=whole.sources,
    )
    point = dataclasses.replace(draft, outputs=outputs)
    if doubtful := {use.shared_name for use in used if use.doubtful}:
        unchanged = verdict.unchanged(graph, configs.infer(point, variables), doubtful)
        point = dataclasses.replace(
            point,
            variables=tuple(
                dataclasses.replace(use, written=use.written and variables[use.variable].name not in unchanged)
                for use in point.variables
            ),
        )
    return dataclasses.replace(whole, graph=graph), point


def _check_batch(what: str, entry: manifest.EntryPoint, variables: Sequence[str]) -> None:
    """Checks that an entry point that is compiled for batches has one, and gives the same results when it runs in parts."""
    if not entry.batch_sizes:
        return
    asked = f"{what}: {caller.setting('batch_sizes', entry.batch_sizes)}"
    if not any(tensor.batched for tensor in entry.inputs):
        raise TfaotError(
            f"{asked}, and {entry.name} has no batch",
            exists="; ".join(f"{tensor.cpp_name} {list(tensor.shape)}" for tensor in entry.inputs) or "no inputs",
            do=f"leave the first dimension of its inputs open, or remove {caller.option('batch_sizes')}",
        )
    if written := [variables[use.variable] for use in entry.variables if use.written]:
        raise TfaotError(
            f"{asked}, and {entry.name} writes {len(written)} variable(s): {listed(written)}",
            exists="a batch runs in parts, and each part would write them",
            do="don't assign them in this entry point (for example, training = False), or remove "
            f"{caller.option('batch_sizes')} and fix the batch with {caller.option('dims')}",
        )


def check_dtypes(what: str, kind: str, tensors: Sequence[Edge]) -> None:
    """Checks that XLA accepts every dtype at the edge.

    Raises:
      TfaotError: XLA rejects some. The message lists them.
    """
    if refused := [edge for edge in tensors if edge.dtype not in dtypes.BY_ENUM]:
        raise TfaotError(
            f"{what}: {len(refused)} {kind}(s) have a dtype that the generated class doesn't support",
            exists="; ".join(
                f"{edge.label} {shown(edge.shape)}"
                + (f" at {edge.source}" if edge.source else "")
                + f" is {dtype_name(edge.dtype)}"
                for edge in refused
            ),
            do="cast to one of " + ", ".join(dtype.name for dtype in dtypes.ALL),
        )


def _check_variables(what: str, uses: Sequence[VariableUse]) -> None:
    for use in uses:
        if use.shape is None or min(use.shape, default=0) < 0:
            raise TfaotError(
                f"{what}: the shape of the variable {use.shared_name} isn't known at build time",
                exists=str(use.shape),
                do="create it with a fixed shape",
            )
        if use.dtype not in dtypes.BY_ENUM:
            raise TfaotError(
                f"{what}: the variable {use.shared_name} is {dtype_name(use.dtype)}, "
                "which the generated class doesn't support",
                do="use one of "
                + ", ".join(dtype.name for dtype in dtypes.ALL)
                + ", and cast the value after you read it",
            )
