"""Models as finished graphs: a GraphDef, optionally with a tf2xla config, a checkpoint, and debug information."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from google.protobuf import message, text_format
from tensorflow.compiler.tf2xla import tf2xla_pb2
from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2, saver_pb2
from tensorflow.python.framework import dtypes, op_def_registry

from tfaot.core import caller
from tfaot.core.errors import TfaotError, listed
from tfaot.export import config as configs
from tfaot.export import user_config
from tfaot.export.sources import debug_info as debug
from tfaot.export.sources.checkpoint import Checkpoint, Key, Wanted, saved_by
from tfaot.export.sources.ref_variables import REFS, GraphVariable, name_variables
from tfaot.export.sources.subgraph import Feed, Fetch, check_operands, function_of_graph
from tfaot.export.traced import Array, Dims, Edge, Function, Shape
from tfaot.graph.names import tensor_name
from tfaot.graph.prune import reached

ENTRY_POINT = "graph"
"""A graph has one entry point, and no name for it."""

_TEXT = (".pbtxt", ".textproto", ".txt", ".prototxt")
_Message = TypeVar("_Message", bound=message.Message)


class GraphDefSource:
    """A graph from a file.

    The inputs and outputs come from a config or from lists of names, or are inferred: placeholders that anything depends on
    are inputs, and tensors that nothing consumes are outputs.
    """

    entry_points = (ENTRY_POINT,)
    default_entry_point = ENTRY_POINT

    def __init__(
        self,
        path: str,
        *,
        config: str | None = None,
        inputs: Sequence[str] = (),
        outputs: Sequence[str] = (),
        checkpoint: str | None = None,
        saver: str | None = None,
        debug_info: str | None = None,
    ) -> None:
        """Reads the graph and the files that belong to it.

        Args:
          path: a GraphDef, binary or text; or a MetaGraphDef, as written by `tf.compat.v1.train.Saver` (`.meta`).
          config: a tf2xla config, as TensorFlow's `tf_library` takes it: text, or binary if it ends in `.pb`.
          inputs: tensors, `node` or `node:port`, if there is no config.
          outputs: the same. An operation without outputs, such as a train op, runs with the others.
          checkpoint: the values of variables: a checkpoint's prefix, or one of its files.
          saver: a SaverDef, binary or text, if variables aren't saved under their own names.
          debug_info: a GraphDebugInfo, binary or text.

        Raises:
          TfaotError: a file isn't what it should be.
        """
        self._path = path
        self._graph, own_saver = _read_graph(path)
        check_operands(self._graph, path)
        self._variables = name_variables(self._graph)
        self._config: Any = None if config is None else _read_config(config)
        if self._config is not None and (inputs or outputs):
            raise TfaotError(
                f"{path}: the config and the lists both specify inputs and outputs",
                exists=f"{config}, and {caller.setting('inputs', inputs)}, {caller.setting('outputs', outputs)}",
                do="remove the config or the lists",
            )
        self._feeds, self._fetches = (
            self._from_config(config or "") if self._config is not None else self._from_names(inputs, outputs)
        )
        self._checkpoint = checkpoint
        self._saver = own_saver if saver is None else _read(saver, saver_pb2.SaverDef, "SaverDef")
        if saver is not None and checkpoint is None:
            raise TfaotError(
                f"{path}: {caller.option('saver')} without {caller.option('checkpoint')}",
                do=f"name the checkpoint that it wrote in {caller.the('checkpoint')}, or remove {caller.option('saver')}",
            )
        self._sources = {} if debug_info is None else debug.sources(debug.read(debug_info))

    @property
    def variable_config(self) -> Any:
        """The config's entries for variables, in the form that `user_config.override` takes. None without a config."""
        if self._config is None:
            return None
        result = type(self._config)()
        result.CopyFrom(self._config)
        result.ClearField("feed")
        result.ClearField("fetch")
        return result

    @property
    def unset(self) -> frozenset[str]:
        """The variables that the config declares, if no checkpoint has their values. They start at zero."""
        if self._config is None or self._checkpoint is not None:
            return frozenset()
        return frozenset(variable.node_name for variable in self._config.variable)

    def function(self, entry_point: str, dims: Dims) -> Function:
        """Extracts the function from the graph; see `traced.Source`."""
        if entry_point != ENTRY_POINT:
            raise TfaotError(
                f"{self._path} has no entry point {entry_point!r}",
                exists="a graph has a single entry point, from its inputs to its outputs",
                do=f"remove {caller.option('entry_points')}, or save the model as a SavedModel with a signature for each",
            )
        return function_of_graph(
            self._graph, self._feeds, self._fetches, name=entry_point, what=self._path, dims=dims, sources=self._sources
        )

    def initial(self, names: Collection[str]) -> Mapping[str, Array]:
        """Returns values from the checkpoint; see `traced.Source`."""
        if not names:
            return {}
        if self._checkpoint is None:
            if missing := sorted(set(names) - self.unset):
                raise TfaotError(
                    f"{self._path}: the graph has {len(missing)} variable(s) without values",
                    exists=listed(missing),
                    do="add the checkpoint from its training: "
                    + caller.setting("checkpoint", "model.ckpt.index")
                    + (
                        ""
                        if self._config is None
                        else "; or declare them in the config as arguments, which start at zero: "
                        f'variable {{ node_name: "{missing[0]}" }}'
                    ),
                )
            return {name: _zeros(self._variables[name]) for name in names}
        wanted = wanted_of(self._graph, self._variables, names, self._saver, what=self._path)
        return Checkpoint(self._checkpoint, what=self._path).values(
            wanted,
            do="use the checkpoint of this exact graph; if it was saved under other names, also name its SaverDef in "
            + caller.option("saver"),
        )

    def golden(
        self, entry_point: str, inputs: Sequence[Edge], step: int, rng: np.random.Generator
    ) -> Sequence[Array] | None:
        """Returns None, because a graph says nothing about its inputs' values."""
        return None

    def _from_config(self, path: str) -> tuple[list[Feed], list[Fetch]]:
        if not self._config.fetch:
            raise TfaotError(f"{path} has no fetch", do='add what the graph computes: fetch { id { node_name: "…" } }')
        for variable in self._config.variable:
            if variable.node_name not in self._variables:
                raise TfaotError(
                    f"{path} configures the variable {variable.node_name!r}, but {self._path} has no such variable",
                    exists=listed(list(self._variables)),
                    do="name one of these, or remove the entry: missing entries are inferred",
                )
        feeds = [
            Feed(_id(feed), feed.name or _label(_id(feed)), int(feed.type), _shape(feed)) for feed in self._config.feed
        ]
        fetches = [Fetch(_id(f), f.name or _label(_id(f)), int(f.type)) for f in self._config.fetch]
        return feeds, fetches

    def _from_names(self, inputs: Sequence[str], outputs: Sequence[str]) -> tuple[list[Feed], list[Fetch]]:
        taken = {tensor_name(operand)[0] for node in self._graph.node for operand in node.input}
        results = [] if outputs else self._results()
        outputs = list(outputs) or [name for name in results if name not in taken]
        if not outputs:
            raise TfaotError(
                f"{self._path}: the graph's outputs aren't specified",
                exists=f"another node consumes every tensor; the last ones are {listed(results[:-6:-1])}"
                if results
                else "no node computes a tensor",
                do="name them: " + caller.setting("outputs", ["NODE"]),
            )
        if not inputs:
            needed = self._needed_by(outputs)
            inputs = [n.name for n in self._graph.node if n.name in needed and n.op in ("Placeholder", "PlaceholderV2")]
        return [Feed(name, _label(name)) for name in inputs], [Fetch(name, _label(name)) for name in outputs]

    def _results(self) -> list[str]:
        """Returns the nodes that can be outputs: they compute something other than bookkeeping.

        Excludes inputs, variables, and reads of variables, which TensorFlow makes for each variable. Excludes references,
        because they are writes, and strings, because they are file names and summaries.
        """
        operations = {node.name: node.op for node in self._graph.node}
        return [
            node.name
            for node in self._graph.node
            if node.op not in _NO_RESULTS
            and _first_dtype(node) not in _NO_VALUES
            and not (node.op == "Identity" and node.input and operations.get(tensor_name(node.input[0])[0]) in REFS)
        ]

    def _needed_by(self, tensors: Sequence[str]) -> set[str]:
        nodes = {node.name: node for node in self._graph.node}
        return reached(nodes, [tensor_name(tensor)[0] for tensor in tensors])


def _zeros(variable: GraphVariable) -> Array:
    """Returns the value of a variable that nothing sets. A size that isn't known is an error later."""
    dtype: Any = dtypes.as_dtype(variable.dtype).as_numpy_dtype
    return np.zeros([max(size, 0) for size in variable.shape or ()], dtype)


def wanted_of(
    graph: graph_pb2.GraphDef,
    variables: Mapping[str, Any],
    names: Collection[str],
    saver: saver_pb2.SaverDef,
    *,
    what: str,
) -> list[Wanted]:
    """Returns what to look for in a checkpoint: a variable's name in its saver, or else its own name or its node's.

    Args:
      graph: includes the saver's restore op, if there is a saver.
      variables: all variables of the graph, from `ref_variables.name_variables`.
      names: the variables whose values are needed.
      saver: can be empty.
      what: the model, for messages.
    """
    saved = saved_by(graph, saver, what=what) if saver.restore_op_name else {}
    result = []
    for name in names:
        variable = variables[name]
        keys = [saved[node] for node in variable.nodes if node in saved]
        keys += [Key(plain) for plain in (name, *variable.nodes)]
        result.append(Wanted(name, tuple(dict.fromkeys(keys)), variable.dtype, variable.shape))
    return result


def _read_graph(path: str) -> tuple[graph_pb2.GraphDef, saver_pb2.SaverDef]:
    """Reads a graph, and its saver if there is one."""
    details, exists = "", "a proto without nodes"
    try:
        graph = _read(path, graph_pb2.GraphDef, "GraphDef")
        if any(node.op for node in graph.node):
            return graph, saver_pb2.SaverDef()
    except TfaotError as error:
        details, exists = error.details, ""
    # A SavedModel's bytes can pass for a MetaGraphDef's, but not the other way round.
    if _is_saved_model(path):
        raise TfaotError(
            f"{path} is the main file of a SavedModel, not a graph", do="name the whole folder as the model"
        )
    with contextlib.suppress(TfaotError):
        meta = _read(path, meta_graph_pb2.MetaGraphDef, "MetaGraphDef")
        if any(node.op for node in meta.graph_def.node):
            return meta.graph_def, meta.saver_def
    raise TfaotError(
        f"{path} isn't a graph",
        details=details,
        exists=exists,
        do="use a GraphDef, binary (.pb) or text (.pbtxt), or a MetaGraphDef (.meta)",
    )


def _is_saved_model(path: str) -> bool:
    try:
        saved = _read(path, saved_model_pb2.SavedModel, "SavedModel")
    except TfaotError:
        return False
    return bool(saved.saved_model_schema_version and saved.meta_graphs)


def _read(path: str, kind: type[_Message], name: str) -> _Message:
    """Reads a proto, binary or text. Tries the format that the file's name suggests first, then the other.

    Raises:
      TfaotError: it is neither.
    """
    with open(path, "rb") as file:
        data = file.read()
    text_first = path.endswith(_TEXT)
    reasons: dict[bool, str] = {}
    for text in (text_first, not text_first):
        result: _Message = kind()
        try:
            if text:
                text_format.Parse(data.decode(), result)
            else:
                result.ParseFromString(data)
        except (message.DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
            reasons[text] = str(error)
            continue
        if result.ByteSize() or not data:
            return result
    looks_like_text = text_first or b"\0" not in data
    raise TfaotError(
        f"{path} isn't a {name}",
        details=reasons.get(looks_like_text, reasons.get(not looks_like_text, "")),
        do=f"use a tensorflow.{name}, as a binary or a text proto",
    )


def _read_config(path: str) -> Any:
    if path.endswith(".pb"):
        return user_config.parse(configs.to_text(_read(path, tf2xla_pb2.Config, "tf2xla.Config")), path=path)
    return user_config.read(path)


def _id(entry: Any) -> str:
    return f"{entry.id.node_name}:{entry.id.output_index}"


def _shape(feed: Any) -> Shape | None:
    """Returns the shape that a feed configures. A missing shape isn't the same as a scalar's."""
    if not feed.HasField("shape") or feed.shape.unknown_rank:
        return None
    return tuple(None if dim.size < 0 else int(dim.size) for dim in feed.shape.dim)


def _label(tensor: str) -> str:
    return tensor.removesuffix(":0")


def _first_dtype(node: node_def_pb2.NodeDef) -> int | None:
    """Returns the dtype of a node's first output, DT_INVALID if it has none, or None if only TensorFlow's import knows."""
    definition = op_def_registry.get(node.op)
    if definition is None:  # a function in the graph, or an op that TensorFlow doesn't know
        return None
    if not definition.output_arg or any(arg.is_ref for arg in definition.output_arg):
        return int(types_pb2.DT_INVALID)
    first = definition.output_arg[0]
    if first.type_list_attr:
        return int(next(iter(node.attr[first.type_list_attr].list.type), types_pb2.DT_INVALID))
    return int(node.attr[first.type_attr].type if first.type_attr else first.type)


_NO_VALUES = (types_pb2.DT_INVALID, types_pb2.DT_STRING, types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT)

_NO_RESULTS = frozenset(
    {
        *REFS,
        "Const",
        "IsVariableInitialized",
        "Placeholder",
        "PlaceholderV2",
        "PlaceholderWithDefault",
        "ReadVariableOp",
        "VarHandleOp",
        "VarIsInitializedOp",
    }
)
"""Ops that compute nothing from inputs."""
