"""The command's options: attributes of `tf_aot_library`, as `rules/private/library.bzl` declares and documents them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import click

from tfaot import starlark
from tfaot.command.files import RULES
from tfaot.core.errors import TfaotError

_BAZEL = {"config_golden", "data", "features", "gen_benchmark", "gen_test", "name", "taps", "test_size"}
"""Attributes that only targets of Bazel need, besides those that any rule has. A model finds its files without `data`."""

_SOURCES = {"model", "saved_model", "graph"}


def attributes() -> tuple[starlark.Field, ...]:
    """Returns the attributes that are options, in alphabetical order."""
    (macro,) = (symbol for symbol in starlark.Tree(RULES).symbols("rules/defs.bzl") if symbol.name == "tf_aot_library")
    return tuple(field for field in macro.fields if field.name not in _BAZEL and "as in any rule" not in field.doc)


@dataclasses.dataclass(frozen=True)
class Option:
    """An attribute as an option."""

    field: starlark.Field

    @property
    def flag(self) -> str:
        """The option's name: `--saved-model`."""
        return "--" + self.field.name.replace("_", "-")

    @property
    def many(self) -> bool:
        """Whether it can be repeated."""
        return self.field.type.startswith(("list", "dict")) or " or list" in self.field.type

    @property
    def pairs(self) -> bool:
        """Whether each value is `NAME=VALUE`."""
        return self.field.type.startswith("dict") or " or dict" in self.field.type

    @property
    def default(self) -> Any:
        """The value of an attribute that isn't given."""
        return None if not self.field.default else _value(self.field.default)

    def made(self) -> click.Option:
        """Returns the option for click."""
        text = _plain(self.field.doc)
        if self.field.type == "bool":
            return click.Option(
                [f"{self.flag}/--no-{self.flag[2:]}"], default=self.default, show_default=True, help=text
            )
        if self.many:
            metavar = "NAME=VALUE" if self.pairs else "FILE" if "Label" in self.field.type else "TEXT"
            return click.Option([self.flag], multiple=True, metavar=metavar, help=text + " Can be repeated.")
        kind = click.INT if self.field.type == "int" else click.STRING
        one = "FILE" if self.field.type == "Label" else None
        if not self.field.default:
            return click.Option([self.flag], type=kind, metavar=one, help=text, required=True)
        default = self.default
        shown = default is not None
        return click.Option([self.flag], type=kind, default=default, show_default=shown, metavar=one, help=text)

    def read(self, given: Any) -> Any:
        """Returns an attribute's value from what click parsed."""
        if not self.many:
            return given
        if not given:
            return self.default
        if not self.pairs:
            return [int(each) for each in given] if "int" in self.field.type else list(given)
        pairs = [_pair(self.flag, each, optional=" or dict" in self.field.type) for each in given]
        return dict(pairs)


def options() -> tuple[Option, ...]:
    """Returns an option for each attribute."""
    return tuple(Option(field) for field in attributes())


def _pair(flag: str, text: str, *, optional: bool) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals and optional:
        return name.replace(".", "_"), name
    if not equals:
        raise TfaotError(
            f"{flag} {text}: the value isn't NAME=VALUE", exists=repr(text), do=f"write {flag} {text}=VALUE"
        )
    return name, value


def _value(default: str) -> Any:
    constants = {"None": None, "True": True, "False": False}
    return constants[default] if default in constants else json.loads(default)


def _plain(doc: str) -> str:
    """Returns documentation without Markdown and types, as a sentence."""
    return (doc[0].upper() + doc[1:]).rstrip(".").replace("`", "") + "."


def source(model: str, values: dict[str, Any]) -> dict[str, Any]:
    """Returns the attributes with the source that the command's argument names, if it has one.

    Raises:
      TfaotError: there is no source, or more than one.
    """
    kinds = [name for name in sorted(_SOURCES) if values[name]]
    if model:
        suffix = model.rpartition(".")[2]
        kind = {"py": "model", "pb": "graph", "pbtxt": "graph", "meta": "graph"}.get(suffix, "saved_model")
        if not kinds:
            return {**values, kind: model}
        kinds.append(f"the argument {model}")
    if len(kinds) != 1:
        raise TfaotError(
            "a model is one of model, saved_model, and graph; the command got " + (" and ".join(kinds) or "none"),
            do="name one Python file, SavedModel, or GraphDef: tfaot compile model.py --cpp-class a::B --out DIR",
        )
    return values


def check(values: dict[str, Any], names: Sequence[str], *, needs: str) -> None:
    """Checks that attributes which belong to one source aren't given with another.

    Raises:
      TfaotError: they are.
    """
    for name in names:
        if values[name] and not values[needs]:
            flag = "--" + name.replace("_", "-")
            raise TfaotError(f"{flag} applies only to {needs}", exists="another source", do=f"remove {flag}")
