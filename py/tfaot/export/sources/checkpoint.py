"""Reads values of variables from TensorFlow's checkpoints, and from the `variables/` folder of SavedModels."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2
from tensorflow.core.protobuf import saver_pb2, trackable_object_graph_pb2
from tensorflow.python.framework import tensor_util

from tfaot.core.errors import TfaotError, listed
from tfaot.export.traced import Array, shown
from tfaot.graph.names import tensor_name

_OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"
"""The tensor in which TensorFlow 2 stores which object each value belongs to."""

_LISTED = 24
"""How many of the existing names an error shows."""


@dataclasses.dataclass(frozen=True)
class Key:
    """The location of a value in a checkpoint."""

    name: str
    part: str = ""
    """For a partitioned variable, the part of the value: TensorFlow's slice spec, `4 6 0,2:-`. Empty for the whole value."""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A variable to look up."""

    name: str
    keys: tuple[Key, ...]
    """Possible locations. The first that exists is used."""
    dtype: int
    """`tensorflow.DataType`."""
    shape: tuple[int, ...] | None
    """None if the rank is unknown. An unknown dimension is -1."""


class Checkpoint:
    """A checkpoint in any of TensorFlow's formats, read on demand."""

    def __init__(self, path: str, *, what: str) -> None:
        """Opens the checkpoint.

        Args:
          path: the prefix of its files, one of the files, or the folder in which it is the latest.
          what: the model, for messages.

        Raises:
          TfaotError: there is no checkpoint.
        """
        self._path = path
        self._what = what
        try:
            self._reader = tf.train.load_checkpoint(prefix_of(path))
            self._shapes: dict[str, list[int]] = self._reader.get_variable_to_shape_map()
            self._dtypes = self._reader.get_variable_to_dtype_map()
        except (ValueError, tf.errors.OpError) as error:
            raise TfaotError(
                f"{what}: {path} isn't a checkpoint that TensorFlow can read",
                details=str(error).splitlines()[0],
                do="name a checkpoint's prefix or its .index file, and list all of its files: "
                "NAME.index, and each NAME.data-?????-of-?????",
            ) from None

    def objects(self) -> trackable_object_graph_pb2.TrackableObjectGraph:
        """Returns TensorFlow 2's description of the saved objects. Empty for other checkpoints."""
        graph = trackable_object_graph_pb2.TrackableObjectGraph()
        if _OBJECTS in self._shapes:
            graph.ParseFromString(self._reader.get_tensor(_OBJECTS))
        return graph

    def values(self, wanted: Sequence[Wanted], *, do: str) -> dict[str, Array]:
        """Reads values with their variables' dtypes and shapes, by the variables' names.

        Args:
          wanted: the variables.
          do: what to do if one is missing, for the message.

        Raises:
          TfaotError: some are missing or have another dtype or shape. The message lists all of them.
        """
        key_of: dict[str, Key] = {}
        wrong: list[str] = []
        missing = False
        named: Mapping[str, str] | None = None
        for variable in wanted:
            key = next((key for key in variable.keys if key.name in self._shapes), None)
            if key is None:
                named = self._by_full_name() if named is None else named
                key = next((dataclasses.replace(k, name=named[k.name]) for k in variable.keys if k.name in named), None)
            if key is None:
                missing = True
                wrong.append(f"{variable.name}: missing")
                continue
            key_of[variable.name] = key
            shape, dtype = self._shape(key), self._dtypes[key.name]
            fits = variable.shape is None or (
                len(shape) == len(variable.shape)
                and all(mine in (-1, size) for mine, size in zip(variable.shape, shape, strict=True))
            )
            if not fits or dtype.as_datatype_enum != variable.dtype:
                mine = None if variable.shape is None else tuple(None if n == -1 else n for n in variable.shape)
                wrong.append(
                    f"{variable.name}: {tf.as_dtype(variable.dtype).name}{shown(mine)} in the model, "
                    f"{dtype.name}{shown(shape)} in the checkpoint"
                )
        if wrong:
            there = sorted(name for name in self._shapes if name != _OBJECTS)
            raise TfaotError(
                f"{self._what}: {self._path} has no matching value for {len(wrong)} variable(s)",
                exists="; ".join(wrong)
                + (f"; the checkpoint contains {listed(there, limit=_LISTED)}" if missing else ""),
                do=do,
            )
        try:
            return {name: self._read(key) for name, key in key_of.items()}
        except tf.errors.OpError as error:
            raise TfaotError(
                f"{self._what}: can't read {self._path}",
                details=error.message,
                do="list all files of the checkpoint, unchanged: NAME.index, and each NAME.data-?????-of-?????",
            ) from None

    def _by_full_name(self) -> dict[str, str]:
        """Returns keys by the variables' names, which TensorFlow 2's checkpoints store next to the objects' paths."""
        pairs = [
            (attribute.full_name, attribute.checkpoint_key)
            for node in self.objects().nodes
            for attribute in node.attributes
            if attribute.full_name and attribute.checkpoint_key in self._shapes
        ]
        count = Counter(name for name, _ in dict.fromkeys(pairs))
        return {name: key for name, key in pairs if count[name] == 1}

    def _shape(self, key: Key) -> tuple[int, ...]:
        whole = self._shapes[key.name]
        slices = _slices(key.part, whole)
        return tuple(len(range(*part.indices(size))) for part, size in zip(slices, whole, strict=True))

    def _read(self, key: Key) -> Array:
        value = np.asarray(self._reader.get_tensor(key.name))
        return np.ascontiguousarray(value[_slices(key.part, value.shape)]).reshape(self._shape(key))


def prefix_of(path: str) -> str:
    """Returns the prefix that TensorFlow names a checkpoint by, from the name of one of its files.

    `m.ckpt.index`, `m.ckpt.meta`, and `m.ckpt.data-00000-of-00001` give `m.ckpt`. In the first format, whose shards are
    `m.ckpt-00000-of-00002`, the prefix is the pattern `m.ckpt-?????-of-00002`. Anything else doesn't change.
    """
    if match := re.fullmatch(r"(.+)\.(index|meta|data-\d{5}-of-\d{5})", path):
        return match[1]
    if match := re.fullmatch(r"(.+)-\d{5}-of-(\d{5})", path):
        return f"{match[1]}-?????-of-{match[2]}"
    return path


def _slices(part: str, whole: Sequence[int]) -> tuple[slice, ...]:
    """Parses a slice spec, `4 6 0,2:-`: the whole shape, then start and length in each dimension, or `-` for all of it."""
    if not part:
        return (slice(None),) * len(whole)
    result = []
    for text in part.split(" ")[-1].split(":"):
        start, _, length = text.partition(",")
        result.append(slice(None) if text == "-" else slice(int(start), int(start) + int(length)))
    return tuple(result)


def saved_by(graph: graph_pb2.GraphDef, saver: saver_pb2.SaverDef, *, what: str) -> dict[str, Key]:
    """Returns where a saver's checkpoints store each variable, by the name of the variable's node.

    A saver can save a variable under any name, and a partitioned variable in parts. The graph describes what it does: the
    restore op runs assignments of values that other ops read from the checkpoint.

    Raises:
      TfaotError: the graph doesn't have the saver's restore op.
    """
    nodes = {node.name: node for node in graph.node}
    restore = tensor_name(saver.restore_op_name)[0]
    if restore not in nodes:
        raise TfaotError(
            f"{what}: the saver's restore op {restore!r} isn't in the graph",
            exists=listed([node.name for node in graph.node if node.op == "NoOp"]),
            do="use this graph's saver, or remove it: variables are then looked up by their own names",
        )
    result: dict[str, Key] = {}
    seen: set[str] = set()
    pending = [restore]
    while pending:
        name = pending.pop()
        if name in seen or name not in nodes:
            continue
        seen.add(name)
        node = nodes[name]
        if node.op in ("Assign", "AssignVariableOp"):
            variable, value = (_through_identity(nodes, operand) for operand in node.input[:2])
            key = _restored(nodes, value)
            if key is not None:
                result[variable[0]] = key
            continue
        pending += [tensor_name(operand)[0] for operand in node.input]
    return result


def _through_identity(nodes: Mapping[str, node_def_pb2.NodeDef], tensor: str) -> tuple[str, int]:
    name, port = tensor_name(tensor)
    while name in nodes and nodes[name].op in ("Identity", "RefIdentity"):
        name, port = tensor_name(nodes[name].input[0])
    return name, port


def _restored(nodes: Mapping[str, node_def_pb2.NodeDef], tensor: tuple[str, int]) -> Key | None:
    """Returns the key of a tensor that a restore op reads, or None if another op computes it."""
    name, port = tensor
    node = nodes.get(name)
    if node is None or node.op not in ("RestoreV2", "Restore", "RestoreSlice"):
        return None
    # Their inputs are the prefix, the names, and the parts. Restore has no parts.
    names, *parts = (_strings(nodes, operand) for operand in node.input[1:3] if not operand.startswith("^"))
    if node.op == "Restore":
        parts = []
    if port >= len(names):
        return None
    return Key(names[port], parts[0][port] if parts else "")


def _strings(nodes: Mapping[str, node_def_pb2.NodeDef], tensor: str) -> list[str]:
    node = nodes.get(tensor_name(tensor)[0])
    if node is None or node.op != "Const":
        return []
    return [text.decode() for text in np.ravel(tensor_util.MakeNdarray(node.attr["value"].tensor)).tolist()]
