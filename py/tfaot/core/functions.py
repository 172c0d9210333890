"""The functions of a model: what one run of the compiler makes."""

from __future__ import annotations

import dataclasses
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
    """What belongs to a CPU level, of several things that are called `name`."""
    return f"{name}_{isa.replace('-', '_')}"


def function(manifest: Manifest, entry_point: str, batch: int) -> Function:
    """The function that a stage is asked for.

    Args:
      manifest: the model's.
      entry_point: its name; empty for the only one.
      batch: the size of batch, 0 if the entry point has none.

    Raises:
      TfaotError: the model has no such function.
    """
    for found in _functions(manifest):
        if (found.entry_point.name, found.batch) == (_name(manifest, entry_point), batch):
            return found
    raise _differs(manifest, [(entry_point, batch)])


def functions(manifest: Manifest, named: Sequence[tuple[str, int]]) -> tuple[Function, ...]:
    """The functions of a model in the manifest's order; the rules, which name their files, and the manifest must agree on them.

    Args:
      manifest: the model's.
      named: name of the entry point and size of batch of each function, as of `function`.

    Raises:
      TfaotError: the model has others, or one is named twice.
    """
    found = _functions(manifest)
    keys = [(function.entry_point.name, function.batch) for function in found]
    if sorted((_name(manifest, entry_point), batch) for entry_point, batch in named) != sorted(keys):
        raise _differs(manifest, named)
    return found


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
    """The name in the manifest of what a stage calls an entry point: the only one may go without."""
    return manifest.entry_points[0].name if not entry_point and _single(manifest) else entry_point


def _differs(manifest: Manifest, named: Sequence[tuple[str, int]]) -> TfaotError:
    def shown(functions: Sequence[tuple[str, int]]) -> str:
        return listed(
            [(name or "the only entry point") + (f" for batches of {b}" if b else "") for name, b in functions]
        )

    return TfaotError(
        f"{manifest.cpp_class}: the stage is asked for {shown(named)}",
        exists="the manifest has " + shown([(each.entry_point.name, each.batch) for each in _functions(manifest)]),
        do="name each function of the manifest once: an entry point with one of its batch sizes, or 0 if it has none",
    )
