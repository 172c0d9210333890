"""`model.json`: the only channel between the Python stages.

The export stage writes it, and every later stage reads it and derives whatever else it needs. Reading is strict: an
unknown, missing, or mistyped field is an error, so two versions of the rules can't half understand each other. The file
contains no path, time, or host feature, so two machines write the same bytes.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from tfaot.core import dtypes
from tfaot.core.errors import TfaotError

_T = TypeVar("_T", bound="Tensor")

RESTORED = 64 << 20
"""How many bytes of variables the goldens can contain to set the model's state before calls."""

FORMAT = 5
"""Incremented whenever the meaning of a field changes."""


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A value that crosses the model's edge."""

    name: str
    """TensorFlow's name: `node:port`, or a variable's `shared_name`."""
    cpp_name: str
    """The member of the generated class that returns its view."""
    dtype: str
    """A name of `tfaot.core.dtypes`."""
    shape: tuple[int, ...]
    """All dimensions are known, row-major, in TensorFlow's order. With a batch, the first is the largest batch that the
    class takes. Open sizes are their largest buckets. Sizes of a bounded result are bounds."""
    stored: str
    """The dtype as the compiler sees it, which refuses some at the edge. There, the graph converts float16 and bfloat16 to
    and from their bits as uint16, and complex numbers to and from pairs of reals, bit by bit."""

    @property
    def count(self) -> int:
        """The number of values."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """The size in bytes, without padding."""
        return self.count * dtypes.BY_NAME[self.dtype].bytes

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape as the compiler sees it. Complex numbers that are stored as pairs have a last dimension of 2."""
        parts = dtypes.BY_NAME[self.dtype].parts
        return (*self.shape, parts) if self.stored != self.dtype and parts > 1 else self.shape


@dataclasses.dataclass(frozen=True)
class Axis:
    """A dimension of an input that has an open size."""

    dim: int
    size: int
    """The index of the size among those of the entry point."""


@dataclasses.dataclass(frozen=True)
class Input(Tensor):
    """An input of an entry point."""

    batched: bool
    """Whether its first dimension is the batch."""
    axes: tuple[Axis, ...] = ()
    """The dimensions that have an open size."""

    def at(self, rows: int, sizes: Sequence[int]) -> tuple[int, ...]:
        """Returns the shape for a number of rows, and for a value of each open size of the entry point."""
        shape = [*self.shape]
        if self.batched:
            shape[0] = rows
        for axis in self.axes:
            shape[axis.dim] = sizes[axis.size]
        return tuple(shape)


@dataclasses.dataclass(frozen=True)
class Output(Tensor):
    """An output of an entry point."""

    batched: bool
    """Whether its first dimension is the batch."""
    size: str
    """If the true size is known only at run time, the fetch that returns it: `node:port`, int32[rank]. Otherwise empty."""


@dataclasses.dataclass(frozen=True)
class Variable(Tensor):
    """A resource variable that is an argument of the compiled code."""

    written: bool
    """Whether any entry point assigns it. If not, it is read-only."""
    offset: int
    """Where its initial value starts in the data of the variables file, in bytes."""
    unset: bool = False
    """Whether the model has no value for it. It then starts at zero, and tests set it before each call."""


@dataclasses.dataclass(frozen=True)
class Use:
    """How an entry point uses a variable."""

    variable: int
    """Its index among the manifest's variables."""
    written: bool


@dataclasses.dataclass(frozen=True)
class OpenSize:
    """A size that differs from call to call, and is an input."""

    name: str
    """The C++ name of the input, an int32."""
    buckets: tuple[int, ...]
    """The sizes that the entry point is compiled for, ascending. Each serves all sizes up to itself."""


@dataclasses.dataclass(frozen=True)
class Requirement:
    """What must hold for the open sizes of an entry point, besides their ranges: their sum, each times a factor, isn't negative."""

    text: str
    """As the model has it: `t <= s`."""
    factors: tuple[int, ...]
    """For each size."""
    constant: int
    """What the sum has besides."""
    equal: bool
    """Whether the sum must be 0 instead."""
    modulus: int
    """The number that the sum must be a multiple of instead, or 0."""

    def holds(self, sizes: Sequence[int]) -> bool:
        """Returns whether sizes fulfill it."""
        total = self.constant + sum(factor * size for factor, size in zip(self.factors, sizes, strict=True))
        if self.modulus:
            return total % self.modulus == 0
        return total == 0 if self.equal else total >= 0


@dataclasses.dataclass(frozen=True)
class EntryPoint:
    """One function of the generated class."""

    name: str
    """The user's name for it, or `Run` if there is only one."""
    cpp_name: str
    """The member function."""
    inputs: tuple[Input, ...]
    """In the compiler's argument order. The variables follow them."""
    outputs: tuple[Output, ...]
    """In the compiler's result order. The sizes of bounded outputs follow them, then the written variables."""
    variables: tuple[Use, ...]
    """In the compiler's argument order. The written ones are also in its result order."""
    batch_sizes: tuple[int, ...]
    """The batch sizes that it is compiled for, ascending. Empty if it has no batch."""
    sizes: tuple[OpenSize, ...] = ()
    """The open sizes of its inputs."""
    requirements: tuple[Requirement, ...] = ()

    def allows(self, sizes: Sequence[int]) -> bool:
        """Returns whether open sizes, which are in range, fulfill all requirements."""
        return all(requirement.holds(sizes) for requirement in self.requirements)

    @property
    def buckets(self) -> tuple[tuple[int, ...], ...]:
        """All that it is compiled for besides batch sizes: a bucket of each open size, and one empty tuple if it has none."""
        return tuple(itertools.product(*(size.buckets for size in self.sizes)))

    @property
    def variants(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """What it is compiled for: a batch size, 0 if it has none, and a bucket of each open size."""
        return tuple((batch, buckets) for buckets in self.buckets for batch in self.batch_sizes or (0,))

    def open_size(self, tensor: Tensor) -> int | None:
        """Returns which of the open sizes an input is, or None if it is none of them."""
        return next((index for index, size in enumerate(self.sizes) if size.name == tensor.cpp_name), None)

    @property
    def feeds(self) -> tuple[str, ...]:
        """TensorFlow's names of the tensors that a run feeds."""
        return tuple(tensor.name for tensor in self.inputs)

    @property
    def fetches(self) -> tuple[str, ...]:
        """TensorFlow's names of the tensors that a run fetches."""
        return (*(output.name for output in self.outputs), *(output.size for output in self.sized))

    @property
    def sized(self) -> tuple[Output, ...]:
        """The outputs whose size is known only at run time."""
        return tuple(output for output in self.outputs if output.size)


@dataclasses.dataclass(frozen=True)
class Call:
    """One call in the sequence that the generated test makes."""

    entry_point: str
    batch: int
    """The number of rows it passes, or 0 if the entry point has no batch."""
    sizes: tuple[int, ...] = ()
    """What it passes for each open size of the entry point."""


@dataclasses.dataclass(frozen=True)
class Frozen:
    """A variable that is a constant in the compiled code."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str
    """Hash of its dtype, shape, and values, in hexadecimal."""


@dataclasses.dataclass(frozen=True)
class Gradient:
    """The gradient of a variable, which one entry point returns and another one takes."""

    variable: int
    """Its index among the manifest's variables, as those of entry points, outputs, and inputs below."""
    computed_by: int
    output: int
    applied_by: int
    input: int


WEIGHT_DTYPES = ("bfloat16", "int8")
"""The dtypes other than their own in which a target can store its weights."""

TOLERANCE = 0.05
"""How much outputs may differ from those with float32 weights, relative to an output's largest value, by default."""


UNROUNDED = "unrounded/"
"""The start of the names of weights before rounding, in the file of golden inputs."""

OWN_GRAPH = "own_graph"
"""The name of the model's own graph, which takes inputs of any size, in the file of golden inputs. Only models with an open size
have it."""


@dataclasses.dataclass(frozen=True)
class Weights:
    """Weights that have been rounded, so that they can be stored in fewer bits."""

    rounded_to: str
    """One of `WEIGHT_DTYPES`. Empty if weights are as the model has them."""
    tolerance: float
    """How much outputs may differ from those with the model's own weights, relative to an output's largest value."""
    names: tuple[str, ...]
    """The constants: `node` in the graph, or `function/node` inside functions."""


@dataclasses.dataclass(frozen=True)
class Fingerprints:
    """What the export stage knows about a model's identity (`tfaot.core.fingerprint`): 64 bits each, as 16 hexadecimal digits.

    The values of variables that aren't frozen have no fingerprint here, or new weights would compile the code again.
    """

    graph: str
    """Ops, attributes, and edges, whatever the nodes' names."""
    shapes: str
    constants: str
    """Values of constants, frozen variables among them."""
    config: str
    """Names of the class's members, and which variables are written."""
    frozen: str
    """SHA-256 of all frozen weights. Identifies those in the code. Empty if there are none."""


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Everything that a later stage knows about a model."""

    format: int
    tensorflow: str
    """Version of the wheel whose graph builder and tfcompile are used."""
    cpp_class: str
    """With its namespaces, `a::b::Class`."""
    entry_points: tuple[EntryPoint, ...]
    variables: tuple[Variable, ...]
    """In the config's order, shared by all entry points."""
    frozen: tuple[Frozen, ...]
    random_state: str
    """The variable that random ops draw from. Empty if there are none (docs/guide/random.md)."""
    max_batch: int
    """The largest batch that the class takes, or 0 if no entry point has a batch."""
    calls: tuple[Call, ...]
    """The consecutive calls that the goldens contain."""
    fingerprints: Fingerprints
    weights: Weights = Weights("", 0.0, ())
    """Those that are stored in another dtype than the model's."""
    replicas: int = 1
    """How many instances run the model together, and exchange values in its collectives."""
    gradients: tuple[Gradient, ...] = ()
    """What programs can combine with other replicas' between two entry points."""

    @property
    def written(self) -> tuple[Variable, ...]:
        """The variables that any run assigns."""
        return tuple(variable for variable in self.variables if variable.written)

    def entry_point(self, name: str) -> EntryPoint:
        """Returns the entry point with this name."""
        return next(entry for entry in self.entry_points if entry.name == name)

    def only(self, name: str) -> Manifest:
        """Returns a manifest with one entry point, as the compiler sees it. An empty name means the first.

        It contains the entry point's own variables, and the dtypes and shapes that cross its edge. A batch has the largest
        size that is compiled.
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
        return dataclasses.replace(self, entry_points=(entry,), variables=used, calls=calls, gradients=())

    def restored(self) -> tuple[tuple[Variable, ...], ...]:
        """Returns, for each call, the variables that the generated test sets to TensorFlow's values before the call.

        This way, each call is compared on its own, and an error in one call doesn't widen the tolerance of the next. The
        first call uses the initial values, except of unset variables, which every call gets. There are none at all if they
        exceed `RESTORED` bytes.
        """
        result: list[tuple[Variable, ...]] = []
        changed = False
        for call in self.calls:
            entry = self.entry_point(call.entry_point)
            used = tuple(self.variables[use.variable] for use in entry.variables)
            result.append(tuple(variable for variable in used if variable.unset or (changed and variable.written)))
            changed = changed or bool(self.written_by(entry))
        if self.replicas * sum(variable.bytes for variables in result for variable in variables) > RESTORED:
            return ((),) * len(self.calls)
        return tuple(result)

    @property
    def free_run(self) -> bool:
        """Whether the generated test also makes a run in which each call continues from the variables that the last one left."""
        return any(variable.written for variables in self.restored()[1:] for variable in variables)

    def written_by(self, entry: EntryPoint) -> tuple[Variable, ...]:
        """Returns the variables that an entry point assigns, in its result order."""
        return tuple(self.variables[use.variable] for use in entry.variables if use.written)

    def to_json(self) -> str:
        """Serializes to the text of `model.json`."""
        return json.dumps(dataclasses.asdict(self), indent=1, sort_keys=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, path: str = "model.json") -> Manifest:
        """Reads the output of `to_json`.

        Raises:
          TfaotError: the text isn't JSON, has another format, or has an extra, missing, or mistyped field.
        """
        again = "build the model again with one version of rules_tfaot; the export stage writes this file"
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise TfaotError(f"{path} isn't a manifest: {error}", do=again) from None
        if isinstance(data, dict) and data.get("format") != FORMAT:
            raise TfaotError(
                f"{path} has format {data.get('format')!r}", exists=f"this version reads format {FORMAT}", do=again
            )
        try:
            manifest = read_fields(cls, data, "manifest")
        except Mismatch as mismatch:
            raise TfaotError(f"{path}: {mismatch}", do=again) from None
        assert isinstance(manifest, cls)
        return manifest


class Mismatch(Exception):
    """Data doesn't fit its declared type."""


def read_fields(kind: Any, data: Any, where: str) -> Any:
    """Converts parsed JSON to `kind`: a dataclass, a homogeneous tuple, or a plain type.

    Raises:
      Mismatch: the data has an extra, missing, or mistyped field.
    """
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(data, Mapping):
            raise Mismatch(f"{where} isn't an object")
        hints = typing.get_type_hints(kind)
        fields = [field.name for field in dataclasses.fields(kind)]
        if extra := sorted(set(data) - set(fields)):
            raise Mismatch(f"{where} has unknown fields {extra}")
        if missing := [field for field in fields if field not in data]:
            raise Mismatch(f"{where} doesn't have the fields {missing}")
        return kind(**{name: read_fields(hints[name], data[name], f"{where}.{name}") for name in fields})
    if typing.get_origin(kind) is tuple:
        if not isinstance(data, list):
            raise Mismatch(f"{where} isn't a list")
        item = typing.get_args(kind)[0]
        return tuple(read_fields(item, value, f"{where}[{index}]") for index, value in enumerate(data))
    if isinstance(kind, types.UnionType) or type(data) is not kind:
        raise Mismatch(f"{where} is {data!r}, not of type {getattr(kind, '__name__', kind)}")
    return data
