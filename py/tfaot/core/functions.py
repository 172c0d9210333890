"""The functions of a model. Each is the result of one run of the compiler."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from tfaot.core import names
from tfaot.core.errors import TfaotError, listed
from tfaot.core.manifest import EntryPoint, Manifest


@dataclasses.dataclass(frozen=True)
class Function:
    """The result of one compiler run: an entry point at one batch size."""

    entry_point: EntryPoint
    batch: int
    """0 if the entry point has no batch."""
    symbol: str
    """Unique among the functions of a program."""

    @property
    def internal_class(self) -> str:
        """The class that the private header declares. Its name differs from the public one, down to its C symbols."""
        return f"tfaot_internal::{self.symbol}"

    @property
    def cost(self) -> str:
        """The constant in the private header that estimates the cost of a run, relative to other batch sizes."""
        return f"tfaot_internal::{self.symbol}_cost"


def for_isa(name: str, isa: str) -> str:
    """Returns the name of a CPU level's variant of `name`."""
    return f"{name}_{re.sub('[-+.]', '_', isa)}"


def stem(entry_point: str, batch: int) -> str:
    """Returns the start of the names of a function's files, for stages that write a folder with those of all functions."""
    return entry_point + (f".b{batch}" if batch else "")


def function(manifest: Manifest, entry_point: str, batch: int) -> Function:
    """Returns the function that a stage is asked for.

    Args:
      manifest: the model's manifest.
      entry_point: its name; empty for the only one.
      batch: the batch size, 0 if the entry point has no batch.

    Raises:
      TfaotError: the model has no such function.
    """
    for candidate in _functions(manifest):
        if (candidate.entry_point.name, candidate.batch) == (_name(manifest, entry_point), batch):
            return candidate
    raise _differs(manifest, [(entry_point, batch)])


def functions(manifest: Manifest, named: Sequence[tuple[str, int]]) -> tuple[Function, ...]:
    """Returns a model's functions in the manifest's order. The rules, which name their files, must agree with the manifest.

    Args:
      manifest: the model's manifest.
      named: the name of the entry point and the batch size of each function, as in `function`.

    Raises:
      TfaotError: the model has other functions, or one is named twice.
    """
    own = _functions(manifest)
    keys = [(function.entry_point.name, function.batch) for function in own]
    if sorted((_name(manifest, entry_point), batch) for entry_point, batch in named) != sorted(keys):
        raise _differs(manifest, named)
    return own


def _functions(manifest: Manifest) -> tuple[Function, ...]:
    symbol = names.symbol(manifest.cpp_class)
    result = []
    for index, entry in enumerate(manifest.entry_points):
        for batch in entry.batch_sizes or (0,):
            part = "" if _single(manifest) else f"_{index}"
            result.append(Function(entry, batch, symbol + part + (f"_b{batch}" if batch else "")))
    return tuple(result)


def _single(manifest: Manifest) -> bool:
    return len(manifest.entry_points) == 1


def _name(manifest: Manifest, entry_point: str) -> str:
    """Returns the manifest's name for a stage's entry point. The only entry point can omit its name."""
    return manifest.entry_points[0].name if not entry_point and _single(manifest) else entry_point


def _differs(manifest: Manifest, named: Sequence[tuple[str, int]]) -> TfaotError:
    def shown(functions: Sequence[tuple[str, int]]) -> str:
        return listed(
            [(name or "the only entry point") + (f" for batches of {b}" if b else "") for name, b in functions]
        )

    return TfaotError(
        f"{manifest.cpp_class}: the stage got the wrong functions: {shown(named)}",
        exists="the manifest has " + shown([(own.entry_point.name, own.batch) for own in _functions(manifest)]),
        do="name each function of the manifest once: an entry point with one of its batch sizes, or 0 if it has none",
    )
