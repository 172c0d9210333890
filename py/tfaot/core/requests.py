"""The flags of stages. Each stage declares its `Request` once, a frozen dataclass; its fields are the flags.

A flag has its field's name: `--out_graph=PATH`. `True` is `--strict`, and `False` is `--no-strict`. The flag of a tuple is repeated
for each element, and is `--name=` without any. An element of several parts, and an entry of a dictionary, is `NAME=VALUE`, and
sizes are `32,?,3`. The fields of a dataclass in a request are flags, too. `run_stage` in `rules/private/stage.bzl` writes the same.
"""

from __future__ import annotations

import argparse
import ast
import collections.abc
import dataclasses
import functools
import inspect
import re
import sys
import textwrap
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from tfaot.core import caller
from tfaot.core.errors import TfaotError

Request = TypeVar("Request")

_SIZES = tuple[int | str | None, ...]
_SIZE = re.compile(r"\?|[0-9]+|[A-Za-z_]\w*", re.ASCII)


def parse(kind: type[Request], *, description: str | None = None, flags: Sequence[str] | None = None) -> Request:
    """Returns the request that a command line describes, or exits with a message.

    Args:
      kind: the request's dataclass.
      description: what the main does, for its help.
      flags: the command line, or `@FILE` with a flag on each line; by default, this process's.

    Raises:
      TfaotError: a size isn't a number.
    """
    parser = argparse.ArgumentParser(
        usage="%(prog)s @FILE, or --FIELD=VALUE …; see --help",
        description=description,
        fromfile_prefix_chars="@",
        allow_abbrev=False,
    )
    help_wanted = {"-h", "--help"} & {*(sys.argv if flags is None else flags)}
    for owner, field, hint in _fields(kind):
        element, many = _element(hint)
        options: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
        if hint is not bool:
            reader = functools.partial(_read, field.name, element)
            options = {"action": "append" if many else "store", "type": reader}
        parser.add_argument(
            f"--{field.name}",
            required=field.default is field.default_factory,  # both are missing
            help=_docs(owner).get(field.name, "").replace("%", "%%") if help_wanted else None,
            **options,
        )
    return _made(kind, vars(parser.parse_args(flags)))


def flags_of(fields: Mapping[str, Any]) -> list[str]:
    """Returns the flags for fields of a request."""
    flags = []
    for name, value in fields.items():
        if dataclasses.is_dataclass(value):
            flags += flags_of(vars(value))
        elif isinstance(value, bool):
            flags.append(f"--{'' if value else 'no-'}{name}")
        elif isinstance(value, Mapping | tuple | list):
            elements = value.items() if isinstance(value, Mapping) else value
            flags += [f"--{name}={_written(element)}" for element in elements] or [f"--{name}="]
        elif value is not None:
            flags.append(f"--{name}={value}")
    return flags


def names(kind: type[Any]) -> list[str]:
    """Returns the names of a request's flags."""
    return [field.name for _, field, _ in _fields(kind)]


def sizes(option: str, name: str, text: str) -> tuple[int | str | None, ...]:
    """Returns the sizes of an input: `32,?,3`. `?` keeps the model's own size, and a name is that of an open one.

    Args:
      option: the option that has them, for messages.
      name: the input.
      text: the sizes.

    Raises:
      TfaotError: a size is neither `?`, nor a name, nor a number of 0 or more.
    """
    parts = [size for size in text.split(",") if size]
    if wrong := [size for size in parts if not _SIZE.fullmatch(size)]:
        open_size = "? (None in a BUILD file)" if caller.in_bazel() else "?"
        raise TfaotError(
            f"{caller.option(option)} has a size of {name} that isn't one",
            exists=", ".join(wrong),
            do=f"give a number of 0 or more for each dimension, or {open_size} for the model's own size, or a name of "
            f"{caller.option('sizes')}",
        )
    return tuple(None if size == "?" else int(size) if size.isdigit() else size for size in parts)


def _fields(kind: type[Any]) -> Iterator[tuple[type[Any], dataclasses.Field[Any], Any]]:
    """Yields the fields that are flags, with their dataclasses and types."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            assert isinstance(hint, type)
            yield from _fields(hint)
        else:
            yield kind, field, hint


def _element(hint: Any) -> tuple[Any, bool]:
    """Returns the type of a flag's value, and whether the flag is repeated."""
    alternatives = [part for part in typing.get_args(hint) if part is not type(None)]
    if type(None) in typing.get_args(hint):
        return _element(*alternatives)
    if typing.get_origin(hint) is collections.abc.Mapping:
        return tuple[alternatives[0], alternatives[1]], True  # type: ignore[valid-type]
    if typing.get_origin(hint) is tuple and alternatives[-1] is Ellipsis:
        return alternatives[0], True
    return hint, False


def _read(name: str, kind: Any, text: str) -> Any:
    """Returns a flag's value, or None for what stands for no element."""
    if kind is str:
        return text
    if not text:
        return None
    if kind is int:
        try:
            return int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} isn't a whole number") from None
    parts = [*typing.get_type_hints(kind).values()] if dataclasses.is_dataclass(kind) else typing.get_args(kind)
    texts = text.split("=", len(parts) - 1)
    if len(texts) != len(parts):
        raise argparse.ArgumentTypeError(f"{text!r} doesn't have {len(parts)} parts, separated by '='")
    values = [
        sizes(name, texts[0], text)
        if part == _SIZES
        else tuple(int(number) for number in text.split(",") if number)
        if part == tuple[int, ...]
        else _read(name, part, text)
        for part, text in zip(parts, texts, strict=True)
    ]
    return kind(*values) if isinstance(kind, type) and dataclasses.is_dataclass(kind) else tuple(values)


def _made(kind: type[Request], values: Mapping[str, Any]) -> Request:
    """Returns a request from what argparse read."""
    hints, made = typing.get_type_hints(kind), dict[str, Any]()
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        hint, value = hints[field.name], values.get(field.name)
        if dataclasses.is_dataclass(hint):
            made[field.name] = _made(hint, values)  # type: ignore[arg-type]
        elif isinstance(value, list):
            elements = [element for element in value if element not in (None, "")]
            is_mapping = typing.get_origin(hint) is collections.abc.Mapping
            made[field.name] = dict(elements) if is_mapping else tuple(elements)
        elif value is not None:
            made[field.name] = value
    return kind(**made)


def _written(value: Any) -> str:
    """Returns an element of a tuple or an entry of a dictionary."""
    if dataclasses.is_dataclass(value):
        value = dataclasses.astuple(value)  # type: ignore[arg-type]
    if not isinstance(value, tuple):
        return str(value)
    return "=".join(
        ",".join("?" if size is None else str(size) for size in part) if isinstance(part, tuple | list) else str(part)
        for part in value
    )


def _docs(kind: type[Any]) -> dict[str, str]:
    """Returns the text below each field of a dataclass."""
    docs = dict[str, str]()
    for parent in kind.__mro__:
        if not dataclasses.is_dataclass(parent):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(parent))).body
        assert isinstance(tree, ast.ClassDef)
        name = ""
        for node in tree.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                name = node.target.id
            elif name and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                docs.setdefault(name, " ".join(str(node.value.value).split()))
    return docs
