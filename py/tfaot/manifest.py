"""`model.json`: the only thing that the Python stages tell each other.

The export stage writes it, every later stage reads it, and what a stage needs beyond it derives from it. Reading is
strict: an unknown, missing, or mistyped field is an error, so that two versions of the rules never half understand
each other. It holds no path, time, or host feature: two machines write the same bytes.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from typing import Any

from tfaot import dtypes
from tfaot.errors import TfaotError

FORMAT = 1
"""Raised whenever a field changes its meaning."""


@dataclasses.dataclass(frozen=True)
class Tensor:
    """An input or an output of an entry point."""

    name: str
    """TensorFlow's name, `node:port`."""
    cpp_name: str
    """The member of the generated class that gives its view."""
    dtype: str
    """A name of `tfaot.dtypes`."""
    shape: tuple[int, ...]
    """All dimensions known, in TensorFlow's order, row-major."""

    @property
    def count(self) -> int:
        """How many values it holds."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Its size in bytes, without padding."""
        return self.count * dtypes.BY_NAME[self.dtype].bytes


@dataclasses.dataclass(frozen=True)
class Variable(Tensor):
    """A resource variable; `name` is the VarHandleOp's `shared_name`."""

    written: bool
    """Whether the graph assigns it; if not, it is only read."""
    offset: int
    """Where its initial value starts in the data of the variables' file, in bytes."""


@dataclasses.dataclass(frozen=True)
class EntryPoint:
    """One function of the generated class."""

    name: str
    """The member function."""
    inputs: tuple[Tensor, ...]
    """In the compiler's argument order; the variables follow them."""
    outputs: tuple[Tensor, ...]
    """In the compiler's result order; the written variables follow them."""


@dataclasses.dataclass(frozen=True)
class Fingerprints:
    """SHA-256 of what the export stage wrote, in hexadecimal."""

    graph: str
    config: str


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Everything that a later stage may know of a model."""

    format: int
    tensorflow: str
    """Version of the wheel, whose graph builder and whose tfcompile are used."""
    cpp_class: str
    """With its namespaces, `a::b::Class`."""
    entry_points: tuple[EntryPoint, ...]
    variables: tuple[Variable, ...]
    """In the config's order, shared by all entry points."""
    golden_steps: int
    """How many runs in a row the goldens hold."""
    fingerprints: Fingerprints

    @property
    def written(self) -> tuple[Variable, ...]:
        """The variables that a run assigns."""
        return tuple(variable for variable in self.variables if variable.written)

    def to_json(self) -> str:
        """Serialises to the text of `model.json`."""
        return json.dumps(dataclasses.asdict(self), indent=1, sort_keys=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, path: str = "model.json") -> Manifest:
        """Reads what `to_json` wrote.

        Raises:
          TfaotError: the text is no JSON, is of another format, or has a field too many, too few, or of another type.
        """
        again = "build the target again with one version of rules_tfaot; the export stage writes this file"
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise TfaotError(f"{path} is not a manifest: {error}", do=again) from None
        if isinstance(data, dict) and data.get("format") != FORMAT:
            raise TfaotError(
                f"{path} has format {data.get('format')!r}", exists=f"this version reads format {FORMAT}", do=again
            )
        try:
            manifest = _read(cls, data, "manifest")
        except _Mismatch as mismatch:
            raise TfaotError(f"{path}: {mismatch}", do=again) from None
        assert isinstance(manifest, cls)
        return manifest


class _Mismatch(Exception):
    """Data that does not fit its declared type."""


def _read(kind: Any, data: Any, where: str) -> Any:
    """Converts parsed JSON to `kind`: a dataclass, a homogeneous tuple, or a plain type."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(data, Mapping):
            raise _Mismatch(f"{where} is no object")
        hints = typing.get_type_hints(kind)
        fields = [field.name for field in dataclasses.fields(kind)]
        if extra := sorted(set(data) - set(fields)):
            raise _Mismatch(f"{where} has unknown fields {extra}")
        if missing := [field for field in fields if field not in data]:
            raise _Mismatch(f"{where} lacks the fields {missing}")
        return kind(**{name: _read(hints[name], data[name], f"{where}.{name}") for name in fields})
    if typing.get_origin(kind) is tuple:
        if not isinstance(data, list):
            raise _Mismatch(f"{where} is no list")
        item = typing.get_args(kind)[0]
        return tuple(_read(item, value, f"{where}[{index}]") for index, value in enumerate(data))
    if isinstance(kind, types.UnionType) or type(data) is not kind:
        raise _Mismatch(f"{where} is {data!r}, not of type {getattr(kind, '__name__', kind)}")
    return data
