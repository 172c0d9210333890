"""Sizes of outputs: as TensorFlow infers them, or else as the compiler determines them, or their bounds."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tfaot.core import caller, dtypes, manifest, refusals
from tfaot.core.errors import TfaotError
from tfaot.export import config as configs
from tfaot.export import verdict
from tfaot.export.rewrites import edges as conversions
from tfaot.export.rewrites import open_size
from tfaot.export.traced import Edge, Shape, shown
from tfaot.graph import collectives, convolutions_3d, fourier, linear
from tfaot.graph.calls import inline_calls
from tfaot.graph.names import tensor_name
from tfaot.graph.program import Program


def sizes(edge: Edge, largest: int) -> tuple[int, ...]:
    """Returns the shape of an edge. An open dimension is the batch, at its largest size."""
    return tuple(largest if size is None else size for size in edge.shape or ())


def outputs(
    graph: graph_pb2.GraphDef,
    edges: Sequence[Edge],
    draft: manifest.EntryPoint,
    variables: Sequence[manifest.Variable],
    *,
    cpp_names: Sequence[str],
    stored: Callable[[str], str],
    largest: int,
    what: str,
    sources: Mapping[str, str],
) -> tuple[graph_pb2.GraphDef, tuple[manifest.Output, ...]]:
    """Gives outputs their sizes. Those whose true size is known only at run time get bounds, and a fetch for the size.

    Args:
      graph: the whole graph. Nodes that compute sizes are added to a copy.
      edges: the outputs, with the dtypes that the user sees and the graph's own shapes.
      draft: the entry point without its outputs.
      variables: the manifest's variables.
      cpp_names: C++ names of the outputs.
      stored: maps a dtype to the one that the compiler sees.
      largest: the largest batch of the class; 0 if there is none.
      what: names the model, for messages.
      sources: `file:line` by node, for messages.

    Raises:
      TfaotError: the compiler can't bound a size, or an output has no batch although the inputs have one.
    """
    if draft.batch_sizes and draft.sizes:
        shapes = _sized_rows(graph, edges, draft, variables, stored, largest, what, sources)
    elif draft.batch_sizes:
        rows = _rows(graph, edges, draft, variables, stored, what, sources)
        shapes = [((largest, *row), False) for row in rows]
    elif all(edge.shape is not None and None not in edge.shape for edge in edges):
        shapes = [(sizes(edge, 0), False) for edge in edges]
    else:
        inferred = _found(graph, edges, draft, variables, stored, what, sources)
        shapes = [
            (shape, bounded) if edge.shape is None or None in edge.shape else (sizes(edge, 0), False)
            for edge, (shape, bounded) in zip(edges, inferred, strict=True)
        ]
    used = {node.name for node in graph.node}
    result = []
    for edge, cpp_name, (shape, bounded) in zip(edges, cpp_names, shapes, strict=True):
        dtype = dtypes.BY_ENUM[edge.dtype].name
        graph, size = conversions.with_size(graph, edge, used) if bounded else (graph, "")
        batched = bool(draft.batch_sizes)
        result.append(manifest.Output(edge.name, cpp_name, dtype, shape, stored(dtype), batched=batched, size=size))
    return graph, tuple(result)


def _rows(
    graph: graph_pb2.GraphDef,
    edges: Sequence[Edge],
    draft: manifest.EntryPoint,
    variables: Sequence[manifest.Variable],
    stored: Callable[[str], str],
    what: str,
    sources: Mapping[str, str],
) -> list[tuple[int, ...]]:
    """Returns the shape of one row of each output.

    Raises:
      TfaotError: an output's number of rows differs from the inputs', or its rows' shape depends on that number.
    """
    for edge in edges:
        if edge.shape is not None and edge.shape[:1] != (None,):
            raise _without_batch(edge, shown(edge.shape), draft, what)
    # Larger than any size, so that no size equals the batch by chance.
    tried = (*draft.batch_sizes, draft.batch_sizes[-1] + 1)
    inferred = {batch: _inferred(graph, edges, draft, batch, stored, what) for batch in tried}
    asked: dict[int, list[tuple[tuple[int, ...], bool]]] = {}

    def ask(batch: int) -> list[tuple[tuple[int, ...], bool]]:
        if batch not in asked:
            only = dataclasses.replace(draft, batch_sizes=(batch,))
            asked[batch] = _found(graph, edges, only, variables, stored, what, sources)
        return asked[batch]

    rows = []
    for index, edge in enumerate(edges):
        shapes: dict[int, tuple[int, ...]] = {}
        for batch in tried:
            shape, bounded = inferred[batch][index], False
            if shape is None or None in shape:
                if edge.shape is not None and None not in edge.shape[1:] and batch != draft.batch_sizes[-1]:
                    continue  # one size is enough when the compiler must answer
                shape, bounded = ask(batch)[index]
            sizes = tuple(size or 0 for size in shape)
            if bounded or sizes[:1] != (batch,):
                most = "at most " if bounded else ""
                raise _without_batch(edge, f"{most}{shown(sizes)} for a batch of {batch}", draft, what)
            shapes[batch] = sizes
        first, *others = shapes.items()
        for batch, shape in others:
            if shape[1:] != first[1][1:]:
                both = f"{shown(first[1])} for a batch of {first[0]}, {shown(shape)} for one of {batch}"
                raise _without_batch(edge, both, draft, what)
        rows.append(first[1][1:])
    return rows


def _sized_rows(
    graph: graph_pb2.GraphDef,
    edges: Sequence[Edge],
    draft: manifest.EntryPoint,
    variables: Sequence[manifest.Variable],
    stored: Callable[[str], str],
    largest: int,
    what: str,
    sources: Mapping[str, str],
) -> list[tuple[tuple[int, ...], bool]]:
    """Returns the shape of each output of an entry point with rows and open sizes, and whether its rows have bounds.

    Raises:
      TfaotError: an output's number of rows differs from the inputs'.
    """
    batches = (draft.batch_sizes[-1], draft.batch_sizes[-1] + 1)
    inferred = [_inferred(graph, edges, draft, batch, stored, what) for batch in batches]
    asked: list[tuple[tuple[int, ...], bool]] | None = None
    shapes = []
    for index, edge in enumerate(edges):
        for batch, inferred_shapes in zip(batches, inferred, strict=True):
            shape = inferred_shapes[index]
            if shape is not None and (not shape or shape[0] not in (batch, None)):
                raise _without_batch(edge, f"{shown(shape)} for a batch of {batch}", draft, what)
        shape, bounded = inferred[0][index], False
        if shape is None or None in shape:
            asked = asked or _found(graph, edges, draft, variables, stored, what, sources)
            shape, bounded = asked[index]
            if shape[:1] != batches[:1]:
                raise _without_batch(edge, f"{shown(shape)} for a batch of {batches[0]}", draft, what)
        shapes.append(((largest, *(size or 0 for size in shape[1:])), bounded))
    return shapes


def _inferred(
    graph: graph_pb2.GraphDef,
    edges: Sequence[Edge],
    draft: manifest.EntryPoint,
    batch: int,
    stored: Callable[[str], str],
    what: str,
) -> list[Shape | None]:
    """Returns the outputs' shapes for this batch size, as far as TensorFlow knows them."""
    sized = graph_pb2.GraphDef()
    sized.CopyFrom(graph)
    batched = {tensor_name(tensor.name)[0] for tensor in draft.inputs if tensor.batched}
    for node in sized.node:
        if node.name in batched:
            node.attr["shape"].shape.dim[0].size = batch
    with tf.Graph().as_default() as imported:
        try:
            tf.import_graph_def(sized, name="")
        except ValueError as error:
            raise TfaotError(
                f"{what}: {draft.name} can't take a batch of {batch}",
                details=str(error),
                exists=f"{caller.setting('batch_sizes', draft.batch_sizes)}: a batch of any size runs in parts",
                do=f"compute each row independently, or remove {caller.option('batch_sizes')}",
            ) from None
        tensors = [imported.get_tensor_by_name(edge.name).shape for edge in edges]
    return [
        None if tensor.rank is None else _as_seen(tuple(tensor.as_list()), edge, stored)
        for tensor, edge in zip(tensors, edges, strict=True)
    ]


def _as_seen(shape: Shape, edge: Edge, stored: Callable[[str], str]) -> Shape:
    """Returns the shape as the user sees it. The stored value can have an extra last dimension."""
    dtype = dtypes.BY_ENUM[edge.dtype]
    return shape[:-1] if stored(dtype.name) != dtype.name and dtype.parts > 1 else shape


def _without_batch(edge: Edge, shape: str, draft: manifest.EntryPoint, what: str) -> TfaotError:
    return TfaotError(
        f"{what}: the output {edge.label} of {draft.name} has no batch: it is {shape}",
        exists=f"{caller.setting('batch_sizes', draft.batch_sizes)}: the rules concatenate results along their first dimension",
        do=f"return a value for each row, or remove {caller.option('batch_sizes')}",
    )


def _found(
    graph: graph_pb2.GraphDef,
    edges: Sequence[Edge],
    draft: manifest.EntryPoint,
    variables: Sequence[manifest.Variable],
    stored: Callable[[str], str],
    what: str,
    sources: Mapping[str, str],
) -> list[tuple[tuple[int, ...], bool]]:
    """Returns the compiler's result for the outputs: sizes or their bounds, and whether they are bounds."""
    rough = tuple(
        manifest.Output(edge.name, f"o{index}", "float32", (), "float32", batched=False, size="")
        for index, edge in enumerate(edges)
    )
    config = configs.infer(dataclasses.replace(draft, outputs=rough), variables)
    answer = verdict.results(graph, config)
    if isinstance(answer, str) and (lowered := _lowered(Program.of(graph, config), what, sources)) is not None:
        answer = verdict.results(lowered, config)
    if not isinstance(answer, str):
        results = [
            (tuple(size or 0 for size in _as_seen(result.shape, edge, stored)), result.bounded)
            for result, edge in zip(answer, edges, strict=True)
        ]
        forgotten = [
            not bounded and (edge.shape is None or None in edge.shape)
            for (_, bounded), edge in zip(results, edges, strict=True)
        ]
        if draft.sizes and any(forgotten):  # XLA forgets sizes that TensorFlow infers
            inferred = _of_sizes(graph, edges, draft, stored) or results
            results = [
                other if forgot else own for own, other, forgot in zip(results, inferred, forgotten, strict=True)
            ]
        return results
    if draft.sizes and (shapes := _of_sizes(graph, edges, draft, stored)):
        return shapes
    unknown = [edge for edge in edges if edge.shape is None or None in edge.shape]
    with tempfile.TemporaryDirectory() as folder:
        origin = _Origin(os.path.join(folder, "graph"), os.path.join(folder, "sources"))
        with open(origin.graph, "wb") as file_:
            file_.write(graph.SerializeToString())
        with open(origin.sources, "w", encoding="utf-8") as file:
            json.dump(dict(sources), file)
        raise refusals.explained(answer, origin, what) or TfaotError(
            f"{what}: the compiler can't determine the size of {len(unknown)} output(s) of {draft.name}",
            details=refusals.unknown(answer, origin),
            exists="; ".join(
                f"{edge.label} {shown(edge.shape)}" + (f" at {edge.source}" if edge.source else "") for edge in unknown
            ),
            do="make sizes depend only on constants and the inputs' shapes, not on values that are known later",
        )


def _of_sizes(
    graph: graph_pb2.GraphDef, edges: Sequence[Edge], draft: manifest.EntryPoint, stored: Callable[[str], str]
) -> list[tuple[tuple[int, ...], bool]] | None:
    """Returns the largest sizes that TensorFlow infers for a run's, and whether they differ; or None if it doesn't know them.

    The compile stage can compile some models that XLA refuses, where a proof follows the sizes.
    """
    batch = draft.batch_sizes[-1] if draft.batch_sizes else 0
    largest = draft.buckets[-1]
    tried = [
        {
            *range(1, min(size, _EACH) + 1),
            *range(size, max(size - _EACH, 0), -1),
            *range(size, 0, -(size // _EACH or 1)),
        }
        for size in largest
    ]
    points = {largest, *zip(*(itertools.islice(itertools.cycle(sorted(own)), 4 * _EACH) for own in tried), strict=True)}
    points |= {(*largest[:place], size, *largest[place + 1 :]) for place, own in enumerate(tried) for size in own}
    shapes: list[list[tuple[int, ...]]] = []
    for sizes in sorted(points):
        fixed = {}
        for tensor in draft.inputs:
            index = draft.open_size(tensor)
            node = tensor_name(tensor.name)[0]
            if index is not None:
                fixed[node] = sizes[index]
        dims = {
            tensor_name(tensor.name)[0]: {axis.dim: sizes[axis.size] for axis in tensor.axes}
            | ({0: batch} if tensor.batched else {})
            for tensor in draft.inputs
        }
        with tf.Graph().as_default() as imported:
            try:
                tf.import_graph_def(open_size.fixed(graph, fixed, dims), name="")
            except ValueError:
                continue  # the model isn't for these sizes
            inferred = [imported.get_tensor_by_name(edge.name).shape for edge in edges]
        if not all(shape.is_fully_defined() for shape in inferred):
            return None
        seen = (_as_seen((*shape.as_list(),), edge, stored) for shape, edge in zip(inferred, edges, strict=True))
        shapes.append([tuple(size or 0 for size in shape) for shape in seen])
    if not shapes:
        return None
    return [((*map(max, zip(*own, strict=True)),), len({*own}) > 1) for own in zip(*shapes, strict=True)]


_EACH = 8
"""How many of the smallest sizes, of the largest, and of those between are tried."""


def _lowered(program: Program, what: str, sources: Mapping[str, str]) -> graph_pb2.GraphDef | None:
    """Returns the graph without ops that XLA refuses and the compile stage rewrites, or None if it has none.

    Raises:
      TfaotError: the compile stage has code only for fixed sizes.
    """
    inline_calls(program)
    count = 0
    for rewrite in (convolutions_3d, fourier, linear, collectives):
        try:
            count += rewrite.for_xla(program)
        except TfaotError as error:
            name = error.asked.partition(": ")[0]
            place = sources.get(program.origins.get(name, name), "")
            details = f"{name!r} at {place}" if place else ""
            raise TfaotError(f"{what}: {error.asked}", details=details, exists=error.exists, do=error.do) from None
    return program.graph if count else None


@dataclasses.dataclass(frozen=True)
class _Origin:
    """A graph and its sources as files; see `refusals.Origin`."""

    graph: str
    sources: str
