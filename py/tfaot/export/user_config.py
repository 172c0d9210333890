"""A user's tf2xla config, which overrides the inferred ones field by field."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, TypeVar

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from tensorflow.compiler.tf2xla import tf2xla_pb2

from tfaot.core import dtypes, manifest, names
from tfaot.core.errors import TfaotError, listed

_T = TypeVar("_T", bound=manifest.Tensor)


@functools.cache
def _user_config() -> Any:
    """Returns a class for configs that records which fields are set. In proto3, `readonly: false` looks like no value."""
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


def read(path: str) -> Any:
    """Reads a config in protobuf's text format.

    Raises:
      TfaotError: the file isn't one.
    """
    with open(path, "rb") as file:
        return parse(file.read(), path=path)


def parse(text: str | bytes, *, path: str) -> Any:
    """Parses a config in protobuf's text format.

    Raises:
      TfaotError: the text isn't a config.
    """
    try:
        return text_format.Parse(text.decode() if isinstance(text, bytes) else text, _user_config()())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise TfaotError(
            f"{path} isn't a tf2xla config: {error}",
            do="write it in protobuf's text format, as tensorflow/compiler/tf2xla/tf2xla.proto declares it",
        ) from None


def override(inferred: Sequence[tf2xla_pb2.Config], user: Any, *, path: str) -> tuple[tf2xla_pb2.Config, ...]:
    """Merges a user's partial config from `parse`. Entries match by node (and output), and fields that they set win.

    Args:
      inferred: one for each entry point. A variable can be in several.
      user: the result of `parse`.
      path: its file, for messages.

    Raises:
      TfaotError: the user's config names a node that isn't a feed, fetch, or variable of the model.
    """
    merged = [tf2xla_pb2.Config.FromString(config.SerializeToString()) for config in inferred]
    for kind in ("feed", "fetch", "variable"):
        entries: dict[str, list[Any]] = {}
        for config in merged:
            for entry in getattr(config, kind):
                entries.setdefault(_key(entry), []).append(entry)
        for entry in getattr(user, kind):
            if _key(entry) not in entries:
                raise TfaotError(
                    f"{path} configures the {kind} {_key(entry)!r}, which the model doesn't have",
                    exists=listed(sorted(entries)),
                    do="name one of these, or remove the entry: missing entries are inferred",
                )
            for target in entries[_key(entry)]:
                for field, value in entry.ListFields():
                    if field.message_type is None:
                        setattr(target, field.name, value)
                    else:
                        getattr(target, field.name).ParseFromString(value.SerializeToString())
    return tuple(merged)


def without_variables(user: Any, names: Collection[str]) -> Any:
    """Returns a user's config without the entries of these variables, such as those that have become constants."""
    result = type(user)()
    result.CopyFrom(user)
    result.ClearField("variable")
    result.variable.extend(variable for variable in user.variable if variable.node_name not in names)
    return result


def _key(entry: Any) -> str:
    if hasattr(entry, "node_name"):
        return str(entry.node_name)
    return f"{entry.id.node_name}:{entry.id.output_index}"


def reread(result: manifest.Manifest, merged: Sequence[Any], path: str) -> manifest.Manifest:
    """Applies what a user's config can change to the manifest: names, and whether a variable is written.

    Raises:
      TfaotError: it changes a dtype or a shape, or its names aren't identifiers or clash.
    """
    class_name = names.split_class(result.cpp_class)[1] if result.cpp_class else ""
    points = []
    variables = list(result.variables)
    for point, config in zip(result.entry_points, merged, strict=True):
        inputs = tuple(_renamed(t, c, path, point) for t, c in zip(point.inputs, config.feed, strict=True))
        fetches = config.fetch[: len(point.outputs)]
        outputs = tuple(_renamed(t, c, path, point) for t, c in zip(point.outputs, fetches, strict=True))
        used = []
        for use, entry in zip(point.variables, config.variable, strict=True):
            variables[use.variable] = _renamed(variables[use.variable], entry, path, None)
            used.append(dataclasses.replace(use, written=not entry.readonly))
        points.append(dataclasses.replace(point, inputs=inputs, outputs=outputs, variables=tuple(used)))
    written = {use.variable for point in points for use in point.variables if use.written}
    variables = [dataclasses.replace(variable, written=index in written) for index, variable in enumerate(variables)]
    items: list[manifest.Tensor] = [*variables]
    for point in points:
        items += [*point.inputs, *point.outputs]
    count = Counter(item.cpp_name for item in items)
    members = names.MEMBERS | {point.cpp_name for point in points} | {class_name}
    for item in items:
        name = item.cpp_name
        if not names.is_identifier(name) or name in members:
            raise TfaotError(
                f"{path}: {item.name} is named {name!r}, which isn't a valid member name for {class_name}",
                do=f"use an identifier, for example {names.unique_identifiers([name], taken=members)[0]!r}",
            )
        if count[name] > 1:
            raise TfaotError(
                f"{path}: {count[name]} tensors have the same name {name!r}",
                exists=", ".join(i.name for i in items if i.cpp_name == name),
                do="give each a different name, or remove the names: inferred names don't collide",
            )
    return dataclasses.replace(result, entry_points=tuple(points), variables=tuple(variables))


def _renamed(tensor: _T, config: Any, path: str, point: manifest.EntryPoint | None) -> _T:
    dtype = dtypes.BY_ENUM.get(config.type)
    shape = tuple(dim.size for dim in config.shape.dim)
    expected = tensor.stored_shape
    if point is not None and point.batch_sizes and getattr(tensor, "batched", False):
        expected = (point.batch_sizes[-1], *expected[1:])
    if dtype is None or dtype.name != tensor.stored or shape != expected:
        raise TfaotError(
            f"{path}: {tensor.name} is configured as {dtype.name if dtype else 'an unsupported dtype'}{list(shape)}",
            exists=f"the model has {tensor.stored}{list(expected)}",
            do="change the model, or remove type and shape, which are inferred",
        )
    return dataclasses.replace(tensor, cpp_name=config.name)
