"""Models as functions that JAX exported: StableHLO with names, variables, and inputs to verify (`core/programs.py`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tfaot.core import caller, programs
from tfaot.core.errors import TfaotError, listed
from tfaot.export.sources import golden_inputs
from tfaot.export.sources.functions import Leaf
from tfaot.export.sources.mlir import Type, dtype_of
from tfaot.export.sources.stablehlo import ENTRY_POINT, StablehloSource
from tfaot.export.traced import Array, Dims, Edge, Function


class JaxSource:
    """Programs from a file."""

    def __init__(self, path: str, rank: int = 0) -> None:
        """Reads the file, with the inputs to verify of the replica of a rank.

        Raises:
          TfaotError: it isn't such a file.
        """
        self._programs = programs.read(path)
        self._file, self._rank = path, rank
        self._path = self._programs.source
        self._types: dict[str, Type] = {}

    def of_replica(self, rank: int) -> JaxSource:
        """Returns the same with the inputs to verify of another replica."""
        return JaxSource(self._file, rank)

    @property
    def entry_points(self) -> tuple[str, ...]:
        """The functions."""
        return tuple(program.name for program in self._programs.programs)

    @property
    def default_entry_point(self) -> str:
        """The first function."""
        return self.entry_points[0]

    @property
    def unset(self) -> frozenset[str]:
        """The variables of which only the shape is known. They start at zero."""
        return frozenset(self._types.keys() - self._programs.values.keys())

    def function(self, entry_point: str, dims: Dims) -> Function:
        """Converts a program to a graph; see `traced.Source`."""
        program = self._programs.program(entry_point)
        if program is None:
            raise TfaotError(
                f"{self._path} has no entry point {entry_point!r}",
                exists=listed(self.entry_points),
                do=f"name one of these in {caller.the('entry_points')}",
            )
        source = StablehloSource(self._path, program)
        for name, type_ in source.variables.items():
            if type_ != self._types.setdefault(name, type_):
                raise TfaotError(
                    f"{self._path}: entry points have different types of the variable {name}",
                    exists=f"{type_} in {entry_point}, and {self._types[name]}",
                    do="give it one shape and one dtype in all of them",
                )
        return source.function(ENTRY_POINT, dims)

    def initial(self, names: Collection[str]) -> Mapping[str, Array]:
        """Returns the values that the user gave, or zeros; see `traced.Source`."""
        values = self._programs.values
        for name in names:
            if name in values and values[name].shape != self._types[name].shape:
                raise TfaotError(
                    f"{self._path}: the variable {name} is split over replicas, and all start with the same values",
                    exists=f"values of shape {list(values[name].shape)}, of which a replica has {self._types[name]}",
                    do="give only its shape, jax.ShapeDtypeStruct, and let each replica of your program load or set its own part",
                )
        return {name: values[name] if name in values else _zeros(self._types[name]) for name in names}

    def golden(
        self, entry_point: str, inputs: Sequence[Edge], step: int, rng: np.random.Generator
    ) -> Sequence[Array] | None:
        """Returns what the file's `golden_fn` gave, or None if there is none."""
        start = f"{programs.of_replica(self._rank)}step{step}/"
        leaves = [
            Leaf(tuple(name.removeprefix(start).split("/")), value)
            for name, value in self._programs.golden.items()
            if name.startswith(start)
        ]
        return golden_inputs.in_order(self._path, leaves, entry_point, inputs) if self._programs.golden else None


def _zeros(type_: Type) -> Array:
    return np.zeros([size or 0 for size in type_.shape], dtype_of(type_))
