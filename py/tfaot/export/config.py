"""The tf2xla config: inferred from the manifest, then overridden field by field by what a user wrote."""

from __future__ import annotations

from typing import Any

from google.protobuf import text_format
from tensorflow.compiler.tf2xla import tf2xla_pb2

from tfaot import dtypes
from tfaot.errors import TfaotError, listed
from tfaot.export.graph import tensor_name
from tfaot.manifest import EntryPoint, Tensor, Variable


def infer(entry: EntryPoint, variables: tuple[Variable, ...]) -> tf2xla_pb2.Config:
    """Writes feeds, fetches, and variables in the manifest's order, under their C++ names."""
    config = tf2xla_pb2.Config()
    for tensor in entry.inputs:
        feed = config.feed.add(name=tensor.cpp_name, type=dtypes.BY_NAME[tensor.dtype].enum)
        feed.id.node_name, feed.id.output_index = tensor_name(tensor.name)
        _shape(feed.shape, tensor)
    for tensor in entry.outputs:
        fetch = config.fetch.add(name=tensor.cpp_name, type=dtypes.BY_NAME[tensor.dtype].enum)
        fetch.id.node_name, fetch.id.output_index = tensor_name(tensor.name)
        _shape(fetch.shape, tensor)
    for variable in variables:
        entry_ = config.variable.add(
            node_name=variable.name,
            name=variable.cpp_name,
            type=dtypes.BY_NAME[variable.dtype].enum,
            readonly=not variable.written,
        )
        _shape(entry_.shape, variable)
    return config


def _shape(shape: Any, tensor: Tensor) -> None:
    shape.SetInParent()
    for size in tensor.shape:
        shape.dim.add(size=size)


def parse(text: str, *, path: str) -> tf2xla_pb2.Config:
    """Reads a config in protobuf's text format.

    Raises:
      TfaotError: it is none.
    """
    try:
        return text_format.Parse(text, tf2xla_pb2.Config())
    except text_format.ParseError as error:
        raise TfaotError(
            f"{path} is no tf2xla config: {error}",
            do="write it in protobuf's text format, as tensorflow/compiler/tf2xla/tf2xla.proto declares it",
        ) from None


def to_text(config: tf2xla_pb2.Config) -> str:
    """The config in protobuf's text format."""
    return str(text_format.MessageToString(config))


def override(inferred: tf2xla_pb2.Config, user: tf2xla_pb2.Config, *, path: str) -> tf2xla_pb2.Config:
    """Merges a user's partial config: an entry is found by its node (and output), and each field it sets wins.

    Raises:
      TfaotError: the user's config names a node that is no feed, fetch, or variable of the model.
    """
    merged = tf2xla_pb2.Config()
    merged.CopyFrom(inferred)
    for kind in ("feed", "fetch", "variable"):
        entries = {_key(entry): entry for entry in getattr(merged, kind)}
        for entry in getattr(user, kind):
            if _key(entry) not in entries:
                raise TfaotError(
                    f"{path} configures the {kind} {_key(entry)!r}, which the model does not have",
                    exists=listed(sorted(entries)),
                    do="name one of these, or leave the entry out: what is not written is inferred",
                )
            target = entries[_key(entry)]
            for field, value in entry.ListFields():
                if field.message_type is None:
                    setattr(target, field.name, value)
                else:
                    getattr(target, field.name).CopyFrom(value)
    return merged


def _key(entry: Any) -> str:
    if isinstance(entry, tf2xla_pb2.Variable):
        return str(entry.node_name)
    return f"{entry.id.node_name}:{entry.id.output_index}"
