"""Inputs to verify that the target names: a Python file with `golden_fn`, or a file of arrays, for models from any source."""

from __future__ import annotations

import re
import sys
import zipfile
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from tfaot.core import caller, safetensors
from tfaot.core.errors import TfaotError, listed
from tfaot.core.user_code import MODULE
from tfaot.export.sources.functions import Leaf, leaves_of
from tfaot.export.sources.user_code import UserCode
from tfaot.export.traced import Array, Dims, Edge, Function, Source

_OF_A_STEP = re.compile(r"step(\d+)/(.+)", re.DOTALL)


class GivenInputs:
    """A source with other inputs to verify; see `traced.Source`."""

    def __init__(self, source: Source, path: str) -> None:
        """`path` is that of the inputs."""
        self._source = source
        self.path = path
        self._labels: set[str] = set()
        self._read: _Arrays | UserCode | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)  # what only some sources have

    @property
    def entry_points(self) -> tuple[str, ...]:
        """Those of the source."""
        return self._source.entry_points

    @property
    def default_entry_point(self) -> str:
        """That of the source."""
        return self._source.default_entry_point

    def function(self, entry_point: str, dims: Dims) -> Function:
        """Returns the source's function."""
        function = self._source.function(entry_point, dims)
        self._labels |= {edge.label for edge in function.inputs}
        return function

    def initial(self, names: Collection[str]) -> Mapping[str, Array]:
        """Returns the source's values."""
        return self._source.initial(names)

    def golden(
        self, entry_point: str, inputs: Sequence[Edge], step: int, rng: np.random.Generator
    ) -> Sequence[Array] | None:
        """Returns what the file has for a step, or None if it has nothing for it."""
        if self._read is None:
            self._read = _file(self.path) if self.path.endswith(".py") else _Arrays(self.path, self._labels)
        if isinstance(self._read, _Arrays):
            return self._read.of(entry_point, inputs, step)
        return called(self._read, entry_point, inputs, step, rng)

    def check_steps(self, count: int) -> None:
        """Checks that a file of arrays has none for steps that nothing verifies.

        Raises:
          TfaotError: it has some.
        """
        if isinstance(self._read, _Arrays):
            self._read.check_steps(count)


def called(
    user: UserCode, entry_point: str, inputs: Sequence[Edge], step: int, rng: np.random.Generator
) -> Sequence[Array]:
    """Returns the flattened result of a file's `golden_fn(step, rng)` or `golden_fn(step, rng, entry_point)`.

    Raises:
      TfaotError: it raised an exception, or returned something else.
    """
    return in_order(user.path, leaves_of(user.call_with("golden_fn", [step, rng], entry_point)), entry_point, inputs)


def in_order(path: str, leaves: Sequence[Leaf], entry_point: str, inputs: Sequence[Edge]) -> Sequence[Array]:
    """Returns what a file's `golden_fn` gave, in the order of the inputs.

    Raises:
      TfaotError: it isn't what the entry point takes.
    """
    values = _in_order(leaves, [edge.label for edge in inputs])
    if values is None:
        raise TfaotError(
            f"{path}: golden_fn returned {len(leaves)} array(s) for {entry_point}"
            + (f": {listed(['/'.join(leaf.keys) or '(alone)' for leaf in leaves])}" if leaves else ""),
            exists="it takes " + listed([edge.label for edge in inputs]),
            do="return one array for each input, in the nest in which the function takes them",
        )
    return values


def _in_order(leaves: Sequence[Leaf], labels: Sequence[str]) -> list[Array] | None:
    """Returns values in the order of the inputs: as given, or by name if all have names. None if they don't fit."""
    names = ["/".join(leaf.keys) for leaf in leaves]
    if sorted(names) == sorted(labels):
        by_name = dict(zip(names, leaves, strict=True))
        return [np.asarray(by_name[label].value) for label in labels]
    # A position doesn't count as a name: `0/age` fits `age` and `features/age`.
    said = [[key for key in leaf.keys if not key.isdigit()] for leaf in leaves]
    if len(leaves) != len(labels) or not all(
        f"/{label}".endswith("".join(f"/{key}" for key in keys)) for label, keys in zip(labels, said, strict=True)
    ):
        return None
    return [np.asarray(leaf.value) for leaf in leaves]


def _file(path: str) -> UserCode:
    """Runs a file that defines `golden_fn`."""
    # TensorFlow looks for the model's own module under the name that this file gets.
    own = sys.modules.get(MODULE)
    user = UserCode(path)
    if own is not None:
        sys.modules[MODULE] = own
    if not callable(getattr(user.module, "golden_fn", None)):
        raise TfaotError(
            f"{path} is {caller.the('golden_inputs')}, and defines no golden_fn(step, rng)",
            exists=listed(sorted(name for name in vars(user.module) if not name.startswith("_"))),
            do="define golden_fn(step, rng) in it: it returns a dict from inputs to arrays",
        )
    return user


class _Arrays:
    """A file of arrays: by the inputs' names for every step, or by `stepN/NAME` for one."""

    def __init__(self, path: str, labels: Collection[str]) -> None:
        self._path = path
        self._arrays = _read(path)
        unknown = [key for key in self._arrays if key not in labels and _split(key)[1] not in labels]
        if unknown:
            raise TfaotError(
                f"{path}: {len(unknown)} array(s) of {caller.the('golden_inputs')} aren't named as inputs: {listed(unknown)}",
                exists="the inputs are " + listed(sorted(labels)),
                do="name each array as its input, for all steps, or stepN/INPUT, for one",
            )

    def of(self, entry_point: str, inputs: Sequence[Edge], step: int) -> Sequence[Array] | None:
        """Returns the arrays of a step, or None if there are none."""
        arrays = {
            edge.label: self._arrays.get(f"step{step}/{edge.label}", self._arrays.get(edge.label)) for edge in inputs
        }
        missing = [label for label, value in arrays.items() if value is None]
        if len(missing) == len(arrays):
            return None
        if missing:
            raise TfaotError(
                f"{self._path}: {caller.the('golden_inputs')} lack {listed(missing)} in step {step}, which runs {entry_point}",
                exists=listed(sorted(set(arrays) - set(missing))),
                do=f"add an array {missing[0]}, or step{step}/{missing[0]}; a step of which the file has no array gets random ones",
            )
        return [value for value in arrays.values() if value is not None]

    def check_steps(self, count: int) -> None:
        """Checks that all arrays are used."""
        if late := [key for key in self._arrays if int(_split(key)[0] or 0) >= count]:
            raise TfaotError(
                f"{self._path}: {caller.the('golden_inputs')} have arrays for steps that nothing verifies: {listed(late)}",
                exists=f"{count} step(s), from step0 to step{count - 1}",
                do=f"raise {caller.option('golden_steps')}, or remove these arrays",
            )


def _split(key: str) -> tuple[str, str]:
    """Returns the step and the input that a name says, or nothing for a name without a step."""
    match = _OF_A_STEP.fullmatch(key)
    return (match[1], match[2]) if match else ("", "")


def _read(path: str) -> Mapping[str, Array]:
    """Returns a file's arrays.

    Raises:
      TfaotError: it isn't such a file.
    """
    if path.endswith(".safetensors"):
        return safetensors.read(path)
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (AttributeError, OSError, ValueError, zipfile.BadZipFile) as error:
        raise TfaotError(
            f"{path} is {caller.the('golden_inputs')}, and can't be read: {error}",
            exists="something other than arrays of NumPy",
            do='write it with numpy.savez(path, **{"step0/x": array}), without arrays of objects, or as a safetensors file',
        ) from None
