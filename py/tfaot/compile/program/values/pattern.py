"""Patterns in the graph of values, declared as data.

A pattern matches a value, and binds names to parts of it. Shapes and copies between what it names don't matter, as long as values
stay in their order in memory.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from tfaot.compile.program.values.graph import COMMUTATIVE, Value, reduction

Bindings = Mapping[str, Any]
"""Values by the names of `Var`, and numbers by those of `Const` and `Columns`."""


class Pattern(abc.ABC):
    """What a value can look like."""

    @abc.abstractmethod
    def matches(self, value: Value, bound: Bindings) -> Iterator[Bindings]:
        """Iterates over the ways to match a value, given what is bound already."""

    def __or__(self, other: Pattern) -> Pattern:
        """Returns a pattern that also matches what another one does, which comes second."""
        return _Either(self, other)


@dataclasses.dataclass(frozen=True)
class _Either(Pattern):
    first: Pattern
    second: Pattern

    def matches(self, value: Value, bound: Bindings) -> Iterator[Bindings]:
        yield from self.first.matches(value, bound)
        yield from self.second.matches(value, bound)


@dataclasses.dataclass(frozen=True)
class Anything(Pattern):
    """Any value."""

    def matches(self, value: Value, bound: Bindings) -> Iterator[Bindings]:
        """Matches."""
        yield bound


@dataclasses.dataclass(frozen=True)
class Var(Pattern):
    """A value with a name. The same name is the same value everywhere, also where it is computed again."""

    name: str
    pattern: Pattern | None = None
    """What it looks like, where it is named first."""

    def matches(self, value: Value, bound: Bindings) -> Iterator[Bindings]:
        """Binds a value, or compares it with what is bound."""
        if self.name in bound:
            if bound[self.name].same == value.same:
                yield bound
        elif self.pattern is None:
            yield {**bound, self.name: value}
        else:
            yield from self.pattern.matches(value, {**bound, self.name: value})


@dataclasses.dataclass(frozen=True)
class Stored(Pattern):
    """A value that is in memory, with a name."""

    name: str

    def matches(self, value: Value, bound: Bindings) -> Iterator[Bindings]:
        """Binds what is in memory, or compares it with what is bound."""
        if value.inside.place is not None:
            yield from Var(self.name).matches(value.inside, bound)


@dataclasses.dataclass(frozen=True)
class Const(Pattern):
    """A finite constant with a name, or a number, repeated everywhere."""

    is_: str | float

    def matches(self, value: Value, bound: Bindings) -> Iterator[Bindings]:
        """Binds the number, or compares it."""
        value = value.bare
        while value.op == "broadcast":
            value = value.operands[0].bare
        number = value.number
        if number is None or not math.isfinite(number):
            return
        if not isinstance(self.is_, str):
            wanted = self.is_
        elif self.is_ in bound:
            wanted = bound[self.is_]
        else:
            wanted, bound = number, {**bound, self.is_: number}
        if number == wanted:
            yield bound


@dataclasses.dataclass(frozen=True, init=False)
class Op(Pattern):
    """An operation on values, a comparison with its direction. The operands of sums, products, and extrema can have any order."""

    op: str
    operands: tuple[Pattern, ...]

    def __init__(self, op: str, *operands: Pattern) -> None:
        object.__setattr__(self, "op", op)
        object.__setattr__(self, "operands", operands)

    def matches(self, value: Value, bound: Bindings) -> Iterator[Bindings]:
        """Matches the operands."""
        value = value.bare
        if f"{value.op} {value.text}".rstrip() != self.op or not all(part.in_rows for part in (value, *value.operands)):
            return
        for operands in (value.operands, value.operands[::-1])[: 1 + (self.op in COMMUTATIVE)]:
            yield from _all(self.operands, operands, bound)


def _all(patterns: tuple[Pattern, ...], values: tuple[Value, ...], bound: Bindings) -> Iterator[Bindings]:
    if len(patterns) != len(values):
        return
    if not patterns:
        yield bound
        return
    for way in patterns[0].matches(values[0], bound):
        yield from _all(patterns[1:], values[1:], way)


@dataclasses.dataclass(frozen=True)
class Rows(Pattern):
    """One value for each row, repeated along it. Binds the length of a row, `columns`, like `Reduced`."""

    pattern: Pattern

    def matches(self, value: Value, bound: Bindings) -> Iterator[Bindings]:
        """Matches the values of rows."""
        value = value.bare
        if value.op != "broadcast" or not value.in_rows or not value.shape or not value.operands[0].in_rows:
            return
        last = len(value.shape) - 1
        ascending = [*value.dims] == sorted(value.dims) and last not in value.dims
        if ascending and value.operands[0].count * value.shape[-1] == value.count:
            for way in _with_columns(value.shape[-1], bound):
                yield from self.pattern.matches(value.operands[0], way)


@dataclasses.dataclass(frozen=True)
class Reduced(Pattern):
    """Rows reduced along the last axis, in any number of steps."""

    combiner: str
    start: float
    pattern: Pattern

    def matches(self, value: Value, bound: Bindings) -> Iterator[Bindings]:
        """Matches the rows."""
        reduced = reduction(value.bare)
        if reduced and (reduced.combiner, reduced.start) == (self.combiner, self.start):
            for way in _with_columns(reduced.columns, bound):
                yield from self.pattern.matches(reduced.rows, way)


@dataclasses.dataclass(frozen=True)
class Columns(Pattern):
    """One value for each column, repeated for all rows. Binds the length of a row, too."""

    pattern: Pattern

    def matches(self, value: Value, bound: Bindings) -> Iterator[Bindings]:
        """Matches the values of columns."""
        value = value.bare
        if value.op == "broadcast" and value.in_rows and value.dims == (len(value.shape) - 1,):
            for way in _with_columns(value.shape[-1], bound):
                yield from self.pattern.matches(value.operands[0], way)


def _with_columns(columns: int, bound: Bindings) -> Iterator[Bindings]:
    if bound.get("columns", columns) == columns:
        yield {**bound, "columns": columns}
