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
from typing import Any, TypeVar

from tfaot.core import dtypes
from tfaot.core.errors import TfaotError

_T = TypeVar("_T", bound="Tensor")

RESTORED = 64 << 20
"""How many bytes of variables goldens may hold to set the model's state before calls."""

FORMAT = 2
"""Raised whenever a field changes its meaning."""


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A value that crosses the model's edge."""

    name: str
    """TensorFlow's name, `node:port`; of a variable, its `shared_name`."""
    cpp_name: str
    """The member of the generated class that gives its view."""
    dtype: str
    """A name of `tfaot.core.dtypes`."""
    shape: tuple[int, ...]
    """All dimensions known, in TensorFlow's order, row-major. Of a batch, the first is the largest batch that the class
    takes; of a bounded result, sizes are bounds."""
    stored: str
    """The dtype as the compiler sees it. It refuses some at the edge: there the graph converts float16 and bfloat16 from
    and to their bits, uint16, and complex numbers from and to pairs of reals, bit by bit."""

    @property
    def count(self) -> int:
        """How many values it holds."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Its size in bytes, without padding."""
        return self.count * dtypes.BY_NAME[self.dtype].bytes

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape as the compiler sees it: complex numbers that are stored as pairs have a last dimension of 2."""
        parts = dtypes.BY_NAME[self.dtype].parts
        return (*self.shape, parts) if self.stored != self.dtype and parts > 1 else self.shape


@dataclasses.dataclass(frozen=True)
class Input(Tensor):
    """An input of an entry point."""

    batched: bool
    """Whether its first dimension is the batch."""


@dataclasses.dataclass(frozen=True)
class Output(Tensor):
    """An output of an entry point."""

    batched: bool
    """Whether its first dimension is the batch."""
    size: str
    """If its true size is known only at run time: the fetch, `node:port`, that gives it, int32[rank]. Else empty."""


@dataclasses.dataclass(frozen=True)
class Variable(Tensor):
    """A resource variable that is an argument of the compiled code."""

    written: bool
    """Whether some entry point assigns it; if not, it is only read."""
    offset: int
    """Where its initial value starts in the data of the variables' file, in bytes."""


@dataclasses.dataclass(frozen=True)
class Use:
    """What an entry point does with a variable."""

    variable: int
    """Its index among the manifest's variables."""
    written: bool


@dataclasses.dataclass(frozen=True)
class EntryPoint:
    """One function of the generated class."""

    name: str
    """The user's name of it; `Run` if there is only one."""
    cpp_name: str
    """The member function."""
    inputs: tuple[Input, ...]
    """In the compiler's argument order; the variables follow them."""
    outputs: tuple[Output, ...]
    """In the compiler's result order; sizes of bounded ones follow them, then the written variables."""
    variables: tuple[Use, ...]
    """In the compiler's argument order, and the written ones in its result order."""
    batch_sizes: tuple[int, ...]
    """The sizes of batch that it is compiled for, rising; empty if it has no batch."""

    @property
    def sized(self) -> tuple[Output, ...]:
        """The outputs whose size is known only at run time."""
        return tuple(output for output in self.outputs if output.size)


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of the sequence that the generated test makes."""

    entry_point: str
    batch: int
    """How many rows it gives; 0 if the entry point has no batch."""


@dataclasses.dataclass(frozen=True)
class Frozen:
    """A variable that is a constant of the compiled code."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str
    """Of its dtype, shape, and values, in hexadecimal."""


@dataclasses.dataclass(frozen=True)
class Fingerprints:
    """SHA-256 of what the export stage wrote, in hexadecimal."""

    graph: str
    configs: str
    frozen: str
    """Of all frozen weights: says which ones the code holds. Empty if there are none."""


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
    frozen: tuple[Frozen, ...]
    random_state: str
    """The variable that random ops draw from, empty if there are none (docs/guide/random.md)."""
    max_batch: int
    """The largest batch that the class takes, 0 if no entry point has one."""
    calls: tuple[Call, ...]
    """What the goldens hold: calls in a row."""
    fingerprints: Fingerprints

    @property
    def written(self) -> tuple[Variable, ...]:
        """The variables that some run assigns."""
        return tuple(variable for variable in self.variables if variable.written)

    def entry_point(self, name: str) -> EntryPoint:
        """The entry point of this name."""
        return next(entry for entry in self.entry_points if entry.name == name)

    def only(self, name: str) -> Manifest:
        """A manifest of one entry point, as the compiler sees it; an empty name means the first.

        It has the entry point's own variables, the dtypes and shapes that cross its edge, and of a batch, the largest size
        that is compiled for.
        """
        entry = self.entry_point(name) if name else self.entry_points[0]
        largest = entry.batch_sizes[-1] if entry.batch_sizes else 0

        def seen(tensor: _T, batched: bool = False) -> _T:
            shape = (largest, *tensor.stored_shape[1:]) if batched else tensor.stored_shape
            return dataclasses.replace(tensor, dtype=tensor.stored, shape=shape)

        used = tuple(
            dataclasses.replace(seen(self.variables[use.variable]), written=use.written) for use in entry.variables
        )
        sizes = tuple(
            Output(out.size, f"{out.cpp_name}_size", "int32", (len(out.shape),), "int32", batched=False, size="")
            for out in entry.sized
        )
        entry = dataclasses.replace(
            entry,
            inputs=tuple(seen(tensor, tensor.batched) for tensor in entry.inputs),
            outputs=(*(dataclasses.replace(seen(t, t.batched), size="") for t in entry.outputs), *sizes),
            variables=tuple(Use(index, use.written) for index, use in enumerate(entry.variables)),
        )
        calls = tuple(call for call in self.calls if call.entry_point == entry.name)
        return dataclasses.replace(self, entry_points=(entry,), variables=used, calls=calls)

    def restored(self) -> tuple[tuple[Variable, ...], ...]:
        """For each call, the variables that the generated test gives TensorFlow's values before it.

        Each call is then compared by itself, and an error in one call does not widen what is accepted of the next. There are
        none before the first call, whose values are the initial ones, and none at all if they take more than `RESTORED` bytes.
        """
        result: list[tuple[Variable, ...]] = []
        changed = False
        for call in self.calls:
            entry = self.entry_point(call.entry_point)
            used = tuple(self.variables[use.variable] for use in entry.variables)
            result.append(tuple(variable for variable in used if variable.written) if changed else ())
            changed = changed or bool(self.written_by(entry))
        if sum(variable.bytes for variables in result for variable in variables) > RESTORED:
            return ((),) * len(self.calls)
        return tuple(result)

    def written_by(self, entry: EntryPoint) -> tuple[Variable, ...]:
        """The variables that an entry point assigns, in its result order."""
        return tuple(self.variables[use.variable] for use in entry.variables if use.written)

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
