"""The result of every source of models: functions as graphs, over one set of variables.

Each kind of model (`model_fn`, `functions`, `saved_model`, `graph_def`) has a `Source`. It finds the user's model once, and returns
each entry point as a `Function`. The later steps, from fixing edges to the manifest, don't know which source a model came from.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from tensorflow.core.framework import graph_pb2

from tfaot.core import buckets, caller
from tfaot.core.errors import TfaotError, listed
from tfaot.core.manifest import Axis

Array = npt.NDArray[Any]
Shape = tuple[int | None, ...]


@dataclasses.dataclass(frozen=True)
class Edge:
    """A tensor that crosses the model's edge, before it has a C++ name."""

    name: str
    """TensorFlow's name, `node:port`."""
    label: str
    """The user's name: a dict key, a field, or the node's name. Nested names are joined by `/`."""
    dtype: int
    """`tensorflow.DataType`."""
    shape: Shape | None
    """None if the rank is unknown."""
    source: str = ""
    """`file:line` in the user's code, or empty."""
    axes: tuple[Axis, ...] = ()
    """The dimensions that have an open size. The shape has its largest bucket, and the placeholder leaves them open."""
    open_size: bool = False
    """Whether it is an open size."""

    @property
    def open_dims(self) -> frozenset[int]:
        """The dimensions that have an open size."""
        return frozenset(axis.dim for axis in self.axes)


@dataclasses.dataclass(frozen=True)
class Requirement:
    """What must hold for open sizes, besides their ranges: a sum of them is at least 0, is 0, or is a multiple of a number."""

    text: str
    """As the user wrote it: `t <= s`."""
    factors: Mapping[str, int]
    """By the sizes' names."""
    constant: int = 0
    equal: bool = False
    """Whether the sum must be 0."""
    modulus: int = 0
    """The number of which the sum must be a multiple, or 0."""


@dataclasses.dataclass(frozen=True)
class Function:
    """One entry point as a graph with feeds and fetches."""

    name: str
    """The entry point's name, as the user requested it."""
    graph: graph_pb2.GraphDef
    """Need not be pruned. Each input is a Placeholder. Each variable is a VarHandleOp whose `shared_name` is the variable's
    name, which is the same in all functions of a source and unique among variables."""
    inputs: tuple[Edge, ...]
    outputs: tuple[Edge, ...]
    """Each is a separate node, not a Placeholder and not another output's alias, and runs after every side effect of the
    function. A run that fetches them is a complete run."""
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """`file:line` in the user's code, by node name, or `function/node` inside functions."""
    resources: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """What the function uses besides tensors and variables, and where, by node. Lookup tables are nodes that fill them
    (`sources/tables.py`), which TensorFlow can run. Other resources are Placeholders, and nothing can run these."""
    requirements: tuple[Requirement, ...] = ()
    """What the model requires of open sizes."""


def check_resources(what: str, resources: Iterable[str], *, do: str) -> None:
    """Checks that there are no resources other than variables.

    Args:
      what: names the function, for messages.
      resources: what they are, and where.
      do: what to do about them.

    Raises:
      TfaotError: there are some.
    """
    if strange := list(resources):
        raise TfaotError(
            f"{what}: the function uses {len(strange)} resource(s) other than variables", exists=listed(strange), do=do
        )


class Source(Protocol):
    """A model in its user's form."""

    @property
    def entry_points(self) -> tuple[str, ...]:
        """The available names, for messages."""
        ...

    @property
    def default_entry_point(self) -> str:
        """The entry point for `Run` if the target names no entry points."""
        ...

    def function(self, entry_point: str, dims: Dims) -> Function:
        """Returns one entry point, with its inputs' unknown dimensions fixed by `dims.fix`.

        Raises:
          TfaotError: there is no entry point with this name, the user's code raised an exception, or dimensions don't fit.
        """
        ...

    def initial(self, names: Collection[str]) -> Mapping[str, Array]:
        """Returns the initial values of these variables, by shared name.

        Raises:
          TfaotError: a variable has no initial value.
        """
        ...

    def golden(
        self, entry_point: str, inputs: Sequence[Edge], step: int, rng: np.random.Generator
    ) -> Sequence[Array] | None:
        """Returns the user's own inputs for a step to verify, in the order of `inputs`, or None if there are none."""
        ...


@dataclasses.dataclass(frozen=True)
class Dims:
    """The BUILD file's sizes for dimensions that a model leaves open."""

    sizes: Mapping[str, Shape]
    """By an input's label. None keeps the model's own size."""
    batched: bool = False
    """Whether the first dimension of inputs can stay open. It is the batch, which the compile stage fixes."""
    named: Mapping[str, Mapping[int, str]] = dataclasses.field(default_factory=dict)
    """Dimensions that stay open: the name of their size, by an input's label and the dimension."""

    def fix(self, what: str, edges: Sequence[Edge]) -> tuple[Edge, ...]:
        """Returns the inputs with all dimensions known, or all but the first if it is the batch.

        Args:
          what: names the model or its file, for messages.
          edges: all inputs of an entry point.

        Raises:
          TfaotError: a given shape contradicts the model's, or a dimension stays unknown. The message lists all of them.
        """
        wrong: list[str] = []
        fixed: list[Edge] = []
        for edge in edges:
            shape = edge.shape
            asked = self.sizes.get(edge.label)
            if asked is not None:
                if shape is not None and len(asked) != len(shape):
                    wrong.append(
                        f"{edge.label} has {len(shape)} dimensions, {shown(shape)}, but {caller.option('dims')} has {shown(asked)}"
                    )
                    continue
                own = shape if shape is not None else (None,) * len(asked)
                names = self.named.get(edge.label, {})
                if any(a is not None and b is not None and a != b for a, b in zip(own, asked, strict=True)) or any(
                    own[axis] is not None for axis in names
                ):
                    wanted = [names.get(axis, size) for axis, size in enumerate(asked)]
                    wrong.append(f"{edge.label} is {shown(own)}, but {caller.option('dims')} has {shown(wanted)}")
                    continue
                shape = tuple(a if b is None else b for a, b in zip(own, asked, strict=True))
            fixed.append(dataclasses.replace(edge, shape=shape))
        if wrong:
            raise TfaotError(
                f"{what}: {caller.option('dims')} contradicts the shape of {len(wrong)} input(s)",
                exists="; ".join(wrong),
                do=f"use {'None' if caller.in_bazel() else '?'} to keep the model's own size, and list a size for every dimension",
            )
        if large := [e for e in fixed if math.prod(size or 1 for size in e.shape or ()) >= 2**63]:
            raise TfaotError(
                f"{what}: {len(large)} input(s) have more values than TensorFlow can count",
                exists="; ".join(f"{edge.label} {shown(edge.shape)}" for edge in large),
                do="use sizes with a product below 2**63",
            )
        unknown = [edge for edge in fixed if edge.shape is None or self._unknown(edge)]
        if unknown:
            sizes = ", with your sizes in place of 1" if any(edge.shape for edge in unknown) else ""
            example = {edge.label: tuple(self._example(edge)) for edge in unknown}
            if any(edge.shape is None for edge in unknown):
                empty = "[]" if caller.in_bazel() else "nothing"
                sizes += f"; of an unknown rank, write a size for each dimension, or {empty} for a scalar"
            rows = not self.batched and any(edge.shape and edge.shape[0] is None for edge in unknown)
            batch = f"; any number of rows is {caller.option('batch_sizes')}" if rows else ""
            raise TfaotError(
                f"{what}: {len(unknown)} input(s) have dimensions that aren't known at build time",
                exists="; ".join(
                    f"{edge.label} {shown(edge.shape)}" + (f" at {edge.source}" if edge.source else "")
                    for edge in unknown
                ),
                do=f"fix them in the model, or with {caller.setting('dims', example)}{sizes}{batch}"
                + _lengths(unknown, example),
            )
        return tuple(fixed)

    def axes(self, edge: Edge) -> Mapping[int, str]:
        """Returns the names of open sizes by the dimensions of an input that have them."""
        return self.named.get(edge.label, {})

    def _unknown(self, edge: Edge) -> list[int]:
        """Returns the dimensions that have no size, and must have one."""
        free = {*self.axes(edge), *([0] if self.batched else [])}
        return [axis for axis, size in enumerate(edge.shape or ()) if size is None and axis not in free]

    def _example(self, edge: Edge) -> Iterator[int | str | None]:
        """Yields an example of sizes. The batch stays open."""
        names = self.named.get(edge.label, {})
        for axis, size in enumerate(edge.shape or ()):
            yield names.get(axis) or (None if self.batched and not axis else size or 1)

    def check_used(self, what: str, labels: Collection[str]) -> None:
        """Checks that every name in `dims` is an input's.

        Raises:
          TfaotError: some aren't. The message lists them, and the inputs.
        """
        if unused := sorted(set(self.sizes) - set(labels)):
            raise TfaotError(
                f"{what}: {caller.option('dims')} names {listed(unused)}, which isn't an input of the model",
                exists=listed(sorted(labels)),
                do="use the names listed here",
            )


def _lengths(unknown: Sequence[Edge], example: Mapping[str, Sequence[int | str | None]]) -> str:
    """Returns how to take a size that differs from call to call, if one after the first dimension is unknown."""
    dims = {}
    for edge in unknown:
        axis = (edge.shape or ()).index(None, 1) if None in (edge.shape or ())[1:] else 0
        if axis:
            dims[edge.label] = [*example[edge.label][:axis], "length", *example[edge.label][axis + 1 :]]
    if not dims:
        return ""
    between = ", " if caller.in_bazel() else " "
    setting = f"{caller.setting('dims', dims)}{between}{caller.setting('sizes', {'length': buckets.EXAMPLE})}"
    return f"; a length that differs from call to call is {setting} (docs/guide/sizes.md)"


def shown(shape: Sequence[int | str | None] | None) -> str:
    """Formats a shape for messages: `[64, None]`."""
    if shape is None:
        return "(unknown rank)"
    return "[" + ", ".join("None" if size is None else str(size) for size in shape) + "]"
