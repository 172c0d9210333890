"""The abstract values of the analysis, and trees of them for tuples. Pure."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable
from typing import Any


class Kind(enum.Enum):
    """What a value may depend on."""

    FREE = "free"
    """It depends neither on any row nor on their number."""
    SIZE = "size"
    """It depends on the number of rows."""
    PLACE = "place"
    """It depends on the number of rows, and on how many steps a loop over them has run."""
    COUNTER = "counter"
    """It is the step of the loop over the rows: 0, 1, and so on."""
    ONE = "one"
    """It depends on the one row that the loop's counter selects."""
    ROWS = "rows"
    """It has a batch dimension, and each row depends only on the same row of the inputs."""
    INDEX = "index"
    """Like ROWS, but each row contains its own index."""
    COLUMNS = "columns"
    """Like ROWS, but some columns along a dimension contain the row's index."""
    MIXED = "mixed"
    """None of these, as far as the analysis knows."""


@dataclasses.dataclass(frozen=True)
class Cause:
    """The operation at which rows stop being independent."""

    order: tuple[int, ...]
    """Causes that come earlier in the program have lower numbers."""
    node: str
    """The TensorFlow node's name, or empty."""
    op: str
    """The TensorFlow op, or else XLA's opcode."""
    why: str


@dataclasses.dataclass(frozen=True)
class Value:
    """The abstract value of an array."""

    kind: Kind
    axis: int = 0
    """For ROWS, INDEX, and COLUMNS: the batch dimension."""
    width: int = 1
    """How many consecutive elements a row has in that dimension."""
    outer: int = 1
    """How many times that dimension repeats all rows, for example after a reshape merged it with an outer one."""
    cause: Cause | None = None
    """For MIXED: the cause."""
    constant: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    """The values of a small integer array in both programs, if known."""
    columns: tuple[int, frozenset[int]] = (0, frozenset())
    """For COLUMNS: the dimension along which the columns are numbered, and which of them are row numbers."""
    same: int | None = None
    """In a loop over rows: it equals this operand of the loop before the iteration."""
    next: int | None = None
    """In a loop over rows: it is one more than this operand."""
    filled: int | None = None
    """In a loop over rows: it is this operand with the current row replaced."""


FREE = Value(Kind.FREE)
BATCHED = frozenset({Kind.ROWS, Kind.INDEX, Kind.COLUMNS})
PLACED = frozenset({Kind.PLACE, Kind.COUNTER})

Tree = Any
"""A Value, or a tuple of Trees for an HLO tuple."""

TOGETHER = "combines rows"
COUNTS = "uses the number of rows"
PLACE = "uses a row's position in the batch"
UNKNOWN = "might not keep rows apart"
DECIDES = "decides for all rows at once"


def leaves(tree: Tree) -> list[Value]:
    """Returns the values of a tree, in order."""
    return [leaf for part in tree for leaf in leaves(part)] if isinstance(tree, tuple) else [tree]


def unflattened(tree: Tree, leaves: Iterable[Value]) -> Tree:
    """Returns a tree of the same structure with other leaves."""
    source = iter(leaves)

    def fill(part: Tree) -> Tree:
        return tuple(fill(item) for item in part) if isinstance(part, tuple) else next(source)

    return fill(tree)


def layout(value: Value) -> tuple[int, int, int]:
    """Returns where a value's rows are."""
    return value.axis, value.width, value.outer


def kinds(tree: Tree) -> list[tuple[Any, ...]]:
    """Returns the properties that must stop changing before a loop's analysis can end."""
    return [(value.kind, layout(value), value.columns) for value in leaves(tree)]


def plain(value: Value) -> Value:
    """Returns a value without the properties that are valid only for a single iteration."""
    return dataclasses.replace(value, constant=None, same=None, next=None, filled=None)


def forgotten(tree: Tree) -> Tree:
    """Returns a tree of `plain` values."""
    return unflattened(tree, [plain(value) for value in leaves(tree)])
