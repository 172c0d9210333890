"""The tf2xla config, inferred from the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf import text_format
from tensorflow.compiler.tf2xla import tf2xla_pb2
from tensorflow.core.framework import types_pb2

from tfaot.core import dtypes
from tfaot.core.manifest import EntryPoint, Variable
from tfaot.graph.names import tensor_name


def infer(entry: EntryPoint, variables: Sequence[Variable]) -> tf2xla_pb2.Config:
    """Returns a config with an entry point's feeds, fetches, and variables in the manifest's order, under their C++ names.

    With a batch, the first dimension is the largest compiled size.
    """
    largest = entry.batch_sizes[-1] if entry.batch_sizes else 0
    config = tf2xla_pb2.Config()
    for tensor in entry.inputs:
        feed = config.feed.add(name=tensor.cpp_name, type=dtypes.BY_NAME[tensor.stored].enum)
        feed.id.node_name, feed.id.output_index = tensor_name(tensor.name)
        _shape(feed.shape, tensor.stored_shape, largest if tensor.batched else 0)
    for output in entry.outputs:
        fetch = config.fetch.add(name=output.cpp_name, type=dtypes.BY_NAME[output.stored].enum)
        fetch.id.node_name, fetch.id.output_index = tensor_name(output.name)
        _shape(fetch.shape, output.stored_shape, largest if output.batched else 0)
    for output in entry.sized:
        fetch = config.fetch.add(name=f"{output.cpp_name}_size", type=types_pb2.DT_INT32)
        fetch.id.node_name, fetch.id.output_index = tensor_name(output.size)
        _shape(fetch.shape, (len(output.shape),), 0)
    for use in entry.variables:
        variable = variables[use.variable]
        entry_ = config.variable.add(
            node_name=variable.name,
            name=variable.cpp_name,
            type=dtypes.BY_NAME[variable.stored].enum,
            readonly=not use.written,
        )
        _shape(entry_.shape, variable.stored_shape, 0)
    return config


def _shape(shape: Any, sizes: Sequence[int], batch: int) -> None:
    shape.SetInParent()
    for index, size in enumerate(sizes):
        shape.dim.add(size=batch if batch and index == 0 else size)


def to_text(config: tf2xla_pb2.Config) -> str:
    """Formats the config in protobuf's text format."""
    return str(text_format.MessageToString(config))
