"""The functions of a model. Each is one run of the compiler; all stages name their files after them."""

from __future__ import annotations

import dataclasses

from tfaot.core import names
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


def functions(manifest: Manifest) -> tuple[Function, ...]:
    """Returns all functions of a model, in the order in which the stages name their files."""
    symbol = names.symbol(manifest.cpp_class)
    result = []
    for index, entry in enumerate(manifest.entry_points):
        for batch in entry.batch_sizes or (0,):
            part = f"_{index}" if len(manifest.entry_points) > 1 else ""
            result.append(Function(entry, batch, symbol + part + (f"_b{batch}" if batch else "")))
    return tuple(result)
