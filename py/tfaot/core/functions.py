"""The functions of a model: what one run of the compiler makes, for every stage that names its files."""

from __future__ import annotations

import dataclasses

from tfaot.core import names
from tfaot.core.manifest import EntryPoint, Manifest


@dataclasses.dataclass(frozen=True)
class Function:
    """What one run of the compiler makes: an entry point, for one size of batch."""

    entry_point: EntryPoint
    batch: int
    """0 if the entry point has none."""
    symbol: str
    """Of no other function in a program."""

    @property
    def internal_class(self) -> str:
        """The class that the private header declares: unique to the public one, down to its C symbols."""
        return f"tfaot_internal::{self.symbol}"

    @property
    def cost(self) -> str:
        """The constant in the private header that says what a run costs, beside what other sizes of batch do."""
        return f"tfaot_internal::{self.symbol}_cost"


def functions(manifest: Manifest) -> tuple[Function, ...]:
    """All functions of a model, in the order in which the stages name their files."""
    symbol = names.symbol(manifest.cpp_class)
    result = []
    for index, entry in enumerate(manifest.entry_points):
        for batch in entry.batch_sizes or (0,):
            part = f"_{index}" if len(manifest.entry_points) > 1 else ""
            result.append(Function(entry, batch, symbol + part + (f"_b{batch}" if batch else "")))
    return tuple(result)
