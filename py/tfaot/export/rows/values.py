"""What is known of a value of a program, and trees of such for tuples. Pure."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable
from typing import Any


class Kind(enum.Enum):
    """What a value may depend on."""

    FREE = "free"
    """On no row, nor on how many there are."""
    SIZE = "size"
    """On how many rows there are."""
    PLACE = "place"
    """On how many rows there are, and on how often a loop over them has run."""
    COUNTER = "counter"
    """It is how often the loop over the rows has run: 0, 1, and so on."""
    ONE = "one"
    """On the one row whose number is the loop's counter."""
    ROWS = "rows"
    """It has a dimension for the batch; what stands there for a row depends on that row only."""
    INDEX = "index"
    """As ROWS, but what stands there is the row's number."""
    COLUMNS = "columns"
    """As ROWS, but some places along a dimension hold the row's number."""
    MIXED = "mixed"
    """Not known to be any of these."""


@dataclasses.dataclass(frozen=True)
class Cause:
    """The operation that a row's independence is lost at."""

    order: tuple[int, ...]
    """What comes first has the lower one."""
    node: str
    """TensorFlow's name of it, or empty."""
    op: str
    """TensorFlow's type of it, or XLA's."""
    why: str


@dataclasses.dataclass(frozen=True)
class Value:
    """What is known of an array."""

    kind: Kind
    axis: int = 0
    """Of ROWS, INDEX, and COLUMNS: the dimension that holds the batch."""
    each: int = 1
    """How many places of that dimension a row has, one after the other."""
    outer: int = 1
    """How many times that dimension holds all rows, as where it was put together with dimensions before it."""
    cause: Cause | None = None
    """Of MIXED."""
    constant: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    """Of a few integers, their values in both programs if they are known."""
    columns: tuple[int, frozenset[int]] = (0, frozenset())
    """Of COLUMNS: the dimension along which columns lie, and which of them are row numbers."""
    same: int | None = None
    """Within a loop over rows: it is what the loop's operand of this number was before this iteration."""
    next: int | None = None
    """Within a loop over rows: one more than the loop's operand of this number."""
    filled: int | None = None
    """Within a loop over rows: the loop's operand of this number, with the counter's row replaced."""


FREE = Value(Kind.FREE)
BATCHED = frozenset({Kind.ROWS, Kind.INDEX, Kind.COLUMNS})
PLACED = frozenset({Kind.PLACE, Kind.COUNTER})

Tree = Any
"""A Value, or a tuple of Trees for a tuple of HLO."""

TOGETHER = "puts rows together"
COUNTS = "uses how many rows there are"
PLACE = "uses where in the batch a row stands"
UNKNOWN = "is not known to keep rows apart"
DECIDES = "decides for all rows at once"


def leaves(tree: Tree) -> list[Value]:
    """The values of a tree, in order."""
    return [leaf for part in tree for leaf in leaves(part)] if isinstance(tree, tuple) else [tree]


def unflattened(tree: Tree, leaves: Iterable[Value]) -> Tree:
    """A tree of the same form with other leaves."""
    source = iter(leaves)

    def fill(part: Tree) -> Tree:
        return tuple(fill(each) for each in part) if isinstance(part, tuple) else next(source)

    return fill(tree)


def layout(value: Value) -> tuple[int, int, int]:
    """Where the rows of a value lie."""
    return value.axis, value.each, value.outer


def kinds(tree: Tree) -> list[tuple[Any, ...]]:
    """What a loop must not change for the walk to end: all that lasts longer than an iteration."""
    return [(value.kind, layout(value), value.columns) for value in leaves(tree)]


def plain(value: Value) -> Value:
    """Without what holds for one iteration, or one value, only."""
    return dataclasses.replace(value, constant=None, same=None, next=None, filled=None)


def forgotten(tree: Tree) -> Tree:
    """A tree of `plain` values."""
    return unflattened(tree, [plain(value) for value in leaves(tree)])
