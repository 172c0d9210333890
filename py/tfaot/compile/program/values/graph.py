"""One graph of the values that a sequence of thunks computes, in which XLA's kernels are inlined.

A pattern in the graph doesn't depend on how XLA cut a computation into kernels. Edges come from memory: a kernel reads what the
thunk before it wrote in the place of an argument. So a graph says nothing that memory doesn't show, whatever XLA's names are, or
which kernels it calls twice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfaot.compile.program.thunks.accesses import overlap
from tfaot.compile.program.thunks.kinds import Kernel, Place, Thunk
from tfaot.compile.program.values.instructions import Fusion, Window, windows
from tfaot.xla import module as xla
from tfaot.xla.module import Instruction, Shape

_FUNCTIONS = frozenset({"abs", "convert", "exponential", "is-finite", "log", "negate", "not", "rsqrt", "sqrt", "tanh"})
_ARITHMETIC = frozenset({"add", "divide", "maximum", "minimum", "multiply", "power", "subtract"})
_POINTWISE = _FUNCTIONS | _ARITHMETIC | {"and", "bitcast-convert", "clamp", "compare", "or", "select", "shift-left"}
"""Operations on values with the same index."""
_PURE = _POINTWISE | {"bitcast", "broadcast", "iota", "reduce", "reduce-window", "slice", "transpose"}
"""Operations whose result is the same if operands and attributes are."""


COMMUTATIVE = ("add", "maximum", "minimum", "multiply")
"""Operations whose operands can have any order."""


@dataclasses.dataclass(frozen=True, eq=False)
class Value:
    """A value that a kernel computes, or that is in memory. `op` is HLO's, or one of these.

    - `stored`: what a thunk stores of its operand. Only its operand says what it is.
    - `memory`: anything that is in memory, without operands.
    """

    op: str
    operands: tuple[Value, ...]
    type: Shape
    same: int
    """Equal for two values if both have the same numbers in memory order. Otherwise, nothing is known."""
    dims: tuple[int, ...] = ()
    """As in `Instruction.dimensions`."""
    text: str = ""
    """The direction of a comparison, or how a reduction combines two values."""
    number: float | None = None
    """Of a constant with one value."""
    ranges: tuple[tuple[int, ...], ...] = ()
    """Of a slice: start, limit, and stride for each dimension. Of a `dot`: the batch's dimensions on both sides, and those that it
    adds along."""
    windows: tuple[Window, ...] = ()
    """Of a reduction by windows; empty if they don't cut it into pieces."""
    place: Place | None = None
    """Where it is in memory."""
    since: int = -1
    """The index of the thunk from which on it is there."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""
        return self.type.dims

    @property
    def count(self) -> int:
        """The number of values."""
        return self.type.count

    @property
    def in_rows(self) -> bool:
        """Whether dimensions are in memory in order, the last one adjacent."""
        return self.type.layout == tuple(reversed(range(len(self.type.dims))))

    @property
    def bare(self) -> Value:
        """What computes it: the same numbers in the same order, in another shape or another place."""
        value = self
        while value.op == "stored" or (value.op == "bitcast" and value.same == value.operands[0].same):
            value = value.operands[0]
        return value

    @property
    def in_memory(self) -> Value | None:
        """What has the same bytes, and is in memory."""
        value = self
        while value.op == "bitcast" and value.place is None:
            value = value.operands[0]
        return None if value.place is None else value

    @property
    def inside(self) -> Value:
        """What has the same numbers in the same order, but is in memory if this is."""
        value = self
        while value.op == "bitcast" and value.same == value.operands[0].same:
            value = value.operands[0]
        return value


def in_order(root: Value) -> list[Value]:
    """Returns what is computed of what is in memory, operands first, with what is in memory."""
    order: dict[int, Value] = {}
    left = [(root, False)]
    while left:
        value, ready = left.pop()
        if ready:
            order.setdefault(id(value), value)
        elif id(value) not in order:
            left.append((value, True))
            if value.op not in ("stored", "memory"):
                left += [(operand, False) for operand in reversed(value.operands)]
    return [*order.values()]


@dataclasses.dataclass(frozen=True)
class Reduction:
    """A reduction of rows along the last axis, however many kernels it takes."""

    combiner: str
    start: float
    rows: Value
    through: tuple[Value, ...]
    """What kernels store between its steps."""

    @property
    def columns(self) -> int:
        """The length of a row."""
        return self.rows.shape[-1]


class Graph:
    """The values of a sequence of thunks."""

    def __init__(
        self, sequence: Sequence[Thunk], fusions: Mapping[str, Fusion], constants: Mapping[int, memoryview]
    ) -> None:
        """Follows what the thunks do to memory.

        Args:
          sequence: thunks. Those inside of others are taken as a whole.
          fusions: what kernels compute, by symbol. Others compute anything.
          constants: contents of buffers, by their index.
        """
        self._fusions, self._constants = fusions, constants
        self._numbers: dict[Any, int] = {}
        self._memory: dict[int, list[Value]] = {}
        self._places: dict[int, list[Value]] = {}
        self._changes: dict[int, list[tuple[int, Place]]] = {}
        self.results: list[Value | None] = []
        """What each kernel with a known result stores."""
        for index, thunk in enumerate(sequence):
            value = self._kernel(index, thunk) if isinstance(thunk, Kernel) and thunk.single else None
            for place in thunk.uses().changes:
                buffer = place[0].buffer
                self._changes.setdefault(buffer, []).append((index, place))
                kept = [
                    stored
                    for stored in self._memory.get(buffer, ())
                    if stored.place and not overlap(stored.place, place)
                ]
                self._memory[buffer] = kept
            self.results.append(value)
            if value is not None:
                self._keep(value)

    def places(self, value: Value, before: int) -> Iterator[Value]:
        """Iterates over values that are in memory before a thunk and have the same numbers, the last one first."""
        return (copy for copy in reversed(self._places.get(value.same, ())) if copy.since < before)

    def stored(self, place: Place, before: int) -> Value | None:
        """Returns what a kernel stored in a place, if it is there before a thunk."""
        changes = self._changes.get(place[0].buffer, ())
        last = next((at for at, changed in reversed(changes) if at < before and overlap(place, changed)), -1)
        value = self.results[last] if last >= 0 else None
        return value if value and value.place == place else None

    def between(self, root: Value, *inputs: Value) -> set[int]:
        """Returns the thunks that compute a stored value from inputs and constants, or nothing if that takes anything else."""
        members: set[int] = set()
        numbers, seen, left = {operand.same for operand in inputs}, set[int](), [root]
        while left:
            value = left.pop()
            if value.same in numbers or id(value) in seen:
                continue
            seen.add(id(value))
            if value.op == "stored":
                members.add(value.since)
            elif value.op not in _PURE | {"constant"}:
                return set()
            left += value.operands
        return members

    def _keep(self, value: Value) -> None:
        assert value.place
        self._memory.setdefault(value.place[0].buffer, []).append(value)
        self._places.setdefault(value.same, []).append(value)

    def _same(self, *key: Any) -> int:
        """Returns a number for what is computed, which is new without a key."""
        return self._numbers.setdefault(key or len(self._numbers), len(self._numbers))

    def _constant(self, type_: Shape, number: float | None) -> int:
        # Zeros of both signs are equal, but not the same.
        return self._same() if number is None else self._same("constant", type_.dtype, repr(number))

    def _kernel(self, index: int, kernel: Kernel) -> Value | None:
        """Returns what a kernel stores, if its arguments have the sizes that it expects."""
        fusion = self._fusions.get(kernel.symbol)
        if fusion is None or len(kernel.args) != fusion.arguments:
            return None
        values: dict[str, Value] = {}
        for instruction in fusion.instructions:
            name, type_ = instruction.name, instruction.type
            if name in fusion.parameters:
                place = kernel.places[fusion.parameters[name]]
                if place[1] != type_.bytes:
                    return None
                values[name] = self._argument(place, type_)
            else:
                values[name] = self._computed(
                    instruction, [values[operand] for operand in instruction.operands], fusion
                )
        root, place = values[fusion.root], kernel.places[-1]
        if place[1] != root.type.bytes:
            return None
        return Value("stored", (root,), root.type, root.same, place=place, since=index)

    def _argument(self, place: Place, type_: Shape) -> Value:
        """Returns what the next thunk reads."""
        if place[0].buffer in self._constants and type_.count == 1:
            content = self._constants[place[0].buffer][place[0].offset :][: place[1]]
            number = xla.number(content, type_.dtype)
            if number is not None:
                return Value("constant", (), type_, self._constant(type_, number), number=number, place=place)
        for value in self._memory.get(place[0].buffer, ()):
            if value.place == place:
                return value if value.type == type_ else self._bitcast(value, type_)
        changes = reversed(self._changes.get(place[0].buffer, ()))
        since = next((index for index, changed in changes if overlap(place, changed)), -1)
        value = Value("memory", (), type_, self._same(), place=place, since=since)
        self._keep(value)
        return value

    def _bitcast(self, value: Value, type_: Shape) -> Value:
        result = Value("bitcast", (value,), type_, value.same)
        if result.in_rows and value.in_rows and type_.dtype == value.type.dtype:
            return result
        return dataclasses.replace(result, same=self._same("bitcast", type_, value.same))

    def _computed(self, instruction: Instruction, operands: Sequence[Value], fusion: Fusion) -> Value:
        """Returns what an instruction computes."""
        op, type_, dims = instruction.opcode, instruction.type, instruction.dimensions
        in_rows = Value(op, (), type_, 0).in_rows and all(operand.in_rows for operand in operands)
        if (
            op == "bitcast"
            or (op == "reshape" and in_rows)
            or (op == "copy" and type_.layout == operands[0].type.layout)
        ):
            return self._bitcast(operands[0], type_)
        if op == "constant":
            number = instruction.value
            return Value(op, (), type_, self._constant(type_, number), number=number)
        text = ""
        if op == "compare":
            text = instruction.attributes.comparison_direction
        elif op in ("reduce", "reduce-window"):
            text = fusion.combined_by(instruction)
        ranges: tuple[tuple[int, ...], ...] = ()
        if op == "slice":
            ranges = tuple((cut.start, cut.limit, cut.stride or 1) for cut in instruction.attributes.slice_dimensions)
        elif op == "dot":
            axes = instruction.attributes.dot_dimension_numbers
            batch = axes.lhs_batch_dimensions, axes.rhs_batch_dimensions
            ranges = tuple(map(tuple, (*batch, axes.lhs_contracting_dimensions, axes.rhs_contracting_dimensions)))
        pieces = windows(instruction, operands[0].shape) if op == "reduce-window" else None
        value = Value(op, tuple(operands), type_, 0, dims, text, None, ranges, tuple(pieces or ()))
        if (
            op not in _PURE
            or (op in ("reduce", "reduce-window") and not text)
            or (pieces is None and op == "reduce-window")
        ):
            return dataclasses.replace(value, same=self._same())
        flat = op in _POINTWISE and in_rows
        shape = (type_.dtype,) if flat else (type_, *(operand.type for operand in operands))
        numbers = [operand.same for operand in operands]
        if flat and op in COMMUTATIVE:
            numbers.sort()
        key = op, text, dims, value.ranges, value.windows, shape, tuple(numbers)
        return dataclasses.replace(value, same=self._same(*key))


def reduction(value: Value) -> Reduction | None:
    """Returns a value as a reduction of rows, if it is one and they are in memory in order.

    XLA reduces long rows in steps: windows, windows of windows, and the rest. The pass `row_sums` adds up pieces of rows first.
    """
    if value.op != "reduce" or not value.text or value.operands[1].bare.number is None:
        return None
    start, rows = value.operands[1].bare.number, value.operands[0]
    through: list[Value] = []
    if not rows.in_rows or not rows.shape or value.dims != (len(rows.shape) - 1,) or not value.in_rows:
        return None
    while True:
        windowed = rows.bare
        if windowed.op != "reduce-window" or windowed.text != value.text or windowed.shape[-1:] != rows.shape[-1:]:
            break
        if windowed.operands[1].bare.number != start or any(window != (1, 0, 0) for window in windowed.windows[:-1]):
            break
        source = windowed.operands[0]
        if not windowed.windows or not source.in_rows:
            break
        if rows.inside.op == "stored":
            through.append(rows.inside)
        rows = source
    if value.text == "add":
        rows = _whole(rows)
    return Reduction(value.text, start, rows, tuple(through))


def _whole(rows: Value) -> Value:
    """Returns rows of which all pieces are added up, or what is given if it isn't such a sum."""
    terms, pieces = [rows], list[Value]()
    while terms:
        term = terms.pop()
        if term.op == "add":
            terms += term.operands
        else:
            pieces.append(term)
    if any(piece.op != "slice" for piece in pieces):
        return rows
    whole = pieces[0].operands[0]
    *others, last = [(0, size, 1) for size in whole.shape]
    cuts = sorted(piece.ranges[-1] for piece in pieces)
    ends = [0, *(end for _, end, _ in cuts)]
    if [begin for begin, _, _ in cuts] != ends[:-1] or ends[-1] != last[1] or any(step != 1 for _, _, step in cuts):
        return rows
    same = all(piece.operands[0].same == whole.same and [*piece.ranges[:-1]] == others for piece in pieces)
    return whole if same and whole.in_rows and all(piece.operands[0].shape == whole.shape for piece in pieces) else rows
