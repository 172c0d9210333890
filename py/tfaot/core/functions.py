"""The functions of a model. Each is the result of one run of the compiler."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from tfaot.core import names
from tfaot.core.errors import TfaotError, listed
from tfaot.core.manifest import EntryPoint, Manifest

Key = tuple[str, int, tuple[int, ...]]
"""The name of an entry point, a batch size, 0 if it has no batch, and a bucket of each of its open sizes."""


@dataclasses.dataclass(frozen=True)
class Function:
    """The result of one compiler run: an entry point at one batch size and one bucket of each of its open sizes."""

    entry_point: EntryPoint
    batch: int
    """0 if the entry point has no batch."""
    buckets: tuple[int, ...]
    symbol: str
    """Unique among the functions of a program."""

    @property
    def key(self) -> Key:
        """What stages name it by."""
        return self.entry_point.name, self.batch, self.buckets

    @property
    def internal_class(self) -> str:
        """The class that the private header declares. Its name differs from the public one, down to its C symbols."""
        return f"tfaot_internal::{self.symbol}"

    @property
    def cost(self) -> str:
        """The constant in the private header that estimates the cost of a run, relative to other functions."""
        return f"tfaot_internal::{self.symbol}_cost"


def sizes_of(batch: int, buckets: Sequence[int]) -> str:
    """Returns what a function is compiled for, after its name in a sentence."""
    sizes = " and ".join(map(str, buckets))
    return (f" for batches of {batch}" if batch else "") + (f" for sizes up to {sizes}" if sizes else "")


def for_isa(name: str, isa: str) -> str:
    """Returns the name of a CPU level's variant of `name`."""
    return f"{name}_{re.sub('[-+.]', '_', isa)}"


def stem(entry_point: str, batch: int, buckets: Sequence[int] = ()) -> str:
    """Returns the start of the names of a function's files. `functions_of` in `rules/private/files.bzl` names them alike."""
    sizes = "x".join(map(str, buckets))
    return entry_point + (f".b{batch}" if batch else "") + (f".n{sizes}" if sizes else "")


def function(manifest: Manifest, entry_point: str, batch: int, buckets: Sequence[int] = ()) -> Function:
    """Returns the function that a stage is asked for.

    Args:
      manifest: the model's manifest.
      entry_point: its name; empty for the only one.
      batch: the batch size, 0 if the entry point has no batch.
      buckets: a bucket of each open size.

    Raises:
      TfaotError: the model has no such function.
    """
    wanted = (_name(manifest, entry_point), batch, tuple(buckets))
    for compiled in _functions(manifest):
        if compiled.key == wanted:
            return compiled
    raise _differs(manifest, [(entry_point, batch, tuple(buckets))])


def functions(manifest: Manifest, named: Sequence[Key]) -> tuple[Function, ...]:
    """Returns a model's functions in the manifest's order. The rules, which name their files, must agree with the manifest.

    Args:
      manifest: the model's manifest.
      named: the function's keys; the only entry point can omit its name.

    Raises:
      TfaotError: the model has other functions, or one is named twice.
    """
    compiled = _functions(manifest)
    if sorted((_name(manifest, name), *sizes) for name, *sizes in named) != sorted(
        function.key for function in compiled
    ):
        raise _differs(manifest, named)
    return compiled


def _functions(manifest: Manifest) -> tuple[Function, ...]:
    symbol = names.symbol(manifest.cpp_class)
    result = []
    for index, entry in enumerate(manifest.entry_points):
        part = symbol + ("" if _single(manifest) else f"_{index}")
        for batch, buckets in entry.variants:
            result.append(Function(entry, batch, buckets, stem(part, batch, buckets).replace(".", "_")))
    return tuple(result)


def _single(manifest: Manifest) -> bool:
    return len(manifest.entry_points) == 1


def _name(manifest: Manifest, entry_point: str) -> str:
    """Returns the manifest's name for a stage's entry point. The only entry point can omit its name."""
    return manifest.entry_points[0].name if not entry_point and _single(manifest) else entry_point


def _differs(manifest: Manifest, named: Sequence[Key]) -> TfaotError:
    def shown(functions: Sequence[Key]) -> str:
        return listed(
            [(name or "the only entry point") + sizes_of(batch, buckets) for name, batch, buckets in functions]
        )

    return TfaotError(
        f"{manifest.cpp_class}: the stage got the wrong functions: {shown(named)}",
        exists="the manifest has " + shown([function.key for function in _functions(manifest)]),
        do="name each function of the manifest once: an entry point with one of its batch sizes, or 0 if it has none, and a "
        "bucket of each of its open sizes",
    )
