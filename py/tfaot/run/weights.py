"""Values of variables that models share, and exchange while they run."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tfaot.core.errors import TfaotError, listed
from tfaot.run import library as lib
from tfaot.run.library import Library
from tfaot.run.values import Array, converted, find


class Weights:
    """One version of the values of a model's variables. It never changes, and any number of models share it.

    `model.weights` is the first one. The others are made from it. Thread-safe.
    """

    def __init__(self, library: Library, handle: ctypes.c_void_p) -> None:
        self.library = library
        self.handle = handle

    def __del__(self) -> None:
        self.library.api.destroy_weights(self.handle)

    @property
    def version(self) -> int:
        """A number that no other weights of this library have."""
        return int(self.library.api.weights_version(self.handle))

    def load(self, path: str | os.PathLike[str], *, copied: bool = False) -> Weights:
        """Returns weights with the values of a safetensors file.

        Args:
          path: the file. It is mapped: you can delete it or replace it by rename, but not change it in place.
          copied: whether to read all values now, which suits network disks.

        Raises:
          ModelError: there is no such file, or it doesn't fit the model.
        """
        source = source_of(path, copied=copied)
        return self._made(self.library.api.load_weights, ctypes.byref(source))

    def update(self, values: Mapping[str, npt.ArrayLike] | None = None, /, **named: npt.ArrayLike) -> Weights:
        """Returns weights with these values, which share all others.

        Raises:
          TfaotError: there is no such variable, or it has another dtype or shape.
        """
        values_by_name, _arrays = values_of(self.library, {**(values or {}), **named})
        return self._made(self.library.api.update_weights, self.handle, values_by_name, len(values_by_name))

    def _made(self, function: Any, *arguments: Any) -> Weights:
        made = ctypes.c_void_p()
        self.library.check(function(*arguments, ctypes.byref(made)))
        return Weights(self.library, made)

    def __repr__(self) -> str:
        return f"<version {self.version} of the weights of {self.library.name}>"


class LiveWeights:
    """The version of weights that is current, for models that follow it: `model.follow(live)`.

    Each run uses one version as a whole: what is current when the run starts. Thread-safe.
    """

    def __init__(self, weights: Weights) -> None:
        self.library = weights.library
        self.handle = ctypes.c_void_p()
        self.library.check(self.library.api.create_live(weights.handle, ctypes.byref(self.handle)))

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self.library.api.destroy_live(self.handle)

    @property
    def current(self) -> Weights:
        """The current version."""
        made = ctypes.c_void_p()
        self.library.check(self.library.api.live_current(self.handle, ctypes.byref(made)))
        return Weights(self.library, made)

    def swap(self, weights: Weights) -> None:
        """Makes other weights of the same library current.

        Raises:
          ModelError: they are of another library.
        """
        self.library.check(self.library.api.live_swap(self.handle, weights.handle))

    def load(self, path: str | os.PathLike[str], *, copied: bool = False) -> None:
        """Makes the values of a safetensors file current, as `Weights.load` does.

        Raises:
          ModelError: there is no such file, or it doesn't fit the model. Nothing has changed.
        """
        source = source_of(path, copied=copied)
        self.library.check(self.library.api.live_load(self.handle, ctypes.byref(source)))

    def update(self, values: Mapping[str, npt.ArrayLike] | None = None, /, **named: npt.ArrayLike) -> None:
        """Gives some variables new values. Of two updates at the same time, none is lost.

        Raises:
          TfaotError: there is no such variable, or it has another dtype or shape. Nothing has changed.
        """
        values_by_name, _arrays = values_of(self.library, {**(values or {}), **named})
        self.library.check(self.library.api.live_update(self.handle, values_by_name, len(values_by_name)))

    def __repr__(self) -> str:
        return f"<live weights of {self.library.name}, now version {self.current.version}>"


def source_of(path: str | os.PathLike[str], *, copied: bool) -> lib.CSource:
    """Returns a file, as the library takes it."""
    return lib.CSource(os.fsencode(path), None, 0, -1, int(copied))


def values_of(library: Library, named: Mapping[str, npt.ArrayLike]) -> tuple[ctypes.Array[lib.CValue], list[Array]]:
    """Returns values of variables, as the library takes them, and the arrays that they are in.

    Raises:
      TfaotError: there is no such variable, or it has another dtype or shape.
    """
    values = (lib.CValue * len(named))()
    arrays = []
    for place, (name, value) in zip(values, named.items(), strict=True):
        tensor = find(library.variables, name)
        if tensor is None:
            raise TfaotError(
                f"{library.name}: there is no variable {name!r}",
                exists=f"it has {listed([variable.member for variable in library.variables]) or 'none'}",
                do="name one of these",
            )
        array = np.ascontiguousarray(converted(tensor, value, tensor.shape)).reshape(tensor.shape)
        arrays.append(array)
        place.name, place.data, place.bytes = tensor.name.encode(), array.ctypes.data, tensor.bytes
    return values, arrays
