"""The pass `row_fusion`: computes what belongs to the rows of arrays, such as a softmax or a layer norm, in one call.

XLA on CPUs has three or four kernels for a layer norm: the sum of each row, the squares of the differences from its mean, their
sum, and the results. Each of them reads the rows again, and computes again what comes before, such as the sum of a residual
connection. For rows of more than 32 values, a sum is two kernels or three. The pass merges them into one formula, which the
program applies to four rows at once (`runtime/tfaot/kernels/row_sweep.h`): a stage for each sum or extremum that needs another
one, and the results. Nothing in it is special to layer norms: softmaxes, their logarithms, RMS norms, and gradients that sum up
rows are formulas, too. What takes long is computed once, such as the exponentials of a softmax. The call also writes what
something else reads later, such as the sum for the next residual connection. The order of additions, and so rounding, differs
from XLA's. Threads share rows.

Applies to the arithmetic of `elementwise_fusion` in float32 along the last axis, outside of loops, with values for each column,
such as a bias, and for each row. A mask can be repeated for heads or queries, be booleans, or be computed from numbers of rows
and columns, as that of causal attention. A softmax or its logarithm can have any size. Its exponentials are multiplied by the
sum's reciprocal, so a result is rounded once more than a quotient. Other rows have 16 values or more. All have at least 4,096
values, or 500 if a row isn't a multiple of 8 values, or doesn't consist of up to 32 equal pieces of up to 32 values: for fewer,
XLA's kernels, which have constant sizes, are faster. A kernel alone has 65,536, or 8,192 with exponentials or tanh. Doesn't apply
if something else reads a value in between before the last kernel has run, or writes what a kernel reads.

The 25 layer norms of BERT-base take 360 instead of 613 µs, of 84,400 (469 instead of 671 at x86-64-v3), and a softmax of 1,536
rows of 128 37 instead of 231 (67 instead of 137). A log-softmax of 128 rows of 1,024 takes 68 instead of 214 µs (71 instead of
123; an Intel Xeon beside other work).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

from tfaot.compile.program.thunks.accesses import Body
from tfaot.compile.program.thunks.compiled import Compiled
from tfaot.compile.program.thunks.kinds import Place, Slice, Sweep
from tfaot.compile.program.values.formulas import (
    MOST_ARRAYS,
    REDUCTIONS,
    SLOW,
    Formula,
    Interned,
    Operation,
    Vector,
    arithmetic,
    constant,
    index_of,
    least_alone,
    needed,
)
from tfaot.compile.program.values.graph import Value, in_order, reduction
from tfaot.compile.program.values.pattern import Anything, Op, Reduced, Rows, Var
from tfaot.compile.program.values.stages import repeats

_LARGEST = Rows(Var("largest", Reduced("maximum", -math.inf, Var("x"))))
_LESS = Op("subtract", Op("minimum", Var("x"), _LARGEST), _LARGEST)
"""Values less the largest of their row. A limit of the values that is the largest one changes none of them."""
_POWERS = Op("exponential", Op("subtract", Anything(), Rows(Reduced("maximum", -math.inf, Anything()))))
_SHARES = Op("divide", Var("powers", _POWERS), Rows(Var("sum", Reduced("add", 0, Var("powers")))))
"""A softmax. The largest power is 1, so that the sum has a reciprocal, a product with which takes half of a quotient's time."""

_SHORTEST = 16
"""The shortest rows that gain: a vector at the highest level."""

_LEAST = 4096
"""The least number of values for which several kernels become a call: with fewer, XLA's are faster."""
_LEAST_UNEVEN = 500
"""The same for rows that aren't whole vectors, or that `row_sums` can't cut: XLA's kernels take up to five times as long."""

_DEEPEST = 200
"""The most operations one after another."""


def row_fusion(compiled: Compiled) -> int:
    """Merges kernels at all CPU levels, and returns the number of calls at the level with the most."""
    compiled.rewrite(lambda body: merge(compiled, body))
    return compiled.most(lambda thunk: isinstance(thunk, Sweep) and thunk.formula.of_rows)


def merge(compiled: Compiled, body: Body) -> None:
    """Merges kernels. The last one, which needs all the others, comes first."""
    for last in reversed(range(len(body.thunks))):
        root, kernel = body.graph.results[last], body.thunks[last]
        if root is not None and kernel and (shape := _shape(root)):
            chain = _Chain(body, root, shape)
            if call := chain.merged():
                members = [thunk for member in chain.members if (thunk := body.thunks[member])]
                for index in chain.members:
                    body.thunks[index] = None
                body.thunks[last] = call
                body.remove_unused(last, [place for thunk in members for place in thunk.uses().reads])
            elif chain.reason:
                compiled.missed(kernel, chain.reason)


def _shape(root: Value) -> tuple[int, int] | None:
    """Returns the numbers of rows and columns of a kernel, if it has rows and all agree about them."""
    shapes = set[tuple[int, int]]()
    for value in in_order(root.operands[0]):
        if value.op == "reduce" and (reduced := reduction(value)) and reduced.rows.count:
            shapes.add((reduced.rows.count // reduced.columns, reduced.columns))
        elif value.op == "broadcast" and value.operands[0].count not in (1, value.count):
            shapes.add((value.count // max(value.shape[-1], 1), value.shape[-1]))
    if not shapes:  # what an only row repeats is a single value
        reductions = (reduction(value.bare) for value in in_order(root.operands[0]) if value.count == 1)
        shapes |= {(1, reduction.columns) for reduction in reductions if reduction and reduction.columns == root.count}
    most = max((rows * columns for rows, columns in shapes), default=0)
    whole = [shape for shape in shapes if shape[0] * shape[1] == most]
    return whole[0] if len(whole) == 1 else None


class _Unreadable(Exception):
    """A formula can't have a value."""


class _Kind(NamedTuple):
    """What a value belongs to."""

    name: str
    """`array`: it has a value for each row and column. `row`: one for each row. `scalar`: one. `column`: as in `vector`."""
    vector: Vector = Vector()


_ARRAY, _ROW, _SCALAR = map(_Kind, ("array", "row", "scalar"))


class _Reader:
    """What some kernels do to rows, as one formula."""

    def __init__(self, root: Value, shape: tuple[int, int], members: set[int]) -> None:
        """Reads what the kernels compute.

        Raises:
          _Unreadable: a formula can't have it.
        """
        self._rows, self._columns = shape
        self._counts = {"array": shape[0] * shape[1], "row": shape[0], "scalar": 1}
        self._scalar = _SCALAR if self._rows > 1 else _ROW
        """The kind of a single value: the sum of an only row is one."""
        self._members = members
        self._formula = Interned()
        self._places: dict[str, list[Slice]] = {kind: [] for kind in self._counts}
        self._vectors: list[tuple[Slice, Vector]] = []
        self._done: dict[tuple[int, _Kind], int] = {}
        self._results: dict[int, tuple[str, Slice, int]] = {}
        """For each member, the kind of its result, where it is, and the operation."""
        self.inputs: list[tuple[int, Place]] = []
        self.read: list[tuple[str, Value]] = []
        """What kernels stored that aren't members, and how it is read."""
        self.through: set[int] = set()
        """More members: kernels between the steps of reductions."""
        kind = _ARRAY if root.count == self._counts["array"] else _ROW
        self._member(root, kind, 0)
        if kind == _ROW and not self.reduces:
            raise _Unreadable

    @property
    def reduces(self) -> bool:
        """Whether the values of a row are combined."""
        return any(operation.opcode in REDUCTIONS for operation in self._formula.operations)

    @property
    def adds_powers(self) -> bool:
        """Whether exponentials are added up, as in a softmax and its logarithm."""
        operations = self._formula.operations
        sums = [operation.operands[0] for operation in operations if operation.opcode == "sum"]
        return any(operations[summand].opcode == "exponential" for summand in sums)

    @property
    def operations(self) -> Sequence[Operation]:
        """All operations."""
        return self._formula.operations

    def call(self, stored: Sequence[int]) -> Sweep | None:
        """Returns the call that stores the results of some members."""
        if any(result not in self._results for result in stored):
            return None
        operations = self._formula.operations
        order = needed(operations, [self._results[member][2] for member in stored])
        number = {index: at for at, index in enumerate(order)}
        places: dict[str, list[Slice]] = {kind: [] for kind in self._places}
        vectors: list[tuple[Slice, Vector]] = []
        moved = []
        for operation in (operations[index] for index in order):
            place = operation.place
            if operation.opcode in places:
                place = index_of(places[operation.opcode], self._places[operation.opcode][place])
            elif operation.opcode == "column":
                place = index_of(vectors, self._vectors[place])
            moved.append(
                dataclasses.replace(
                    operation, operands=tuple(number[operand] for operand in operation.operands), place=place
                )
            )
        written: dict[str, list[tuple[int, int]]] = {"array": [], "row": []}
        for kind, at, value in (self._results[member] for member in stored):
            written[kind].append((index_of(places[kind], at), number[value]))
        dtypes = {(operation.place, operation.text) for operation in moved if operation.opcode == "array"}
        dtypes |= {(place, "") for place, _ in written["array"]}
        if len(dtypes) > len({place for place, _ in dtypes}):
            return None  # bytes that are read as two dtypes
        if len(places["array"]) > MOST_ARRAYS:
            return None
        return Sweep(
            Formula(
                _with_peaks(moved, [value for kind in written.values() for _, value in kind]),
                tuple(written["array"]),
                tuple(written["row"]),
                tuple(vector for _, vector in vectors),
            ),
            self._rows,
            self._columns,
            tuple(places["array"]),
            tuple(place for place, _ in vectors),
            tuple(places["row"]),
            tuple(places["scalar"]),
        )

    def _member(self, stored: Value, kind: _Kind, depth: int) -> int:
        assert stored.place
        if stored.type.dtype != "f32":
            raise _Unreadable
        result = self._at(stored.operands[0], kind, depth)
        if self._results.setdefault(stored.since, (kind.name, stored.place[0], result))[0] != kind.name:
            raise _Unreadable
        return result

    def _count(self, kind: _Kind) -> int:
        """Returns how many values there are of a kind."""
        if kind.name == "column":
            return dataclasses.replace(kind.vector, width=1).bytes(self._rows, self._columns)
        return self._counts[kind.name]

    def _at(self, value: Value, kind: _Kind, depth: int) -> int:
        """Returns the operation for a value: one for each index of an array, for each row or column, or a single one."""
        if value.op == "stored" and value.since in self._members:
            if kind not in (_ARRAY, _ROW):
                raise _Unreadable
            return self._member(value, kind, depth)
        key = value.same, kind
        if key not in self._done:
            if value.count != self._count(kind) or not value.in_rows or depth > _DEEPEST:
                raise _Unreadable
            self._done[key] = self._read(value, kind, depth + 1)
        return self._done[key]

    def _read(self, value: Value, kind: _Kind, depth: int) -> int:
        if value.op in ("stored", "memory"):
            return self._formula.add(self._memory(value, kind))
        if value.op == "constant":
            return self._add(constant(value, "f32"))
        if value.op == "bitcast" and value.same == value.operands[0].same:
            return self._at(value.operands[0], kind, depth)
        if value.op == "broadcast":
            operand = value.operands[0]
            if operand.op == "iota" and len(operand.shape) == 1:
                return self._formula.add(self._number(value, value.dims[0], kind))
            return self._at(operand, self._repeated(value, kind), depth)
        if value.op == "reduce":
            reduced = reduction(value)
            if kind != _ROW or not reduced or reduced.columns != self._columns:
                raise _Unreadable
            combined = [opcode for opcode, way in REDUCTIONS.items() if way == (reduced.combiner, reduced.start)]
            if not combined:
                raise _Unreadable
            self.through |= {value.since for value in reduced.through}
            return self._formula.add(Operation(combined[0], (self._at(reduced.rows, _ARRAY, depth),)))
        if value.op == "iota":
            return self._formula.add(self._number(value, value.dims[0], kind))
        for bound in _LESS.matches(value, {}) if kind == _ARRAY else ():
            sides = self._at(bound["x"], kind, depth), self._at(bound["largest"], _ROW, depth)
            return self._formula.add(Operation("subtract", sides))
        for bound in _SHARES.matches(value, {}) if kind == _ARRAY else ():
            one = self._formula.add(Operation("constant", text="1.0"))
            part = self._formula.add(Operation("divide", (one, self._at(bound["sum"], _ROW, depth))))
            return self._formula.add(Operation("multiply", (self._at(bound["powers"], kind, depth), part)))
        if not value.operands or any(operand.shape not in (value.shape, ()) for operand in value.operands):
            raise _Unreadable
        operands = tuple(
            self._at(operand, kind if operand.shape == value.shape else self._scalar, depth)
            for operand in value.operands
        )
        return self._add(arithmetic(value, operands, self._formula.operations, "f32"))

    def _memory(self, value: Value, kind: _Kind) -> Operation:
        """Returns the operation that reads a value from memory."""
        dtype, place = value.type.dtype, value.place
        if place is None or dtype not in ("f32", "pred", "s32"):
            raise _Unreadable
        text = "" if dtype == "f32" else dtype
        if text and value.count == 1:
            kind = _Kind("column", Vector(single=True))
        if text and (kind == _ROW or (dtype == "pred" and kind.vector.single)):
            raise _Unreadable
        self.inputs.append((value.since, place))
        self.read.append((kind.name, value))
        if kind.name != "column":
            return Operation(kind.name, place=index_of(self._places[kind.name], place[0]), text=text)
        vector = dataclasses.replace(kind.vector, width=1 if dtype == "pred" else 4)
        return Operation("column", place=index_of(self._vectors, (place[0], vector)), text=text)

    def _number(self, value: Value, axis: int, kind: _Kind) -> Operation:
        """Returns the operation for the number of each value along an axis."""
        if value.type.dtype != "s32" or value.shape[-1] != self._columns:
            raise _Unreadable
        if axis == len(value.shape) - 1 and kind.name in ("array", "column"):
            return Operation("iota")
        by, count = math.prod(value.shape[axis + 1 : -1]), value.shape[axis]
        if kind == _ARRAY:
            return Operation("iota", text=f"{by} {count}")
        if kind.name == "column" and not kind.vector.group:
            return Operation("iota", text=f"{by} {count}")
        if kind.name == "column" and kind.vector.period == 1:
            return Operation("iota", text=f"{by * kind.vector.group} {count}")
        raise _Unreadable

    def _repeated(self, value: Value, kind: _Kind) -> _Kind:
        """Returns the kind of what a broadcast repeats."""
        operand, last = value.operands[0], len(value.shape) - 1
        if operand.count == 1:
            return self._scalar
        if [*value.dims] != sorted(value.dims):
            raise _Unreadable
        if operand.count == value.count:
            return kind
        if kind.name not in ("array", "column") or kind.vector.single or value.shape[-1] != self._columns:
            raise _Unreadable
        group, period = _rows_of(value.shape[:-1], value.dims)
        if kind == _ARRAY and group == 0 and period == self._rows and last not in value.dims:
            return _ROW
        vector, whole = kind.vector, self._count(kind) // self._columns
        if kind == _ARRAY or (group, period) == (0, 1):
            pass
        elif (group, period) == (0, whole):
            group, period = vector.group, vector.period
        elif vector.period % period or (group and (not vector.group or group % vector.period)):
            raise _Unreadable
        elif group:
            group = vector.group * group // vector.period
        return _Kind("column", Vector(group, period, last not in value.dims))

    def _add(self, operation: Operation | None) -> int:
        if operation is None:
            raise _Unreadable
        return self._formula.add(operation)


def _rows_of(shape: Sequence[int], kept: Sequence[int]) -> tuple[int, int]:
    """Returns the group and the period, as in `Vector`, of rows that a broadcast repeats.

    Args:
      shape: the dimensions of the result, without columns.
      kept: the dimensions of the result that the operand has.
    """
    runs: list[tuple[bool, int]] = []
    """From the last dimension on, whether dimensions are kept, and how many rows they have."""
    for axis in reversed(range(len(shape))):
        if shape[axis] > 1:
            if runs and runs[-1][0] == (axis in kept):
                runs[-1] = (runs[-1][0], runs[-1][1] * shape[axis])
            else:
                runs.append((axis in kept, shape[axis]))
    period = runs.pop(0)[1] if runs and runs[0][0] else 1
    if len(runs) > 2:
        raise _Unreadable
    return (runs[0][1] * period if len(runs) == 2 else 0), period


def _with_peaks(operations: Sequence[Operation], results: Sequence[int]) -> tuple[Operation, ...]:
    """Returns operations in which the largest value can be anything for a row with NaN, if the sum of its powers then says so."""
    needs: list[set[int]] = []
    for index, operation in enumerate(operations):
        needs.append({index}.union(*(needs[operand] for operand in operation.operands)))
    if any(
        operation.opcode in ("compare", "select") and "largest" in (operations[at].opcode for at in needs[index])
        for index, operation in enumerate(operations)
    ):
        return tuple(operations)
    changed = [*operations]
    for index, operation in enumerate(operations):
        if operation.opcode == "largest":
            less = Operation("subtract", (*operation.operands, index))
            sums = {
                at
                for at, sum_ in enumerate(operations)
                if sum_.opcode == "sum"
                and (power := operations[sum_.operands[0]]).opcode == "exponential"
                and operations[power.operands[0]] == less
            }
            used = all(user == less for user in operations if index in user.operands) and index not in results
            if used and all(needs[result] & sums for result in results if index in needs[result]):
                changed[index] = dataclasses.replace(operation, opcode="peak")
    return tuple(changed)


class _Chain:
    """A kernel, and those before it that become a part of it."""

    def __init__(self, body: Body, root: Value, shape: tuple[int, int]) -> None:
        self._body, self._root, self._shape = body, root, shape
        self.members = {root.since}
        self.reason = ""
        """Why it stays as it is, if a formula can have it."""

    def merged(self) -> Sweep | None:
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
        if formula.adds_powers and len(self.members) > 1:
            return call
        if call.columns < _SHORTEST:
            return None
        pieces = any(call.columns % size == 0 for size in range(-(-call.columns // 32), 33))
        several = _LEAST if call.columns % 8 == 0 and pieces else _LEAST_UNEVEN
        least = several if len(self.members) > 1 else least_alone(formula.operations)
        if call.rows * call.columns >= least:
            return call
        if formula.reduces:
            self.reason = f"it has {call.rows} rows of {call.columns} values, fewer than {least} in all"
        return None

    def _grown(self, members: set[int]) -> tuple[Sweep, _Reader] | None:
        """Adds to the members, with those before them that they need for this. Without success, adds none."""
        while True:
            before, newest = self.members, min(members - self.members)
            if whole := self._call(members):
                return whole
            self.members = before
            # What the kernel reads may be overwritten since, but not what another one computes this from.
            try:
                formula = _Reader(self._root, self._shape, members)
            except _Unreadable:
                return None
            others = {writer for writer in self._writers(formula) - members if writer < newest}
            if not others:
                return None
            members = {*members, max(others)}

    def _call(self, members: set[int]) -> tuple[Sweep, _Reader] | None:
        """Returns the call for some members, which it sets with those that a reduction needs, if nothing prevents it."""
        try:
            formula = _Reader(self._root, self._shape, members)
        except _Unreadable:
            return None
        members = members | formula.through
        call = self._body.merged(members, formula.inputs, formula.call, max(members))
        if not isinstance(call, Sweep):
            self.reason = str(call)
            return None
        slow = any(_is_slow(self._body.graph.results[writer]) for writer in members - {self._root.since})
        if slow and repeats(call.formula):
            return None
        self.members = members
        return call, formula

    def _writers(self, formula: _Reader) -> set[int]:
        """Returns the kernels whose results a formula reads, if they can be a part of the whole."""
        return {
            value.since
            for kind, value in formula.read
            if value.op == "stored"
            and value.type.dtype == "f32"
            and (kind == "row" or (kind == "array" and formula.reduces))
        }


def _is_slow(stored: Value | None) -> bool:
    """Returns whether a kernel computes anything for each value that takes as long as moving it."""
    return stored is not None and any(
        value.op in SLOW and value.count == stored.count for value in in_order(stored.operands[0])
    )
