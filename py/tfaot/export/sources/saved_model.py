"""Models as SavedModels, from TensorFlow 2 (`saved_objects`) and TensorFlow 1 (here): a folder, tags, and signatures."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import numpy as np
from google.protobuf import message
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tensorflow.python.saved_model import constants, loader_impl, signature_constants

from tfaot.core import caller
from tfaot.core.errors import TfaotError, listed
from tfaot.export.sources import debug_info as debug
from tfaot.export.sources.checkpoint import Checkpoint
from tfaot.export.sources.graph_def import wanted_of
from tfaot.export.sources.ref_variables import name_variables
from tfaot.export.sources.saved_objects import SavedObjects
from tfaot.export.sources.subgraph import Feed, Fetch, function_of_graph
from tfaot.export.traced import Array, Dims, Edge, Function, Shape

_DEFAULT = signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY
_INIT_OP = constants.INIT_OP_SIGNATURE_KEY
_TRAIN_OP = constants.TRAIN_OP_SIGNATURE_KEY
_TRAINING = signature_constants.SUPERVISED_TRAIN_METHOD_NAME

TAGS = ("serve",)
"""The tags of most SavedModels."""


class _Model(Protocol):
    """The interface that both kinds of SavedModels implement; see `traced.Source`."""

    @property
    def signatures(self) -> tuple[str, ...]: ...

    @property
    def functions(self) -> tuple[str, ...]: ...

    def function(self, entry_point: str, dims: Dims) -> Function: ...

    def initial(self, names: Collection[str]) -> Mapping[str, Array]: ...


class SavedModelSource:
    """A SavedModel. Its entry points are its signatures and, in TensorFlow 2, also the functions of the saved object."""

    def __init__(self, folder: str, *, tags: Sequence[str] = TAGS) -> None:
        """Reads everything except weights, which are read on demand.

        Args:
          folder: the folder that contains `saved_model.pb`.
          tags: all tags of the wanted meta graph, in any order. Empty if there is only one meta graph.

        Raises:
          TfaotError: there is no SavedModel, or none with these tags.
        """
        self._folder = folder
        meta_graph = _with_tags(folder, _read(folder), tags)
        info = os.path.join(folder, constants.DEBUG_DIRECTORY, constants.DEBUG_INFO_FILENAME_PB)
        sources = debug.sources(debug.read(info)) if os.path.exists(info) else {}
        self._model: _Model
        if meta_graph.HasField("object_graph_def"):
            self._model = SavedObjects(folder, meta_graph, sources)
        else:
            self._model = _SavedGraph(folder, meta_graph, sources)

    @property
    def entry_points(self) -> tuple[str, ...]:
        """The signatures, `serving_default` first, then functions of the saved object; see `traced.Source`."""
        return tuple(dict.fromkeys([*self._model.signatures, *self._model.functions]))

    @property
    def default_entry_point(self) -> str:
        """`serving_default`, or else the only signature, or without signatures the only function.

        Raises:
          TfaotError: there is no `serving_default`, and there isn't exactly one other.
        """
        names = self._model.signatures or self._model.functions
        if names and (names[0] == _DEFAULT or len(names) == 1):
            return names[0]
        raise TfaotError(
            f"{self._folder}: the SavedModel has no default function",
            exists=f"it has no signature {_DEFAULT}; it has {listed(self.entry_points)}",
            do="name the functions for the class: " + caller.setting("entry_points", [names[0]])
            if names
            else "save the model with a signature: tf.saved_model.save(model, folder, signatures=…)",
        )

    def function(self, entry_point: str, dims: Dims) -> Function:
        """Returns one entry point; see `traced.Source`."""
        return self._model.function(entry_point, dims)

    def initial(self, names: Collection[str]) -> Mapping[str, Array]:
        """Returns the saved values; see `traced.Source`."""
        return self._model.initial(names)

    def golden(
        self, entry_point: str, inputs: Sequence[Edge], step: int, rng: np.random.Generator
    ) -> Sequence[Array] | None:
        """Returns None, because a SavedModel says nothing about its inputs' values."""
        return None


def _read(folder: str) -> saved_model_pb2.SavedModel:
    if not os.path.isdir(folder):
        raise TfaotError(
            f"{folder} isn't a folder, so it isn't a SavedModel",
            do="use the folder that contains saved_model.pb"
            + (": a filegroup of its files, or the target that makes it" if caller.in_bazel() else ""),
        )
    names = sorted(os.listdir(folder))
    if not any(name.startswith("saved_model.") for name in names):
        raise TfaotError(
            f"{folder} doesn't contain a saved_model.pb",
            exists=listed(names),
            do="use the folder that does, including its variables/",
        )
    try:
        return loader_impl.parse_saved_model(folder)
    except (OSError, message.DecodeError) as error:
        raise TfaotError(
            f"{folder} contains a saved_model.pb that TensorFlow can't read",
            details=str(error).replace(folder + os.sep, ""),
            do="save the model again; if the file is in Git LFS, check it out first",
        ) from None


def _with_tags(
    folder: str, saved_model: saved_model_pb2.SavedModel, tags: Sequence[str]
) -> meta_graph_pb2.MetaGraphDef:
    graphs = list(saved_model.meta_graphs)
    if not tags and len(graphs) == 1:
        return graphs[0]
    for graph in graphs:
        if set(graph.meta_info_def.tags) == set(tags):
            return graph
    raise TfaotError(
        f"{folder} contains no graph with the tags {list(tags)}",
        exists=listed([str(list(graph.meta_info_def.tags)) for graph in graphs]),
        do="list all of a graph's tags: " + caller.setting("saved_model_tags", ["TAG", "TAG"]),
    )


class _SavedGraph:
    """A TensorFlow 1 SavedModel: a single graph, with signatures that name its tensors."""

    def __init__(self, folder: str, meta_graph: meta_graph_pb2.MetaGraphDef, sources: Mapping[str, str]) -> None:
        self._folder = folder
        self._meta_graph = meta_graph
        self._sources = sources
        self._variables = name_variables(meta_graph.graph_def)
        # Two of them name the initializer and the train op, but have no inputs.
        self._signatures = {k: v for k, v in meta_graph.signature_def.items() if k not in (_INIT_OP, _TRAIN_OP)}

    @property
    def signatures(self) -> tuple[str, ...]:
        """The signatures, `serving_default` first."""
        return tuple(sorted(self._signatures, key=lambda key: (key != _DEFAULT, key)))

    @property
    def functions(self) -> tuple[str, ...]:
        """Empty, because a graph has only signatures."""
        return ()

    def function(self, entry_point: str, dims: Dims) -> Function:
        """Extracts what a signature computes from the graph; see `traced.Source`."""
        signature = self._signatures.get(entry_point)
        if signature is None:
            raise TfaotError(
                f"{self._folder} has no signature {entry_point!r}",
                exists=listed(self.signatures),
                do=f"name one of these in {caller.the('entry_points')}",
            )
        what = f"{self._folder}, {entry_point}"
        # In TensorFlow 1, these are maps, so they have no order.
        feeds = [
            Feed(_tensor(info, what, key), key, info.dtype, _shape(info))
            for key, info in sorted(signature.inputs.items())
        ]
        fetches = [Fetch(_tensor(info, what, key), key, info.dtype) for key, info in sorted(signature.outputs.items())]
        if signature.method_name == _TRAINING:
            # In addition to its signature, a meta graph for training names the train op.
            fetches += [Fetch(name, _TRAIN_OP) for name in self._train_ops()]
        if not fetches:
            raise TfaotError(
                f"{what}: the signature computes nothing",
                exists=f"inputs {listed(sorted(signature.inputs))}, no outputs",
                do="name another signature",
            )
        return function_of_graph(
            self._meta_graph.graph_def,
            feeds,
            fetches,
            name=entry_point,
            what=what,
            dims=dims,
            sources=self._sources,
            files=loader_impl.get_asset_tensors(self._folder, self._meta_graph),
        )

    def _train_ops(self) -> list[str]:
        if _TRAIN_OP in self._meta_graph.signature_def:
            return [info.name for info in self._meta_graph.signature_def[_TRAIN_OP].outputs.values()]
        # The format of the first releases of TensorFlow 1.
        return list(self._meta_graph.collection_def[constants.TRAIN_OP_KEY].node_list.value)

    def initial(self, names: Collection[str]) -> Mapping[str, Array]:
        """Returns values from `variables/`; see `traced.Source`."""
        if not names:
            return {}
        wanted = wanted_of(
            self._meta_graph.graph_def, self._variables, names, self._meta_graph.saver_def, what=self._folder
        )
        prefix = os.path.join(self._folder, constants.VARIABLES_DIRECTORY, constants.VARIABLES_FILENAME)
        return Checkpoint(prefix, what=self._folder).values(
            wanted, do="save the model again with all of its variables, including local ones"
        )


def _tensor(info: meta_graph_pb2.TensorInfo, what: str, key: str) -> str:
    if info.WhichOneof("encoding") != "name":
        raise TfaotError(
            f"{what}: {key} isn't a dense tensor",
            exists=str(info.WhichOneof("encoding")),
            do="save a signature of dense tensors, and build the other kinds from them inside the model",
        )
    return str(info.name)


def _shape(info: meta_graph_pb2.TensorInfo) -> Shape | None:
    """Returns the signature's shape, or None (the graph's own) if it has none."""
    if not info.HasField("tensor_shape") or info.tensor_shape.unknown_rank:
        return None
    return tuple(None if dim.size < 0 else int(dim.size) for dim in info.tensor_shape.dim)
