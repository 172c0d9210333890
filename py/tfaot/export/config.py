"""The tf2xla config: inferred from the manifest, then overridden field by field by what a user wrote."""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
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


@functools.cache
def _user_config() -> Any:
    """The class of configs that know what was written in them: in proto3, `readonly: false` is the same as nothing."""
    file = descriptor_pb2.FileDescriptorProto()
    tf2xla_pb2.DESCRIPTOR.CopyToProto(file)
    ours, theirs = "tfaot.user", file.package
    file.name, file.package, file.syntax = "tfaot/user_config.proto", ours, "proto2"
    for message in file.message_type:
        for field in message.field:
            if field.type_name.startswith(f".{theirs}."):
                field.type_name = field.type_name.replace(f".{theirs}.", f".{ours}.")
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{ours}.Config"))


def parse(text: str, *, path: str) -> Any:
    """Reads a config in protobuf's text format.

    Raises:
      TfaotError: it is none.
    """
    try:
        return text_format.Parse(text, _user_config()())
    except text_format.ParseError as error:
        raise TfaotError(
            f"{path} is no tf2xla config: {error}",
            do="write it in protobuf's text format, as tensorflow/compiler/tf2xla/tf2xla.proto declares it",
        ) from None


def to_text(config: tf2xla_pb2.Config) -> str:
    """The config in protobuf's text format."""
    return str(text_format.MessageToString(config))


def override(inferred: tf2xla_pb2.Config, user: Any, *, path: str) -> tf2xla_pb2.Config:
    """Merges a user's partial config, from `parse`: an entry is found by its node (and output); what it sets, wins.

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
                    getattr(target, field.name).ParseFromString(value.SerializeToString())
    return merged


def _key(entry: Any) -> str:
    if hasattr(entry, "node_name"):
        return str(entry.node_name)
    return f"{entry.id.node_name}:{entry.id.output_index}"
