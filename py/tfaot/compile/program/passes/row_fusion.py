"""The pass `row_fusion`: computes what belongs to the rows of arrays, such as a layer norm, in one call.

XLA on CPUs has three or four kernels for a layer norm: the sum of each row, the squares of the differences from its mean, their
sum, and the results. Each of them reads the rows again, and computes again what comes before, such as the sum of a residual
connection. For rows of more than 32 values, a sum is two kernels or three. The pass merges them into one formula, which the program
applies to four rows at once
(`runtime/tfaot/kernels/row_sweep.h`): a stage for each sum that needs another one, and the results. Nothing in it is special to
layer norms: RMS norms and gradients that sum up rows are formulas, too. The call also writes what something else reads later,
such as the sum for the next residual connection. The order of additions, and so rounding, differs from XLA's. Threads share
rows.

Applies to the arithmetic of `elementwise_fusion` in float32 along the last axis, outside of loops, with values for each column,
such as a bias, and for each row. Rows have 16 values or more. All have at least 4,096 values, or 1,024 if a row isn't a multiple
of 8 values or has more than 1,024: for fewer, XLA's kernels, which have constant sizes, are faster. A kernel alone has 65,536, or
8,192 with exponentials or tanh. Doesn't apply if something else reads a value in between before the last kernel has run, or
writes what a kernel reads.

The 25 layer norms of BERT-base take 360 instead of 613 µs, of 84,400 (469 instead of 671 at x86-64-v3).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tfaot.compile.program.thunks.accesses import merged
from tfaot.compile.program.thunks.compiled import Compiled
from tfaot.compile.program.thunks.kinds import CompiledFunction, Place, RowFormula, RowSweep, Slice, Thunk
from tfaot.compile.program.values.formulas import (
    INTEGERS,
    SLOW,
    Interned,
    Operation,
    arithmetic,
    constant,
    index_of,
    least_alone,
    needed,
    wholes,
)
from tfaot.compile.program.values.graph import Graph, Value, in_order, reduction

_SHORTEST = 16
"""The shortest rows that gain: a vector at the highest level."""

_LEAST = 4096
"""The least number of values for which several kernels become a call: with fewer, XLA's are faster."""
_LEAST_UNEVEN = 1024
"""The same for rows that aren't whole vectors, or longer than 1,024: XLA's kernels take two to five times as long for them."""

_MOST_ARRAYS = 12
"""A core's prefetchers follow only so many streams."""

_DEEPEST = 200
"""The most operations one after another."""


def row_fusion(compiled: Compiled) -> int:
    """Merges kernels at all CPU levels, and returns the number of calls at the level with the most."""
    compiled.change(lambda function: merge(compiled, function))
    return compiled.most(lambda each: isinstance(each, RowSweep))


def merge(compiled: Compiled, function: CompiledFunction) -> CompiledFunction:
    """Merges kernels outside of loops: what a step of a loop writes, the next one may read."""
    graph = compiled.graph(function, function.thunks)
    sequence: list[Thunk | None] = [*function.thunks]
    # From the end, so that the kernel that needs all the others comes first.
    for last in reversed(range(len(sequence))):
        root = graph.results[last]
        if root is not None and sequence[last] and (shape := _shape(root)):
            chain = _Chain(sequence, graph, root, shape, function.temporary)
            if call := chain.merged():
                for index in chain.members:
                    sequence[index] = None
                sequence[last] = call
            elif chain.reason:
                compiled.missed(function.thunks[last], chain.reason)
    return dataclasses.replace(function, thunks=tuple(each for each in sequence if each))


def _shape(root: Value) -> tuple[int, int] | None:
    """Returns the numbers of rows and columns of a kernel, if it has rows and all agree about them."""
    shapes = set[tuple[int, int]]()
    for value in in_order(root.operands[0]):
        if value.op == "reduce" and (reduced := reduction(value)):
            shapes.add((reduced.rows.count // max(reduced.columns, 1), reduced.columns))
        elif value.op == "broadcast" and value.operands[0].count not in (1, value.count):
            shapes.add((value.count // max(value.shape[-1], 1), value.shape[-1]))
    most = max((rows * columns for rows, columns in shapes), default=0)
    whole = [each for each in shapes if each[0] * each[1] == most]
    return whole[0] if len(whole) == 1 and whole[0][1] >= _SHORTEST else None


class _Unreadable(Exception):
    """A formula can't have a value."""


class _Formula:
    """What some kernels do to rows, as one formula."""

    def __init__(self, root: Value, shape: tuple[int, int], members: set[int]) -> None:
        """Reads what the kernels compute.

        Raises:
          _Unreadable: a formula can't have it.
        """
        self._rows, self._columns = shape
        self._counts = {"array": shape[0] * shape[1], "row": shape[0], "column": shape[1], "scalar": 1}
        self._scalar = "scalar" if self._rows > 1 else "row"
        """The kind of a single value: the sum of an only row is one."""
        self._members = members
        self._formula = Interned()
        self._places: dict[str, list[Slice]] = {kind: [] for kind in self._counts}
        self._done: dict[tuple[int, str], int] = {}
        self._results: dict[int, tuple[str, Slice, int]] = {}
        """For each member, the kind of its result, where it is, and the operation."""
        self.inputs: list[tuple[int, Place]] = []
        self.read: list[tuple[str, Value]] = []
        """What kernels stored that aren't members, and how it is read."""
        self.through: set[int] = set()
        """More members: kernels between the steps of reductions."""
        kind = "array" if root.count == self._counts["array"] else "row"
        self._member(root, kind, 0)
        if kind == "row" and not self.has_sums:
            raise _Unreadable

    @property
    def has_sums(self) -> bool:
        """Whether anything is added up."""
        return any(each.opcode == "sum" for each in self._formula.operations)

    @property
    def operations(self) -> Sequence[Operation]:
        """All operations."""
        return self._formula.operations

    def call(self, stored: Sequence[int]) -> RowSweep | None:
        """Returns the call that stores the results of some members."""
        if any(each not in self._results for each in stored):
            return None
        operations = self._formula.operations
        order = needed(operations, [self._results[member][2] for member in stored])
        number = {index: at for at, index in enumerate(order)}
        places: dict[str, list[Slice]] = {kind: [] for kind in self._places}
        moved = []
        for each in (operations[index] for index in order):
            place = each.place
            if each.opcode in places:
                place = index_of(places[each.opcode], self._places[each.opcode][place])
            moved.append(
                dataclasses.replace(each, operands=tuple(number[operand] for operand in each.operands), place=place)
            )
        written: dict[str, list[tuple[int, int]]] = {"array": [], "row": []}
        for kind, at, value in (self._results[member] for member in stored):
            written[kind].append((index_of(places[kind], at), number[value]))
        whole = wholes(moved)
        if any(each.opcode in ("compare", *INTEGERS) and index not in whole for index, each in enumerate(moved)):
            return None
        if len(places["array"]) > _MOST_ARRAYS:
            return None
        return RowSweep(
            RowFormula(tuple(moved), tuple(written["array"]), tuple(written["row"])),
            self._rows,
            self._columns,
            *(tuple(places[kind]) for kind in ("array", "column", "row", "scalar")),
        )

    def _member(self, stored: Value, kind: str, depth: int) -> int:
        assert stored.place
        result = self._at(stored.operands[0], kind, depth)
        if self._results.setdefault(stored.since, (kind, stored.place[0], result))[0] != kind:
            raise _Unreadable
        return result

    def _at(self, value: Value, kind: str, depth: int) -> int:
        """Returns the operation for a value: one for each index of an array, for each row or column, or a single one."""
        if value.op == "stored" and value.since in self._members:
            if kind not in ("array", "row"):
                raise _Unreadable
            return self._member(value, kind, depth)
        key = value.same, kind
        if key not in self._done:
            if value.count != self._counts[kind] or not value.in_rows or depth > _DEEPEST:
                raise _Unreadable
            self._done[key] = self._read(value, kind, depth + 1)
        return self._done[key]

    def _read(self, value: Value, kind: str, depth: int) -> int:
        if value.op in ("stored", "memory"):
            if value.type.dtype != "f32" or value.place is None:
                raise _Unreadable
            self.inputs.append((value.since, value.place))
            self.read.append((kind, value))
            return self._formula.add(Operation(kind, place=index_of(self._places[kind], value.place[0])))
        if value.op == "constant":
            return self._add(constant(value, "f32"))
        if value.op == "bitcast" and value.same == value.operands[0].same:
            return self._at(value.operands[0], kind, depth)
        if value.op == "broadcast":
            return self._at(value.operands[0], self._repeated(value, kind), depth)
        if value.op == "reduce":
            reduced = reduction(value)
            if kind != "row" or not reduced or reduced.columns != self._columns:
                raise _Unreadable
            if (reduced.combiner, reduced.start) != ("add", 0):
                raise _Unreadable
            self.through |= {each.since for each in reduced.through}
            return self._formula.add(Operation("sum", (self._at(reduced.rows, "array", depth),)))
        if not value.operands or any(each.shape not in (value.shape, ()) for each in value.operands):
            raise _Unreadable
        operands = tuple(
            self._at(each, kind if each.shape == value.shape else self._scalar, depth) for each in value.operands
        )
        return self._add(arithmetic(value, operands, self._formula.operations, "f32"))

    def _repeated(self, value: Value, kind: str) -> str:
        """Returns the kind of what a broadcast repeats."""
        operand, last = value.operands[0], len(value.shape) - 1
        if operand.count == 1:
            return self._scalar
        if [*value.dims] != sorted(value.dims):
            raise _Unreadable
        if operand.count == value.count:
            return kind
        if kind == "array" and value.shape[-1] == self._columns:
            return "column" if value.dims == (last,) else "array" if last in value.dims else "row"
        raise _Unreadable

    def _add(self, operation: Operation | None) -> int:
        if operation is None:
            raise _Unreadable
        return self._formula.add(operation)


class _Chain:
    """A kernel, and those before it that become a part of it."""

    def __init__(
        self, sequence: Sequence[Thunk | None], graph: Graph, root: Value, shape: tuple[int, int], temporary: set[int]
    ) -> None:
        self._sequence, self._graph, self._root, self._shape = sequence, graph, root, shape
        self._temporary = temporary
        self.members = {root.since}
        self.reason = ""
        """Why it stays as it is, if a formula can have it."""

    def merged(self) -> RowSweep | None:
        """Returns what replaces the last kernel, and sets `members` to the kernels that are a part of it."""
        whole = self._call(self.members)
        tried = set[int]()
        # The nearest first: others are needed until what reads them is a part of this.
        while whole and (others := self._writers(whole[1]) - tried - self.members):
            tried.add(max(others))
            whole = self._grown({*self.members, max(others)}) or whole
        if whole is None:
            return None
        call, formula = whole
        uneven = call.columns % 8 != 0 or call.columns > 1024
        several = _LEAST_UNEVEN if uneven else _LEAST
        least = several if len(self.members) > 1 else least_alone(formula.operations)
        if call.rows * call.columns >= least:
            return call
        if formula.has_sums:
            self.reason = f"it has {call.rows} rows of {call.columns} values, fewer than {least} in all"
        return None

    def _grown(self, members: set[int]) -> tuple[RowSweep, _Formula] | None:
        """Adds to the members, with those before them that they need for this. Without success, adds none."""
        while True:
            before, newest = self.members, min(members - self.members)
            if whole := self._call(members):
                return whole
            self.members = before
            # What the kernel reads may be overwritten since, but not what another one computes this from.
            try:
                formula = _Formula(self._root, self._shape, members)
            except _Unreadable:
                return None
            others = {each for each in self._writers(formula) - members if each < newest}
            if not others:
                return None
            members = {*members, max(others)}

    def _call(self, members: set[int]) -> tuple[RowSweep, _Formula] | None:
        """Returns the call for some members, which it sets with those that a reduction needs, if nothing prevents it."""
        try:
            formula = _Formula(self._root, self._shape, members)
        except _Unreadable:
            return None
        members = members | formula.through
        call = merged(self._sequence, members, formula.inputs, formula.call, self._temporary)
        if not isinstance(call, RowSweep):
            self.reason = str(call)
            return None
        self.members = members
        return call, formula

    def _writers(self, formula: _Formula) -> set[int]:
        """Returns the kernels whose results a formula reads, if they can be a part of the whole."""
        # Each stage computes the values of an array again.
        return {
            value.since
            for kind, value in formula.read
            if value.op == "stored"
            and (kind == "row" or (kind == "array" and formula.has_sums and not _is_slow(value)))
        }


def _is_slow(stored: Value) -> bool:
    """Returns whether a kernel computes anything for each value that takes as long as moving it."""
    return any(each.op in SLOW and each.count == stored.count for each in in_order(stored.operands[0]))
