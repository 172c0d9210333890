"""Reads what kernels compute as one formula."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

from tfaot.compile.program.thunks.kinds import Place, Slice, Sweep
from tfaot.compile.program.values.formulas import (
    DTYPES,
    MOST_ARRAYS,
    REDUCTIONS,
    Formula,
    Interned,
    Operation,
    Vector,
    arithmetic,
    constant,
    contracted,
    index_of,
    needed,
)
from tfaot.compile.program.values.graph import Value, reduction
from tfaot.compile.program.values.pattern import Anything, Op, Reduced, Rows, Var

_LARGEST = Rows(Var("largest", Reduced("maximum", -math.inf, Var("x"))))
_LESS = Op("subtract", Op("minimum", Var("x"), _LARGEST), _LARGEST)
"""Values less the largest of their row. A limit of the values that is the largest one changes none of them."""
_POWERS = Op("exponential", Op("subtract", Anything(), Rows(Reduced("maximum", -math.inf, Anything()))))
_SHARES = Op("divide", Var("powers", _POWERS), Rows(Var("sum", Reduced("add", 0, Var("powers")))))
"""A softmax. The largest power is 1, so that the sum has a reciprocal, a product with which takes half of a quotient's time."""

_DEEPEST = 200
"""The most operations one after another."""


class Unreadable(Exception):
    """A formula can't have a value."""


class _Kind(NamedTuple):
    """What a value belongs to."""

    name: str
    """`array`: it has a value for each row and column. `row`: one for each row. `scalar`: one. `column`: as in `vector`."""
    vector: Vector = Vector()


_ARRAY, _ROW, _SCALAR = map(_Kind, ("array", "row", "scalar"))


class Reader:
    """What some kernels do to rows, as one formula."""

    def __init__(self, root: Value, shape: tuple[int, int] | None, members: set[int]) -> None:
        """Reads what the kernels compute.

        Args:
          root: what the last one stores.
          shape: the rows and columns; None if values with the same index are all that is read, as one row, in any layout.
          members: the kernels.

        Raises:
          Unreadable: a formula can't have it.
        """
        self._flat, self._dtype = shape is None, root.type.dtype
        shape = shape or (1, root.count)
        self._rows, self._columns = shape
        self._counts = {"array": shape[0] * shape[1], "row": shape[0], "scalar": 1}
        self._scalar = _SCALAR if self._rows > 1 or self._flat else _ROW
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
            raise Unreadable

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
        results = [self._results[member][2] for member in stored]
        operations: Sequence[Operation] = self._formula.operations
        if self._flat:
            operations = contracted(operations, results)
        order = needed(operations, results)
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
                DTYPES[self._dtype],
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
        if stored.type.dtype != self._dtype or self._dtype not in (DTYPES if self._flat else ("f32",)):
            raise Unreadable
        result = self._at(stored.operands[0], kind, depth)
        if self._results.setdefault(stored.since, (kind.name, stored.place[0], result))[0] != kind.name:
            raise Unreadable
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
                raise Unreadable
            return self._member(value, kind, depth)
        key = value.same, kind
        if key not in self._done:
            if value.count != self._count(kind) or not (self._flat or value.in_rows) or depth > _DEEPEST:
                raise Unreadable
            self._done[key] = self._read(value, kind, depth + 1)
        return self._done[key]

    def _read(self, value: Value, kind: _Kind, depth: int) -> int:
        if value.op in ("stored", "memory"):
            return self._formula.add(self._memory(value, kind))
        if value.op == "constant":
            return self._add(constant(value, self._dtype))
        if value.op == "bitcast" and value.same == value.operands[0].same:
            return self._at(value.operands[0], kind, depth)
        if value.op == "broadcast":
            operand = value.operands[0]
            if operand.op == "iota" and len(operand.shape) == 1:
                return self._formula.add(self._number(value, value.dims[0], kind))
            return self._at(operand, self._repeated(value, kind), depth)
        if value.op == "reduce":
            reduced = reduction(value)
            if self._flat or kind != _ROW or not reduced or reduced.columns != self._columns:
                raise Unreadable
            combined = [opcode for opcode, way in REDUCTIONS.items() if way == (reduced.combiner, reduced.start)]
            if not combined:
                raise Unreadable
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
        # The same index is the same place in all arrays only if they have the same shape and layout.
        alike = [(operand.shape, operand.type.layout) == (value.shape, value.type.layout) for operand in value.operands]
        if not value.operands or not all(
            same or operand.shape == () for same, operand in zip(alike, value.operands, strict=True)
        ):
            raise Unreadable
        operands = tuple(
            self._at(operand, kind if same else self._scalar, depth)
            for same, operand in zip(alike, value.operands, strict=True)
        )
        return self._add(arithmetic(value, operands, self._formula.operations, self._dtype))

    def _memory(self, value: Value, kind: _Kind) -> Operation:
        """Returns the operation that reads a value from memory."""
        dtype, place = value.type.dtype, value.place
        if place is None or dtype not in ((self._dtype,) if self._flat else ("f32", "pred", "s32")):
            raise Unreadable
        text = "" if dtype == self._dtype else dtype
        if text and value.count == 1:
            kind = _Kind("column", Vector(single=True))
        if text and (kind == _ROW or (dtype == "pred" and kind.vector.single)):
            raise Unreadable
        self.inputs.append((value.since, place))
        self.read.append((kind.name, value))
        if kind.name != "column":
            return Operation(kind.name, place=index_of(self._places[kind.name], place[0]), text=text)
        vector = dataclasses.replace(kind.vector, width=1 if dtype == "pred" else 4)
        return Operation("column", place=index_of(self._vectors, (place[0], vector)), text=text)

    def _number(self, value: Value, axis: int, kind: _Kind) -> Operation:
        """Returns the operation for the number of each value along an axis."""
        if self._flat or value.type.dtype != "s32" or value.shape[-1] != self._columns:
            raise Unreadable
        if axis == len(value.shape) - 1 and kind.name in ("array", "column"):
            return Operation("iota")
        by, count = math.prod(value.shape[axis + 1 : -1]), value.shape[axis]
        if kind == _ARRAY:
            return Operation("iota", text=f"{by} {count}")
        if kind.name == "column" and not kind.vector.group:
            return Operation("iota", text=f"{by} {count}")
        if kind.name == "column" and kind.vector.period == 1:
            return Operation("iota", text=f"{by * kind.vector.group} {count}")
        raise Unreadable

    def _repeated(self, value: Value, kind: _Kind) -> _Kind:
        """Returns the kind of what a broadcast repeats."""
        operand, last = value.operands[0], len(value.shape) - 1
        if operand.count == 1:
            return self._scalar
        if self._flat or [*value.dims] != sorted(value.dims):
            raise Unreadable
        if operand.count == value.count:
            return kind
        if kind.name not in ("array", "column") or kind.vector.single or value.shape[-1] != self._columns:
            raise Unreadable
        group, period = _rows_of(value.shape[:-1], value.dims)
        if kind == _ARRAY and group == 0 and period == self._rows and last not in value.dims:
            return _ROW
        vector, whole = kind.vector, self._count(kind) // self._columns
        if kind == _ARRAY or (group, period) == (0, 1):
            pass
        elif (group, period) == (0, whole):
            group, period = vector.group, vector.period
        elif vector.period % period or (group and (not vector.group or group % vector.period)):
            raise Unreadable
        elif group:
            group = vector.group * group // vector.period
        return _Kind("column", Vector(group, period, last not in value.dims))

    def _add(self, operation: Operation | None) -> int:
        if operation is None:
            raise Unreadable
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
        raise Unreadable
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
