"""What every way in gives: functions as graphs, over one set of variables.

A way in (`model_fn`, `functions`, `saved_model`, `graph_def`) is a `Source`. It finds the user's model once, and gives each
entry point as a `Function`; what comes after it, from fixing edges to the manifest, does not know which way a model came.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from tensorflow.core.framework import graph_pb2

from tfaot.core.errors import TfaotError, listed

Array = npt.NDArray[Any]
Shape = tuple[int | None, ...]


@dataclasses.dataclass(frozen=True)
class Edge:
    """A tensor that crosses the model's edge, before it has a C++ name."""

    name: str
    """TensorFlow's, `node:port`."""
    label: str
    """What the user calls it: a dict's key, a field, or the node's name; nested ones joined by `/`."""
    dtype: int
    """`tensorflow.DataType`."""
    shape: Shape | None
    """None if the rank is unknown."""
    source: str = ""
    """`file:line` in the user's code, or empty."""


@dataclasses.dataclass(frozen=True)
class Function:
    """One entry point as a graph with feeds and fetches."""

    name: str
    """The entry point's, as the user asked for it."""
    graph: graph_pb2.GraphDef
    """Need not be pruned. Each input is a Placeholder. Each variable is a VarHandleOp whose `shared_name` is the variable's
    name, the same in all functions of a source and of no other variable."""
    inputs: tuple[Edge, ...]
    outputs: tuple[Edge, ...]
    """Each is a node of its own, no Placeholder and no second name of another output, and runs after every side effect
    of the function: a run that fetches them is a whole run."""
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """`file:line` in the user's code, by node name, or `function/node` inside functions."""


class Source(Protocol):
    """A model, as its owner has it."""

    @property
    def entry_points(self) -> tuple[str, ...]:
        """The names that it offers, for messages."""
        ...

    @property
    def default_entry_point(self) -> str:
        """What `Run` is if the target names no entry points."""
        ...

    def function(self, entry_point: str, dims: Dims) -> Function:
        """Gives one entry point, its inputs' unknown dimensions fixed by `dims.fix`.

        Raises:
          TfaotError: there is none of this name, or the user's code raised, or dimensions do not fit.
        """
        ...

    def initial(self, names: Collection[str]) -> Mapping[str, Array]:
        """The initial values of these variables, by shared name.

        Raises:
          TfaotError: one has none.
        """
        ...

    def golden(
        self, entry_point: str, inputs: Sequence[Edge], step: int, rng: np.random.Generator
    ) -> Sequence[Array] | None:
        """The user's own inputs for a step that is verified, in the order of `inputs`; None if the user gives none."""
        ...


@dataclasses.dataclass(frozen=True)
class Dims:
    """Sizes that the BUILD file gives to dimensions that a model leaves open."""

    given: Mapping[str, Shape]
    """By an input's label; None keeps what the model says."""
    batched: bool = False
    """Whether the first dimension of inputs may stay open: it is the batch, which the compile stage fixes."""

    def fix(self, what: str, edges: Sequence[Edge]) -> tuple[Edge, ...]:
        """Returns the inputs with all dimensions known, or all but the first where it is the batch.

        Args:
          what: names the model or its file, for messages.
          edges: all inputs of an entry point.

        Raises:
          TfaotError: a given shape contradicts the model's, or a dimension stays unknown; it lists all of them.
        """
        wrong: list[str] = []
        fixed: list[Edge] = []
        for edge in edges:
            shape = edge.shape
            given = self.given.get(edge.label)
            if given is not None:
                if shape is not None and len(given) != len(shape):
                    wrong.append(f"{edge.label} has {len(shape)} dimensions, {shown(shape)}, dims gives {shown(given)}")
                    continue
                known = shape if shape is not None else (None,) * len(given)
                if any(a is not None and b is not None and a != b for a, b in zip(known, given, strict=True)):
                    wrong.append(f"{edge.label} is {shown(known)}, dims says {shown(given)}")
                    continue
                shape = tuple(a if b is None else b for a, b in zip(known, given, strict=True))
            fixed.append(dataclasses.replace(edge, shape=shape))
        if wrong:
            raise TfaotError(
                f"{what}: dims contradicts the shape of {len(wrong)} input(s)",
                exists="; ".join(wrong),
                do="write None where the model's own size is right, and as many sizes as it has dimensions",
            )
        unknown = [edge for edge in fixed if edge.shape is None or None in edge.shape[1 if self.batched else 0 :]]
        if unknown:
            example = ", ".join(
                f'"{edge.label}": '
                + ("[1, 2, 3]" if edge.shape is None else str([1 if size is None else size for size in edge.shape]))
                for edge in unknown
            )
            raise TfaotError(
                f"{what}: {len(unknown)} input(s) have dimensions that are not known before running",
                exists="; ".join(
                    f"{edge.label} {shown(edge.shape)}" + (f" at {edge.source}" if edge.source else "")
                    for edge in unknown
                ),
                do=f"fix them in the model, or in the target: dims = {{{example}}}",
            )
        return tuple(fixed)

    def check_used(self, what: str, labels: Collection[str]) -> None:
        """Every name in `dims` must be an input's.

        Raises:
          TfaotError: some are not; it lists them, and the inputs.
        """
        if unused := sorted(set(self.given) - set(labels)):
            raise TfaotError(
                f"{what}: dims names {listed(unused)}, which the model has no input of",
                exists=listed(sorted(labels)),
                do="name inputs as they are called here",
            )


def shown(shape: Shape | None) -> str:
    """`[64, None]`, for messages."""
    if shape is None:
        return "(unknown rank)"
    return "[" + ", ".join("None" if size is None else str(size) for size in shape) + "]"
