"""Runs an exported graph in a TensorFlow session, as it is or with noise."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tfaot.core import dtypes
from tfaot.core.manifest import EntryPoint, Manifest, Tensor
from tfaot.core.session import session_config
from tfaot.verify import noise
from tfaot.verify.digest import Array
from tfaot.verify.helpers import AMPLITUDE

v1 = tf.compat.v1

_TOGETHER = 1 << 26
"""How many bytes of values to assign in one run."""

_TWO = 1 << 26
"""Two sessions run at the same time if a graph and its variables have at most this many bytes."""


def two_fit(graph: graph_pb2.GraphDef, values: Iterable[Array]) -> bool:
    """Returns whether two sessions at the same time, with a thread each, are worth their memory."""
    size: int = graph.ByteSize() + sum(value.nbytes for value in values)
    return size <= _TWO


class Runner:
    """A session with one thread of its own, for use in a `with` block."""

    def __init__(self, manifest: Manifest, graph: graph_pb2.GraphDef | noise.Noisy) -> None:
        """Imports a graph.

        Args:
          manifest: the model's manifest.
          graph: the exported graph, or the same with noise. It doesn't change.
        """
        noisy = graph if isinstance(graph, noise.Noisy) else noise.Noisy(graph, {})
        handles = {n.attr["shared_name"].s.decode(): n.name for n in noisy.graph.node if n.op == "VarHandleOp"}
        self._manifest = manifest
        self._tensor = noisy.tensor
        self._graph = tf.Graph()
        self._assign: dict[str, tuple[Tensor, Any, Any]] = {}
        self._read: dict[str, Any] = {}
        self._amplitude: tuple[Any, Any] | None = None
        with self._graph.as_default():
            tf.import_graph_def(noisy.graph, name="")
            for variable in manifest.variables:
                handle = self._graph.get_operation_by_name(handles[variable.name])
                dtype = tf.as_dtype(handle.get_attr("dtype"))
                value = v1.placeholder(dtype, variable.stored_shape)
                assign = tf.raw_ops.AssignVariableOp(resource=handle.outputs[0], value=value)
                self._assign[variable.name] = (variable, value, assign)
                self._read[variable.name] = tf.raw_ops.ReadVariableOp(resource=handle.outputs[0], dtype=dtype)
            if isinstance(graph, noise.Noisy):
                value = v1.placeholder(tf.float64, [])
                handle = tf.raw_ops.VarHandleOp(dtype=tf.float64, shape=[], shared_name=AMPLITUDE)
                self._amplitude = value, tf.raw_ops.AssignVariableOp(resource=handle, value=value)
        self._session = v1.Session(graph=self._graph, config=session_config())

    def twin(self) -> Runner:
        """Returns another session of the same graph. Its variables have no values yet."""
        twin = copy.copy(self)
        twin._session = v1.Session(graph=self._graph, config=session_config())
        return twin

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()

    def __call__(
        self, initial: Iterable[tuple[str, Array]], calls: Iterable[tuple[EntryPoint, Sequence[Array]]]
    ) -> list[list[Array]]:
        """Makes consecutive calls, starting from given values of all variables. Returns each call's results, like `call`."""
        self.assign(initial)
        return [self.call(entry, values) for entry, values in calls]

    def assign(self, values: Iterable[tuple[str, Array]]) -> None:
        """Assigns values to variables, many at once, because each new set of ops makes the session look at the whole graph.

        It holds at most `_TOGETHER` bytes of values, and one more value, before it assigns them and releases them.
        """
        ops: list[Any] = []
        feeds: dict[Any, Array] = {}
        size = 0
        for name, value in values:
            variable, placeholder, assign = self._assign[name]
            ops.append(assign)
            feeds[placeholder] = _stored(value, variable, placeholder.dtype)
            size += feeds[placeholder].nbytes
            del value
            if size >= _TOGETHER:
                self._session.run(ops, feeds)
                ops, feeds, size = [], {}, 0
        if ops:
            self._session.run(ops, feeds)

    def amplitude(self, amplitude: float) -> None:
        """Sets the noise of subsequent calls; 0 for none. A graph with noise needs this once."""
        assert self._amplitude is not None
        placeholder, assign = self._amplitude
        self._session.run(assign, {placeholder: amplitude})

    def call(
        self, entry: EntryPoint, values: Sequence[Array], constants: Mapping[str, Array] | None = None
    ) -> list[Array]:
        """Returns the outputs, then the variables that the entry point writes.

        For a precise graph, they have the precise dtype: float64 for float32.

        Args:
          entry: the entry point to call.
          values: its inputs.
          constants: values that replace constants in the graph, by node name.
        """
        outputs = self.outputs(entry, values, constants)
        written = self._manifest.written_by(entry)
        after = self._session.run([self._read[variable.name] for variable in written])
        return outputs + [_loaded(np.asarray(value), tensor) for tensor, value in zip(written, after, strict=True)]

    def outputs(
        self, entry: EntryPoint, values: Sequence[Array], constants: Mapping[str, Array] | None = None
    ) -> list[Array]:
        """Makes a call, like `call`, and returns the outputs only."""
        feeds = {}
        for tensor, value in zip(entry.inputs, values, strict=True):
            placeholder = self._graph.get_tensor_by_name(tensor.name)
            feeds[placeholder] = _stored(value, tensor, placeholder.dtype)
        for name, value in (constants or {}).items():
            feeds[self._graph.get_tensor_by_name(name + ":0")] = value
        outputs = self._session.run([self._tensor(tensor.name) for tensor in entry.outputs], feeds)
        return [_loaded(np.asarray(value), tensor) for tensor, value in zip(entry.outputs, outputs, strict=True)]


def _stored(value: Array, tensor: Tensor, dtype: tf.DType) -> Array:
    """Returns a value as the graph takes it at its edge, with more precision if the graph has more."""
    stored = to_stored(value, tensor)
    wanted = dtype.as_numpy_dtype
    return stored if stored.dtype == wanted else stored.astype(wanted)


def _loaded(value: Array, tensor: Tensor) -> Array:
    """Returns a value that the graph returns at its edge. A precise graph's float64 and complex128 stay."""
    if value.dtype == dtypes.BY_NAME[tensor.stored].numpy():
        return from_stored(value, tensor)
    if tensor.stored == tensor.dtype or dtypes.BY_NAME[tensor.dtype].parts == 1:
        return value
    pairs: Array = np.ascontiguousarray(value).view(np.complex128)[..., 0]
    return pairs


def to_stored(value: Array, tensor: Tensor) -> Array:
    """Returns the bits of a value as the compiled graph takes them at its edge."""
    if tensor.stored == tensor.dtype:
        return value
    stored = dtypes.BY_NAME[tensor.stored].numpy()
    parts = dtypes.BY_NAME[tensor.dtype].parts
    return (
        np.ascontiguousarray(value).reshape(-1).view(stored).reshape((*value.shape, parts)[: None if parts > 1 else -1])
    )


def from_stored(value: Array, tensor: Tensor) -> Array:
    """Returns the value whose bits the compiled graph returns at its edge."""
    if tensor.stored == tensor.dtype:
        return value
    shape = value.shape[:-1] if dtypes.BY_NAME[tensor.dtype].parts > 1 else value.shape
    return np.ascontiguousarray(value).reshape(-1).view(dtypes.BY_NAME[tensor.dtype].numpy()).reshape(shape)
