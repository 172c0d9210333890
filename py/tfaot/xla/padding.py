"""Shows of a program that is compiled for a size, its bucket, that it is exact for all smaller sizes.

A dimension that has an open size holds as many right values as a run has, and others behind them. This module follows both through
HLO, lowered for two buckets of each size. Dimensions that differ between them are open. For each, a value gets an `Axis`: how many
values are right, and what is known of the rest. A value is right where it is within the right part of all of its axes.
Behind the end of one axis, and within the others, it is `rest`; without one, it may be anything, NaN included. Behind the ends of
several, it is in a corner, which can hold other values than the rests.

An operation that combines values along an axis needs a rest that doesn't change its result: a sum needs zeros, a maximum -inf. A
loop is followed by induction. An operation without a rule, and a number that differs between the programs, end the proof. The
results have a `Cause` then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fractions
import itertools
import math
import operator
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tfaot.xla import marks
from tfaot.xla.module import Computation, Instruction, Module


class _Unproven(Exception):
    """A rule doesn't apply."""


@dataclasses.dataclass(frozen=True)
class Count:
    """A number of values: `(n + add) // divide * times + plus` for a run of size n, or 0 if that is negative."""

    add: int = 0
    divide: int = 1
    size: int = 0
    """Which of the open sizes n is."""
    times: int = 1
    plus: int = 0
    """0 if `times` is 1. Otherwise, `add` is less than `divide`, and not negative."""

    def then(self, add: int, divide: int = 1) -> Count:
        """Returns `(self + add) // divide`."""
        plus = self.plus + add
        if self.times % divide == 0:
            return self._with(self.times // divide, plus // divide)
        if divide % self.times:
            raise _Unproven(DIFFERS)
        one = self._with(1, plus // self.times)
        return Count(one.add, one.divide * (divide // self.times), self.size)

    def by(self, times: int) -> Count:
        """Returns `self * times`."""
        return self._with(self.times * times, self.plus * times)

    def _with(self, times: int, plus: int) -> Count:
        if times == 1:
            return Count(self.add + self.divide * plus, self.divide, self.size)
        whole, add = divmod(self.add, self.divide)
        return Count(add, self.divide, self.size, times, plus + whole * times)

    def is_multiple(self, of: int) -> bool:
        """Returns whether it is a multiple of a number for all sizes."""
        return self.times % of == self.plus % of == 0

    def of(self, size: int) -> int:
        """Returns the number for a size."""
        return (size + self.add) // self.divide * self.times + self.plus

    @property
    def least(self) -> int:
        """The number for the smallest size, which is 1."""
        return self.of(1)


@dataclasses.dataclass(frozen=True)
class Axis:
    """An open dimension of a value. After a reshape, it can be a part of a dimension."""

    dim: int
    extents: tuple[int, int]
    """Its size in both programs."""
    count: Count | None
    """How many values are right. None if all are, whatever the size is, and the first ones are those of smaller sizes."""
    since: Count | None = None
    """If all are right: where `rest` begins."""
    rest: Any = None
    """What is behind them: a scalar; or None, for anything. Where all that is right of a row is NaN, the rest may be NaN, too."""
    outer: int = 1
    """How many times the dimension repeats it."""
    flipped: bool = False
    """Whether the right values are at the end, in reverse."""

    @property
    def whole(self) -> bool:
        """Whether it is the whole dimension."""
        return self.outer == 1

    @property
    def plain(self) -> bool:
        """Whether it is the whole dimension, and the right values come first."""
        return self.whole and not self.flipped

    def sizes(self) -> tuple[int, int]:
        """Returns the size of the dimension in both programs."""
        return self.outer * self.extents[0], self.outer * self.extents[1]


@dataclasses.dataclass(frozen=True)
class Cause:
    """Where the proof ends."""

    node: str
    """The TensorFlow node's name, or empty."""
    op: str
    """The TensorFlow op, or else XLA's opcode."""
    why: str


@dataclasses.dataclass(frozen=True)
class Value:
    """What is known of an array."""

    axes: tuple[Axis, ...] = ()
    cause: Cause | None = None
    """Why nothing is known."""
    scalar: Any = None
    """The value of all elements."""
    counts: Count | None = None
    """All elements are this number."""
    index: int | None = None
    """The dimension whose index each element is."""
    uniform: frozenset[int] = frozenset()
    """Dimensions along which all elements are equal."""
    reduced: tuple[str, str, int] | None = None
    """It is a reduction of another array: how, the array's name, and its dimension."""
    positive: bool = False
    """No element is negative."""
    most: Count | None = None
    """No element is larger than this number."""
    corners: Mapping[frozenset[int], Any] = dataclasses.field(default_factory=dict)
    """What is behind the ends of several dimensions, and within the others: a scalar, where it is known."""

    def at(self, dim: int) -> Axis | None:
        """Returns the axis of a dimension."""
        return next((axis for axis in self.axes if axis.dim == dim), None)


FREE = Value()

BEHIND = "combines values behind the end of the size with others"
DIFFERS = "depends on the size in a way that isn't followed"
UNKNOWN = "has no rule"
ENDS = "counts places from the end"


def prove(
    programs: tuple[Module, Module],
    buckets: Sequence[tuple[int, int]],
    sized: Mapping[int, Mapping[int, Count]],
    sizes: Sequence[int],
    valid: bool,
    smallest: Sequence[int],
    counts: Sequence[Mapping[int, Count]] = (),
    ends: Mapping[str, Mapping[int, Count]] = types.MappingProxyType({}),
) -> list[tuple[Cause | None, dict[int, Count]]]:
    """Follows the sizes through a program.

    Args:
      programs: the program for two buckets of each size. The differences of two sizes' buckets aren't the same.
      buckets: both buckets of each size.
      sized: by the number of a parameter, its open dimensions, and how many values of each are right.
      sizes: the numbers of the parameters that are the sizes of a run.
      valid: whether all windows with strides have padding `VALID`.
      smallest: the least of each size.
      counts: of the first results, how many values a run has of dimensions along which all are right.
      ends: for nodes that pad or slice by a number that depends on a size, how many values a run has after that, by dimension.

    Returns:
      For each result, what ends the proof or None, and the number of right values by open dimension.
    """
    parameters = []
    for number, shapes in enumerate(zip(programs[0].parameters, programs[1].parameters, strict=True)):
        axes = tuple(
            Axis(dim, (shapes[0].dims[dim], shapes[1].dims[dim]), count)
            for dim, count in sorted(sized.get(number, {}).items())
        )
        parameters.append(Value(axes, counts=Count(size=sizes.index(number)) if number in sizes else None))
    root = _Walk(programs, buckets, valid, smallest, ends).run(programs[0].entry, programs[1].entry, parameters)
    results = []
    values = root if isinstance(root, tuple) else (root,)
    for place, value in enumerate(values):
        cause, of_model = value.cause, counts[place] if place < len(counts) else {}
        of_run = {axis.dim: axis.count or _whole(axis, buckets, of_model.get(axis.dim)) for axis in value.axes}
        if cause is None and (None in of_run.values() or not all(axis.plain for axis in value.axes)):
            cause = Cause("", "result", ENDS if any(axis.flipped for axis in value.axes) else DIFFERS)
        results.append((cause, {dim: count for dim, count in of_run.items() if count}))
    return results


def _whole(axis: Axis, buckets: Sequence[tuple[int, int]], of_model: Count | None) -> Count | None:
    """Returns how many values a run has of a dimension along which all are right."""
    counts = [Count(axis.extents[0] - extents[0], size=size) for size, extents in enumerate(buckets)]
    counts = [of_model] if of_model else counts
    return next((count for count in counts if axis.extents == (*map(count.of, buckets[count.size]),)), None)


class _Walk:
    def __init__(
        self,
        programs: tuple[Module, Module],
        buckets: Sequence[tuple[int, int]],
        valid: bool,
        smallest: Sequence[int],
        ends: Mapping[str, Mapping[int, Count]],
    ) -> None:
        self._programs = programs
        self._buckets = buckets
        self._valid = valid
        self._smallest = smallest
        self._ends = ends

    def run(self, one: Computation, other: Computation, parameters: Sequence[Any]) -> Any:
        """Returns what is known of a computation's result."""
        done: dict[tuple[str, str], Any] = {}
        stack = [(one.root.name, other.root.name)]
        while stack:
            pair = stack[-1]
            a, b = one.instructions[pair[0]], other.instructions[pair[1]]
            same = a.opcode == b.opcode and len(a.operands) == len(b.operands)
            operands = [*zip(a.operands, b.operands, strict=True)] if same else []
            if missing := [operand for operand in operands if operand not in done and pair not in done]:
                stack += missing
                continue
            stack.pop()
            if pair not in done:
                values = [done[operand] for operand in operands]
                done[pair] = (
                    self._result(
                        _Step(
                            *(a, b, values, (one, other), self._programs[0]),
                            *(self._buckets, self._valid, self._smallest, self._ends),
                        ),
                        parameters,
                    )
                    if same
                    else _failed(a, DIFFERS)
                )
        return done[one.root.name, other.root.name]

    def _result(self, step: _Step, parameters: Sequence[Any]) -> Any:
        op = step.one.opcode
        if op == "parameter":
            return parameters[step.one.number]
        if op == "tuple":
            return tuple(step.operands)
        if op == "opt-barrier":
            return step.operands[0]
        if op == "get-tuple-element":
            whole = step.operands[0]
            return whole[step.one.attributes.tuple_index] if isinstance(whole, tuple) else whole
        if op == "call":
            return self._called(step, 0, step.operands)
        if op == "set-dimension-size" and step.sets_whole():
            return step.operands[0]
        if op == "select" and step.value(0).scalar is not None and not step.value(0).axes:
            return step.operands[1 if step.value(0).scalar else 2]
        if op == "while":
            try:
                return self._loop(step)
            except _Unproven as error:
                return _failed(step.one, str(error))
        values = [leaf for operand in step.operands for leaf in _leaves(operand)]
        if cause := next((value.cause for value in values if value.cause), None):
            return _everywhere(step.one, Value(cause=cause))
        try:
            if op == "conditional":
                return self._branches(step, values)
            return _checked(step, _RULES.get(op, _unknown)(step))
        except _Unproven as error:
            return _failed(step.one, str(error))

    def _called(self, step: _Step, index: int, parameters: Sequence[Any]) -> Any:
        one = self._programs[0].computations[step.one.called[index]]
        return self.run(one, self._programs[1].computations[step.other.called[index]], parameters)

    def _branches(self, step: _Step, values: Sequence[Value]) -> Any:
        """Follows branches in which nothing has the size."""
        if any(value.axes for value in values) or step.one.type != step.other.type:
            raise _Unproven("is a branch on values that have the size")
        for index in range(len(step.one.called)):
            result = self._called(step, index, [_freed(step.operands[index + 1])])
            if any(leaf.cause or leaf.axes for leaf in _leaves(result)):
                raise _Unproven("is a branch that depends on the size")
        return _everywhere(step.one, FREE)

    def _loop(self, step: _Step) -> Any:
        """Follows a loop by induction: what holds before it, and after each step if it held before, holds after it."""
        called = [self._programs[0].computations[name] for name in step.one.called]
        going = next(index for index, computation in enumerate(called) if computation.root.dtype == "pred")
        counters = _counters(self._programs[0], called[1 - going], called[going])
        state = step.operands[0]
        while True:
            held = [*state]
            for counter, limit in counters.items():
                first, end = state[counter], state[limit].counts
                if first.positive and end is not None:
                    held[counter] = dataclasses.replace(first, scalar=None, most=end.then(-1))
            after = self._called(step, 1 - going, [tuple(held)])
            joined = _met(state, after)
            if joined == state:
                break
            state = joined
        (goes,) = _leaves(self._called(step, going, [state]))
        if goes.cause:
            return _everywhere(step.one, Value(cause=goes.cause))
        if goes.axes:
            raise _Unproven("is a loop whose end depends on the size in a way that isn't followed")
        return state


_SAME = frozenset({"bitcast", "copy", "reshape"})


def _counters(program: Module, body: Computation, condition: Computation) -> dict[int, int]:
    """Returns what a loop counts by adding a positive number, and the element that each is less than in every step."""

    def behind(computation: Computation, name: str) -> Instruction:
        """Returns what a value is the same as."""
        instruction = computation.instructions[name]
        while instruction.opcode in _SAME:
            instruction = computation.instructions[instruction.operands[0]]
        return instruction

    def element(computation: Computation, name: str) -> int | None:
        """Returns which element of the loop's state a value is."""
        instruction = behind(computation, name)
        if instruction.opcode != "get-tuple-element":
            return None
        whole = computation.instructions[instruction.operands[0]].opcode == "parameter"
        return instruction.attributes.tuple_index if whole else None

    limits: dict[int, int] = {}
    pending = [(condition, condition.root.name)]
    while pending:
        computation, name = pending.pop()
        instruction = behind(computation, name)
        if instruction.opcode == "and":
            pending += [(computation, operand) for operand in instruction.operands]
        elif instruction.opcode == "get-tuple-element":
            call = computation.instructions[instruction.operands[0]]
            taken = [computation.instructions[operand].opcode for operand in call.operands]
            if call.opcode == "call" and taken == ["parameter"]:
                called = program.computations[call.called[0]]
                if called.root.opcode == "tuple":
                    pending.append((called, called.root.operands[instruction.attributes.tuple_index]))
        elif instruction.opcode == "compare" and instruction.attributes.comparison_direction == "LT":
            counter, limit = (element(computation, operand) for operand in instruction.operands)
            if counter is not None and limit is not None:
                limits[counter] = limit
    counters = {}
    for counter, limit in limits.items() if body.root.opcode == "tuple" else ():
        added = behind(body, body.root.operands[counter])
        if added.opcode != "add" or element(body, body.root.operands[limit]) != limit:
            continue
        steps = [body.instructions[name].value for name in added.operands if element(body, name) != counter]
        if len(steps) == 1 and steps[0] is not None and steps[0] > 0:
            counters[counter] = limit
    return counters


def _met(one: Any, other: Any) -> Any:
    """Returns what holds for both of two values, or trees of values.

    Raises:
      _Unproven: they have different axes.
    """
    if isinstance(one, tuple):
        return tuple(_met(*pair) for pair in zip(one, other, strict=True))
    if cause := one.cause or other.cause:
        return Value(cause=cause)
    if {axis.dim for axis in one.axes} != {axis.dim for axis in other.axes}:
        raise _Unproven(DIFFERS)
    axes = []
    for axis in one.axes:
        same = other.at(axis.dim)
        axes.append(axis if axis == same else _joined([axis, same]))
    return Value(
        tuple(axes),
        scalar=one.scalar if one.scalar is not None and one.scalar == other.scalar else None,
        counts=one.counts if one.counts == other.counts else None,
        uniform=one.uniform & other.uniform,
        positive=one.positive and other.positive,
        corners={dims: rest for dims, rest in one.corners.items() if other.corners.get(dims) == rest},
    )


@dataclasses.dataclass(frozen=True)
class _Step:
    """An instruction of both programs."""

    one: Instruction
    other: Instruction
    operands: Sequence[Any]
    computations: tuple[Computation, Computation]
    program: Module
    buckets: Sequence[tuple[int, int]]
    """The open sizes in both programs."""
    valid: bool
    """Whether windows with strides begin at the same places for all sizes."""
    smallest: Sequence[int]
    """The least of each size."""
    ends: Mapping[str, Mapping[int, Count]]
    """For nodes that pad or slice by a number that depends on a size, how many values a run has after that, by dimension."""

    def operation(self) -> str:
        """Returns the operation of a reduction, or an empty string if it isn't a single one."""
        called = self.program.computations[self.one.called[0]]
        root = called.root
        if {called.instructions[name].opcode for name in root.operands} != {"parameter"} or len({*root.operands}) != 2:
            return ""
        return root.opcode

    def sets_whole(self) -> bool:
        """Returns whether the instruction sets a dimension's size to what it is."""
        for computation, instruction in zip(self.computations, (self.one, self.other), strict=True):
            size = computation.instructions[instruction.operands[1]].value
            if size is None or size != instruction.shape[instruction.dimensions[0]]:
                return False
        return True

    def counted(self, axis: Axis, count: Count | None) -> Axis:
        """Returns an axis that is all right as one of which so many values are, if it has as many."""
        if axis.count is None and count is not None and axis.extents == (*map(count.of, self.buckets[count.size]),):
            return dataclasses.replace(axis, count=count)
        return axis

    def is_within(self, place: Value, axis: Axis) -> bool:
        """Returns whether a place that is a number of values is one of an axis that is all right."""
        count = place.counts
        if count is None or axis.count is not None or not axis.plain or count.least < 0:
            return False
        return all(count.of(size) < of for size, of in zip(self.buckets[count.size], axis.extents, strict=True))

    def is_part(self, end: Count, axis: Axis, limits: tuple[int, int]) -> bool:
        """Returns whether the first values of an axis, which end at these limits, are right up to a number of values."""
        count = axis.count
        if (
            count is None
            or not axis.plain
            or end.size != count.size
            or limits != (*map(end.of, self.buckets[end.size]),)
        ):
            return False
        sizes = range(self.smallest[end.size], self.buckets[end.size][0] + 1)
        return all(max(end.of(size), 0) <= count.of(size) for size in sizes)

    def value(self, index: int) -> Value:
        value: Value = self.operands[index]
        return value

    def ended(self, index: int) -> Value:
        """Returns an operand, whose masks have as many right values as the size they end at."""
        value = self.value(index)
        return dataclasses.replace(value, axes=tuple(self.counted(axis, axis.since) for axis in value.axes))

    def shapes(self, index: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns the shapes of an operand in both programs."""
        one, other = (
            computation.instructions[instruction.operands[index]].shape
            for computation, instruction in zip(self.computations, (self.one, self.other), strict=True)
        )
        return one, other

    def same(self, field: str) -> Any:
        """Returns an attribute, which must be the same in both programs."""
        one, other = getattr(self.one.attributes, field), getattr(self.other.attributes, field)
        if one != other:
            raise _Unproven(DIFFERS)
        return one


def _leaves(tree: Any) -> list[Value]:
    return [leaf for part in tree for leaf in _leaves(part)] if isinstance(tree, tuple) else [tree]


def _freed(tree: Any) -> Any:
    return tuple(map(_freed, tree)) if isinstance(tree, tuple) else FREE


def _everywhere(instruction: Instruction, value: Value) -> Any:
    def fill(shape: Any) -> Any:
        return tuple(map(fill, shape.parts)) if shape.dtype == "tuple" else value

    return fill(instruction.type)


def _failed(instruction: Instruction, why: str) -> Any:
    metadata = instruction.attributes.metadata
    return _everywhere(instruction, Value(cause=Cause(metadata.op_name, metadata.op_type or instruction.opcode, why)))


def _checked(step: _Step, value: Value) -> Any:
    """Checks that a rule's axes are the dimensions that differ."""
    shapes = zip(step.one.type.arrays, step.other.type.arrays, strict=True)
    for one, other in shapes:
        if len(one.dims) != len(other.dims):
            raise _Unproven(DIFFERS)
        for dim, sizes in enumerate(zip(one.dims, other.dims, strict=True)):
            axes = [axis for axis in value.axes if axis.dim == dim]
            if [axis.sizes() for axis in axes] != ([sizes] if axes or sizes[0] != sizes[1] else []):
                raise _Unproven(DIFFERS)
    return _everywhere(step.one, value)


def _joined(axes: Sequence[Axis]) -> Axis:
    """Returns the axis of a result whose operands have these, without a rest.

    Raises:
      _Unproven: they are different.
    """
    counted = {axis.count for axis in axes if axis.count is not None}
    if len(counted) > 1 or len({(axis.extents, axis.outer, axis.flipped) for axis in axes}) > 1:
        raise _Unproven("combines values of different sizes")
    return dataclasses.replace(axes[0], count=counted.pop() if counted else None, since=None, rest=None)


_DTYPES = {"f16": "f2", "f32": "f4", "f64": "f8", "pred": "?"}


def _typed(value: Any, dtype: str) -> Any:
    """Returns a scalar in a dtype of HLO's."""
    if dtype == "bf16":
        return np.float32(value)
    return np.dtype(_DTYPES.get(dtype) or f"{dtype[0].replace('s', 'i')}{int(dtype[1:]) // 8}").type(value)


_SCALAR: Mapping[str, Callable[..., Any]] = {
    "abs": np.abs,
    "add": np.add,
    "and": np.bitwise_and,
    "convert": lambda a: a,
    "copy": lambda a: a,
    "divide": np.divide,
    "exponential": np.exp,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "negate": np.negative,
    "not": np.logical_not,
    "or": np.bitwise_or,
    "subtract": np.subtract,
}
"""Operations whose result for known operands is known: for 0, infinities, and bools, as exactly as XLA's code has it."""

_COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    "EQ": operator.eq,
    "GE": operator.ge,
    "GT": operator.gt,
    "LE": operator.le,
    "LT": operator.lt,
    "NE": operator.ne,
}

_ELEMENTWISE = (
    *_SCALAR,
    "atan2",
    "cbrt",
    "ceil",
    "clamp",
    "compare",
    "complex",
    "cosine",
    "count-leading-zeros",
    "erf",
    "exponential-minus-one",
    "floor",
    "imag",
    "is-finite",
    "log",
    "log-plus-one",
    "logistic",
    "popcnt",
    "power",
    "real",
    "reduce-precision",
    "remainder",
    "round-nearest-afz",
    "round-nearest-even",
    "rsqrt",
    "select",
    "shift-left",
    "shift-right-arithmetic",
    "shift-right-logical",
    "sign",
    "sine",
    "sqrt",
    "tan",
    "tanh",
    "xor",
)

_POSITIVE = frozenset({"abs", "exponential", "logistic", "sqrt"})


def _elementwise(step: _Step) -> Value:
    values = [step.value(index) for index in range(len(step.operands))]
    op, rank = step.one.opcode, len(step.one.shape)
    if op == "compare" and step.same("comparison_direction") == "LT":
        zero = values[1].scalar
        if values[0].positive and not values[0].axes and zero is not None and zero == 0:
            return Value(scalar=np.bool_(False))
        dim, count = values[0].index, values[1].counts
        axis = None if dim is None else values[0].at(dim)
        if axis is not None and axis.plain and axis.count is None and count is not None:
            return Value(
                (*(each for each in values[0].axes if each != axis), dataclasses.replace(axis, since=count, rest=False))
            )
    axes, ends_of = [], dict[int, Count]()
    for dim in range(rank):
        # A scalar operand of `clamp` or `select` has no dimensions.
        present = [axis for value in values if (axis := value.at(dim))]
        if not present:
            continue
        joined = _joined(present)
        ends = (
            {joined.count} if joined.count else {axis.since for axis in present if axis.since and axis.rest is not None}
        )
        if len(ends) == 1:
            end = ends_of[dim] = ends.pop()
            rests = [_rest(value, {dim: end}) for value in values]
            joined = dataclasses.replace(joined, since=end, rest=_combined(step, values, rests, dim, end))
        axes.append(joined)
    corners = {}
    for number in range(2, len(ends_of) + 1):
        for dims in itertools.combinations(ends_of, number):
            behind = [_rest(value, {dim: ends_of[dim] for dim in dims}) for value in values]
            corners[frozenset(dims)] = _combined(step, values, behind)
    known = [value.scalar for value in values]
    varying = [value.uniform for value in values if value.scalar is None or value.axes]
    forwards = values[0] if op in ("convert", "copy") else FREE
    return Value(
        tuple(axes),
        scalar=None if None in known else _computed(step, known),
        counts=_counts(op, values),
        uniform=frozenset.intersection(*varying) if varying else frozenset(range(rank)),
        positive=op in _POSITIVE or forwards.positive or _is_positive(op, values),
        reduced=forwards.reduced,
        index=forwards.index,
        most=forwards.most,
        corners=corners,
    )


def _is_positive(op: str, values: Sequence[Value]) -> bool:
    signs = [value.positive or (value.scalar is not None and bool(value.scalar >= 0)) for value in values]
    return (op == "add" and all(signs)) or (op == "maximum" and any(signs))


def _rest(value: Value, ends: Mapping[int, Count]) -> Any:
    """Returns what a value is behind the ends of some dimensions, and within the others, or None."""
    axes = [axis for axis in value.axes if axis.dim in ends]
    if value.scalar is not None or not axes:
        return value.scalar
    # What all is right along has the same rest there as elsewhere.
    axes = [axis for axis in axes if axis.count is not None] or [axis for axis in axes if axis.since is not None][:1]
    if not axes or any(ends[axis.dim] not in (axis.count, axis.since) for axis in axes):
        return None
    return axes[0].rest if len(axes) == 1 else value.corners.get(frozenset(axis.dim for axis in axes))


def _behind(value: Value, dims: Sequence[int]) -> list[Any]:
    """Returns what a value is behind the ends of one or more of some dimensions: scalars, and None where it isn't known."""
    axes = [axis for axis in value.axes if axis.dim in dims]
    corners = (
        value.corners.get(frozenset(chosen))
        for number in range(2, len(axes) + 1)
        for chosen in itertools.combinations([axis.dim for axis in axes], number)
    )
    return [*(axis.rest for axis in axes), *corners]


def _computed(step: _Step, operands: Sequence[Any]) -> Any:
    """Returns the result of an operation for known operands, or None."""
    op = step.one.opcode
    if op == "select":
        return operands[1] if operands[0] else operands[2]
    if op == "compare":
        return _COMPARED[step.same("comparison_direction")](*operands)
    if op not in _SCALAR or step.one.dtype in ("c64", "c128", "token"):
        return None
    with np.errstate(all="ignore"), contextlib.suppress(OverflowError, TypeError, ValueError):
        return _typed(_SCALAR[op](*operands), step.one.dtype)
    return None


def _combined(
    step: _Step, values: Sequence[Value], rests: Sequence[Any], dim: int = -1, count: Count | None = None
) -> Any:
    """Returns what an elementwise result is behind the end of a dimension, or of several; or None if that isn't known."""
    op = step.one.opcode
    if op == "select" and rests[0] is not None:
        return rests[1] if rests[0] else rests[2]
    if op == "select" and rests[1] is not None and rests[1] == rests[2]:
        return rests[1]
    if None not in rests:
        return _computed(step, rests)
    if step.one.dtype == "pred" and op in ("and", "or"):
        absorbing = op == "or"
        return absorbing if any(rest is not None and bool(rest) == absorbing for rest in rests) else None
    # A softmax: nothing behind the end, unless all that is right is NaN.
    one, other = values[0], values[-1]
    if (
        len(values) < 2
        or rests[0] is None
        or dim not in other.uniform
        or count is None
        or count.of(step.smallest[count.size]) < 1
    ):
        return None
    if op == "subtract" and rests[0] == -math.inf and other.reduced == ("maximum", step.one.operands[0], dim):
        return rests[0]
    if op == "divide" and rests[0] == 0 and one.positive and other.reduced == ("add", step.one.operands[0], dim):
        return rests[0]
    return None


def _counts(op: str, values: Sequence[Value]) -> Count | None:
    count = values[0].counts
    if op in ("convert", "copy"):
        return count
    if len(values) != 2:
        return None
    known = values[1].scalar
    if count is None and op in ("add", "multiply"):
        count, known = values[1].counts, values[0].scalar
    if count is None or known is None or known != int(known):
        return None
    if op in ("add", "subtract"):
        return count.then(int(known) if op == "add" else -int(known))
    if op == "multiply":
        return count.by(int(known)) if known > 0 else None
    return count.then(0, int(known)) if op == "divide" and known > 0 and count.least >= 0 else None


def is_prefix(short: Any, long: Any) -> bool:
    """Returns whether an array is the first part of another one, but for rounding errors of functions."""
    prefix = long[tuple(map(slice, short.shape))] if short.ndim == long.ndim else long
    if prefix.shape != short.shape:
        return False
    if prefix.tobytes() == short.tobytes():
        return True
    near = {"float32": 2e-6, "float64": 1e-13}.get(short.dtype.name)
    return near is not None and np.allclose(prefix, short, near, 0, equal_nan=True)


def _constant(step: _Step) -> Value:
    one, other = step.one.literal, step.other.literal
    if one is None or other is None:
        if step.one.attributes.literal == step.other.attributes.literal:
            return FREE
        raise _Unproven(DIFFERS)
    dims = [dim for dim in range(one.ndim) if one.shape[dim] != other.shape[dim]]
    short, long = (one, other) if one.size <= other.size else (other, one)
    if not is_prefix(short, long):
        raise _Unproven(DIFFERS)
    axes = tuple(Axis(dim, (one.shape[dim], other.shape[dim]), None) for dim in dims)
    scalar, index = None, None
    if one.size and step.one.dtype not in ("bf16", "f16", "c64", "c128") and (long == long.flat[0]).all():
        scalar = long.flat[0]
    elif len(dims) == 1 and one.dtype.kind in "iu":
        places = np.arange(long.shape[dims[0]]).reshape([-1 if dim == dims[0] else 1 for dim in range(one.ndim)])
        index = dims[0] if (long == places).all() else None
    return Value(axes, scalar=scalar, index=index, positive=scalar is not None and bool(scalar >= 0))


def _differing(step: _Step, dims: Sequence[int]) -> tuple[Axis, ...]:
    """Returns axes of dimensions along which all of a result is right."""
    shapes = step.one.shape, step.other.shape
    return tuple(Axis(d, (shapes[0][d], shapes[1][d]), None) for d in dims if shapes[0][d] != shapes[1][d])


def _iota(step: _Step) -> Value:
    dim, rank = step.one.dimensions[0], len(step.one.shape)
    return Value(_differing(step, range(rank)), index=dim, uniform=frozenset(range(rank)) - {dim})


def _moved(value: Value, places: Mapping[int, int], **changes: Any) -> Value:
    """Returns a value whose dimensions have other numbers."""
    return dataclasses.replace(
        value,
        axes=tuple(dataclasses.replace(axis, dim=places[axis.dim]) for axis in value.axes),
        corners={frozenset(places[dim] for dim in dims): rest for dims, rest in value.corners.items()},
        index=None if value.index is None else places[value.index],
        uniform=frozenset(places[dim] for dim in value.uniform if dim in places),
        **changes,
    )


def _broadcast(step: _Step) -> Value:
    value, places = step.value(0), dict(enumerate(step.one.dimensions))
    new = [dim for dim in range(len(step.one.shape)) if dim not in places.values()]
    moved = _moved(value, places)
    axes = (*moved.axes, *_differing(step, new))
    # The reduction's rows stay where they are.
    kept = [*places.values()] == sorted(places.values()) and (not new or (value.reduced and new == [value.reduced[2]]))
    reduced = value.reduced if kept else None
    return dataclasses.replace(moved, axes=axes, uniform=moved.uniform | frozenset(new), reduced=reduced)


def _transpose(step: _Step) -> Value:
    return _moved(step.value(0), {old: new for new, old in enumerate(step.one.dimensions)}, reduced=None)


def _reshape(step: _Step) -> Value:
    value, before, after = step.value(0), step.shapes(0), (step.one.shape, step.other.shape)
    if value.axes and 0 in before[0]:
        raise _Unproven(UNKNOWN)
    axes = [_reshaped(axis, before, after) for axis in value.axes]
    moved = {old.dim: new.dim for old, new in zip(value.axes, axes, strict=True)}
    kept = [size for size in before[0] if size != 1] == [size for size in after[0] if size != 1]
    index = None
    if kept and value.index is not None and (counted := value.at(value.index)):
        index = axes[value.axes.index(counted)].dim
    rests = all(old.rest is None or new.rest is not None for old, new in zip(value.axes, axes, strict=True))
    return Value(
        tuple(axes),
        scalar=value.scalar,
        counts=value.counts,
        index=index,
        reduced=value.reduced if kept else None,
        positive=value.positive,
        most=value.most,
        corners={frozenset(moved[dim] for dim in dims): rest for dims, rest in value.corners.items()} if rests else {},
    )


def _reshaped(axis: Axis, before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> Axis:
    """Returns where an axis is after a reshape: joined with dimensions after it, or a part of its places, rounded down.

    A size of which a part would be left is an error in TensorFlow.
    """
    strides = [math.prod(shape[axis.dim + 1 :]) for shape in before]
    for dim in range(len(after[0])):
        below = [math.prod(shape[dim + 1 :]) for shape in after]
        ratios = {fractions.Fraction(*pair) for pair in zip(strides, below, strict=True)} if all(below) else set()
        if len(ratios) != 1:
            continue
        times, divide = ratios.pop().as_integer_ratio()
        if (
            1 not in (times, divide)
            or (axis.flipped and times != divide)
            or any(size % divide for size in axis.extents)
        ):
            continue
        extents = axis.extents[0] * times // divide, axis.extents[1] * times // divide
        outer = {
            shape[dim] // size if size and shape[dim] % size == 0 else 0
            for shape, size in zip(after, extents, strict=True)
        }
        if len(outer) != 1 or 0 in outer:
            continue
        ends = [end for end in (axis.count, axis.since) if end is not None]
        exact = all(end.by(times).is_multiple(divide) for end in ends)
        count, since = (None if end is None else end.by(times).then(0, divide) for end in (axis.count, axis.since))
        return dataclasses.replace(
            axis,
            dim=dim,
            extents=extents,
            outer=outer.pop(),
            count=count,
            since=since if exact else None,
            rest=axis.rest if exact else None,
        )
    raise _Unproven("reshapes the size away")


_NEUTRAL: Mapping[str, Callable[[str], Any]] = {
    "add": lambda dtype: 0,
    "and": lambda dtype: True,
    "maximum": lambda dtype: -math.inf if "f" in dtype else np.iinfo(type(_typed(0, dtype))).min,
    "minimum": lambda dtype: math.inf if "f" in dtype else np.iinfo(type(_typed(0, dtype))).max,
    "multiply": lambda dtype: 1,
    "or": lambda dtype: False,
}
"""What doesn't change the result of a reduction."""


def _neutral(op: str, dtype: str, rest: Any) -> bool:
    if rest is None or op not in _NEUTRAL or (dtype == "pred" and op not in ("and", "or")):
        return False
    return bool(rest == _NEUTRAL[op](dtype))


def _reduce(step: _Step) -> Value:
    gone, rank = set(step.one.dimensions), len(step.shapes(0)[0])
    values = [leaf for operand in step.operands for leaf in _leaves(operand)]
    op = step.operation()
    if not isinstance(step.operands[0], tuple):
        values[0] = step.ended(0)
    value, over = values[0], [axis for axis in values[0].axes if axis.dim in gone]
    others = len(step.operands) != 2
    if others and over and (extreme := _extreme(step)):
        (dim,) = gone
        if (
            not over[0].count
            or values[1].index != dim
            or not _neutral(extreme, step.one.type.arrays[0].dtype, over[0].rest)
        ):
            raise _Unproven(BEHIND)
        over = []
    if any(axis.count is None for axis in over) or (over and others):
        raise _Unproven(BEHIND)
    if not all(_neutral(op, step.one.dtype, rest) for rest in _behind(value, [axis.dim for axis in over])):
        raise _Unproven(BEHIND)
    places = {dim: place for place, dim in enumerate(dim for dim in range(rank) if dim not in gone)}
    axes = []
    for axis in value.axes if not others else _common(values):
        if axis.dim in gone:
            continue
        keeps = (
            not over and not others and (op in ("maximum", "minimum", "and", "or") or (op == "add" and axis.rest == 0))
        )
        axes.append(dataclasses.replace(axis, dim=places[axis.dim], rest=axis.rest if keeps else None))
    reduced = None
    if len(gone) == 1 and not others:
        reduced = (op, step.one.operands[0], next(iter(gone)))
    return Value(tuple(axes), reduced=reduced, positive=value.positive and op == "add")


def _extreme(step: _Step) -> str:
    """Returns which extreme value a reduction of values and places finds, with its first place, or an empty string."""
    computation = step.program.computations[step.one.called[0]]

    def form(name: str) -> Any:
        instruction = computation.instructions[name]
        if instruction.opcode == "parameter":
            return instruction.number
        direction = (instruction.attributes.comparison_direction,) if instruction.opcode == "compare" else ()
        return instruction.opcode, *direction, *map(form, instruction.operands)

    for direction, extreme in (("GE", "maximum"), ("LE", "minimum")):
        better, same = ("compare", direction, 0, 2), ("compare", "EQ", 0, 2)
        place = ("select", same, ("minimum", 1, 3), ("select", better, 1, 3))
        if len(step.one.dimensions) == 1 and form(computation.root.name) == ("tuple", ("select", better, 0, 2), place):
            return extreme
    return ""


def _sort(step: _Step) -> Value:
    """Follows a stable sort. Values behind the end stay behind it if they come last in the order."""
    values = [leaf for operand in step.operands for leaf in _leaves(operand)]
    (dim,), order = step.one.dimensions, step.program.computations[step.one.called[0]]
    root = order.root
    kind, *numbers = marks.numbers(step.program, order) or (0,)
    if kind == marks.FOURIER and all(axis.dim < len(step.one.shape) - len(numbers[2:]) for axis in values[0].axes):
        return Value((*_common(values),))
    present = [axis for value in values if (axis := value.at(dim))]
    if not present:
        return Value((*_common(values),)) if _is_order(step) else _unknown(step)
    last = {"GT": "maximum", "LT": "minimum"}.get(root.attributes.comparison_direction, "")
    axis = values[0].at(dim)
    if not _is_order(step) or axis is None or not axis.plain or axis.count is None or not step.one.attributes.is_stable:
        raise _Unproven(UNKNOWN)
    if not _neutral(last, step.one.type.arrays[0].dtype, axis.rest):
        raise _Unproven(BEHIND)
    return Value((*_common(values),))


def _is_order(step: _Step) -> bool:
    """Returns whether a sort is by the first operand. Other ones can stand for calls of the runtime (`marks.py`)."""
    order = step.program.computations[step.one.called[0]]
    operands = [order.instructions[name] for name in order.root.operands]
    compares = order.root.opcode == "compare" and all(operand.opcode == "parameter" for operand in operands)
    return compares and [operand.number for operand in operands] == [0, 1]


def _common(values: Sequence[Value]) -> list[Axis]:
    """Returns the axes of values that are combined elementwise, without rests."""
    dims = sorted({axis.dim for value in values for axis in value.axes})
    return [_joined([axis for value in values if (axis := value.at(dim))]) for dim in dims]


def _dot(step: _Step) -> Value:
    numbers = step.same("dot_dimension_numbers")
    left, right = step.ended(0), step.ended(1)
    for value, contracted in (
        (left, numbers.lhs_contracting_dimensions),
        (right, numbers.rhs_contracting_dimensions),
    ):
        if any(rest is None or rest != 0 for rest in _behind(value, [*contracted])):
            raise _Unproven(BEHIND)
    for one, other in zip(numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions, strict=True):
        axes = [axis for axis in (left.at(one), right.at(other)) if axis]
        if not axes:
            continue
        joined = _joined([dataclasses.replace(axis, dim=0) for axis in axes])
        if len(axes) < 2 or joined.count is None:
            raise _Unproven(BEHIND)
    result: list[list[Axis | None]] = []
    for one, other in zip(numbers.lhs_batch_dimensions, numbers.rhs_batch_dimensions, strict=True):
        result.append([left.at(one), right.at(other)])
    for value, batch, contracted, index in (
        (left, numbers.lhs_batch_dimensions, numbers.lhs_contracting_dimensions, 0),
        (right, numbers.rhs_batch_dimensions, numbers.rhs_contracting_dimensions, 1),
    ):
        free = [dim for dim in range(len(step.shapes(index)[0])) if dim not in (*batch, *contracted)]
        result += [[value.at(dim)] for dim in free]
    open_axes = []
    for dim, operands in enumerate(result):
        if present := [dataclasses.replace(axis, dim=dim) for axis in operands if axis]:
            open_axes.append(_joined(present))
    return Value(tuple(open_axes))


def _window(axis: Axis, window: Any, rest: Callable[[Any], bool], extents: tuple[int, int], valid: bool) -> Axis:
    """Returns an axis after windows along it.

    Args:
      axis: the operand's.
      window: the dimension of the window.
      rest: whether what is behind the end is what the operation pads with.
      extents: the result's sizes.
      valid: whether there is no padding that depends on the size.
    """
    reach = (window.size - 1) * max(window.window_dilation, 1)
    step, low, high = max(window.stride, 1), window.padding_low, window.padding_high
    if not axis.plain or max(window.base_dilation, 1) != 1:
        raise _Unproven(UNKNOWN)
    # Padding that depends on the size isn't 0 where the last window begins at the last value.
    if step > 1 and (low or high or (reach and not valid and all((extent - 1) % step for extent in axis.extents))):
        raise _Unproven("has padding and strides, so the places of its windows may depend on the size")
    if high > 0 and (axis.count is None or not rest(axis.rest)):
        raise _Unproven(BEHIND)
    if low + high > reach and axis.count is not None and axis.count.least < 0:
        raise _Unproven(UNKNOWN)
    count = None if axis.count is None else axis.count.then(low + high - reach - 1 + step, step)
    return dataclasses.replace(axis, extents=extents, count=count, rest=None)


def _windows(step: _Step) -> list[Any]:
    one, other = step.one.attributes.window, step.other.attributes.window
    if one != other:
        raise _Unproven("has windows that depend on the size")
    return [*one.dimensions]


def _convolution(step: _Step) -> Value:
    numbers, windows = step.same("convolution_dimension_numbers"), _windows(step)
    value, kernel = step.ended(0), step.value(1)
    if kernel.axes or step.same("batch_group_count") > 1 or value.at(numbers.input_feature_dimension):
        raise _Unproven(BEHIND)
    axes = []
    late = [
        place for place, window in zip(numbers.input_spatial_dimensions, windows, strict=True) if window.padding_high
    ]
    if any(rest is None or rest != 0 for rest in _behind(value, late)):
        raise _Unproven(BEHIND)
    if batch := value.at(numbers.input_batch_dimension):
        axes.append(dataclasses.replace(batch, dim=numbers.output_batch_dimension, rest=None))
    places = zip(numbers.input_spatial_dimensions, numbers.output_spatial_dimensions, windows, strict=True)
    for place, result, window in places:
        if axis := value.at(place):
            extents = step.one.shape[result], step.other.shape[result]
            after = _window(axis, window, lambda rest: rest is not None and rest == 0, extents, step.valid)
            axes.append(dataclasses.replace(after, dim=result))
    return Value(tuple(axes))


def _reduce_window(step: _Step) -> Value:
    op, windows = step.operation(), _windows(step)
    if len(step.operands) != 2:
        return _unknown(step)
    axes = []
    late = [dim for dim, window in enumerate(windows) if window.padding_high > 0]
    if not all(_neutral(op, step.one.dtype, rest) for rest in _behind(step.ended(0), late)):
        raise _Unproven(BEHIND)
    for axis in step.ended(0).axes:
        window = windows[axis.dim]
        if window.size == 1 and window.stride == 1:
            axes.append(dataclasses.replace(axis, rest=None))
            continue
        extents = step.one.shape[axis.dim], step.other.shape[axis.dim]
        axes.append(_window(axis, window, lambda rest: _neutral(op, step.one.dtype, rest), extents, step.valid))
    return Value(tuple(axes))


def _slice(step: _Step) -> Value:
    value, shapes, axes = step.value(0), step.shapes(0), []
    cuts = [*zip(step.one.attributes.slice_dimensions, step.other.attributes.slice_dimensions, strict=True)]
    for dim, (one, other) in enumerate(cuts):
        axis = value.at(dim)
        if one.start != other.start or one.stride != other.stride:
            raise _Unproven(ENDS)
        if axis is None or (
            one.start == 0 and (one.limit, other.limit) == (shapes[0][dim], shapes[1][dim]) and one.stride == 1
        ):
            if axis is not None:
                axes.append(axis)
            elif one.limit != other.limit:
                raise _Unproven(ENDS)
            continue
        least = 1 if axis.count is None else axis.count.of(step.smallest[axis.count.size])
        if not axis.whole or (axis.flipped and (one.start or one.stride > 1 or one.limit == other.limit)):
            raise _Unproven(ENDS)
        if one.limit == other.limit:
            if one.limit > least:
                raise _Unproven("takes more values than the smallest size has")
            continue
        end = step.ends.get(step.one.attributes.metadata.op_name, {}).get(dim)
        if end is not None and one.start == 0 and one.stride == 1 and step.is_part(end, axis, (one.limit, other.limit)):
            axes.append(dataclasses.replace(axis, count=end, since=None, rest=None, extents=(one.limit, other.limit)))
            continue
        late = axis.extents[0] - one.limit
        if late != axis.extents[1] - other.limit or least < 0:
            raise _Unproven(ENDS)
        count = None if axis.count is None else axis.count.then(-one.start - late + one.stride - 1, one.stride)
        rest = None if late or count is None else axis.rest
        extents = step.one.shape[dim], step.other.shape[dim]
        axes.append(dataclasses.replace(axis, count=count, rest=rest, extents=extents))
    return Value(tuple(axes), scalar=value.scalar, counts=value.counts, positive=value.positive)


def _reverse(step: _Step) -> Value:
    value, axes = step.value(0), []
    for axis in value.axes:
        if axis.dim in step.one.dimensions:
            if axis.count is None or not axis.whole:
                raise _Unproven(ENDS)
            axis = dataclasses.replace(axis, flipped=not axis.flipped)
        axes.append(axis)
    return Value(tuple(axes), scalar=value.scalar, positive=value.positive)


def _pad(step: _Step) -> Value:
    value, padding = step.ended(0), step.value(1).scalar
    config, axes = step.one.attributes.padding_config, []
    others = [*step.other.attributes.padding_config.dimensions]
    late_counts = step.ends.get(step.one.attributes.metadata.op_name, {})
    for dim, (edge, other_edge) in enumerate(zip(config.dimensions, others, strict=True)):
        if edge != other_edge and (
            dim not in late_counts
            or (edge.edge_padding_low, edge.interior_padding)
            != (other_edge.edge_padding_low, other_edge.interior_padding)
        ):
            raise _Unproven(DIFFERS)
    if step.value(1).axes:
        raise _Unproven(UNKNOWN)
    late = [dim for dim, edge in enumerate(config.dimensions) if edge.edge_padding_high > 0 or dim in late_counts]
    if any(rest is None or padding is None or rest != padding for rest in _behind(value, late)):
        raise _Unproven(BEHIND)
    for axis in value.axes:
        edge = config.dimensions[axis.dim]
        low, high = edge.edge_padding_low, edge.edge_padding_high
        if axis.dim in late_counts and axis.count is not None and axis.plain and not edge.interior_padding and low >= 0:
            extents = axis.extents[0] + low + high, axis.extents[1] + low + others[axis.dim].edge_padding_high
            count = late_counts[axis.dim]
            if extents != (*map(count.of, step.buckets[count.size]),):
                raise _Unproven(DIFFERS)
            axes.append(dataclasses.replace(axis, count=count, since=None, rest=None, extents=extents))
            continue
        if low == high == edge.interior_padding == 0:
            axes.append(dataclasses.replace(axis, rest=axis.rest))
            continue
        if not axis.plain or edge.interior_padding or low < 0 or (axis.count is not None and axis.count.least < 0):
            raise _Unproven(UNKNOWN)
        if high > 0 and axis.count is None:
            raise _Unproven(BEHIND)
        longer = None if axis.count is None else axis.count.then(low + high)
        extents = axis.extents[0] + low + high, axis.extents[1] + low + high
        axes.append(
            dataclasses.replace(axis, count=longer, extents=extents, rest=axis.rest if high >= 0 and longer else None)
        )
    # Where padding is before or after other dimensions, it is also behind the end of an axis.
    padded = {dim for dim, edge in enumerate(config.dimensions) if edge.edge_padding_low or edge.edge_padding_high}
    known = [
        axis
        if not padded - {axis.dim} or axis.rest is None or (padding is not None and axis.rest == padding)
        else dataclasses.replace(axis, rest=None)
        for axis in axes
    ]
    return Value(tuple(known))


def _concatenate(step: _Step) -> Value:
    values = [step.value(index) for index in range(len(step.operands))]
    dim, axes = step.one.dimensions[0], []
    for other in range(len(step.one.shape)):
        present = [axis for value in values if (axis := value.at(other))]
        if other == dim and present:
            last = values[-1].at(dim)
            if len(present) > 1 or last is None or not last.plain:
                raise _Unproven(ENDS)
            before = sum(step.shapes(index)[0][dim] for index in range(len(values) - 1))
            if last.count is not None and last.count.least < 0:
                raise _Unproven(UNKNOWN)
            extents = last.extents[0] + before, last.extents[1] + before
            count = None if last.count is None else last.count.then(before)
            axes.append(dataclasses.replace(last, count=count, extents=extents, rest=last.rest if count else None))
        elif present:
            joined = _joined(present)
            rests = [_rest(value, {other: joined.count}) if joined.count else None for value in values]
            axes.append(dataclasses.replace(joined, rest=rests[0] if len({*rests}) == 1 else None))
    return Value(tuple(axes))


def _gather(step: _Step) -> Value:
    numbers, sizes = step.same("gather_dimension_numbers"), step.one.attributes.gather_slice_sizes
    operand, indices = step.value(0), step.value(1)
    rank, shapes = len(step.one.shape), step.shapes(0)
    offsets = [*numbers.offset_dims]
    batches = [dim for dim in range(rank) if dim not in offsets]
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    windows = dict(zip((dim for dim in range(len(shapes[0])) if dim not in gone), offsets, strict=True))
    if numbers.operand_batching_dims and (operand.axes or indices.axes):
        raise _Unproven(UNKNOWN)
    axes = []
    for axis in operand.axes:
        if axis.dim in windows:
            other = step.other.attributes.gather_slice_sizes
            if (sizes[axis.dim], other[axis.dim]) != (shapes[0][axis.dim], shapes[1][axis.dim]):
                raise _Unproven(ENDS)
            axes.append(dataclasses.replace(axis, dim=windows[axis.dim], rest=None))
        elif not axis.plain:
            raise _Unproven(UNKNOWN)
        # Else, the model takes one place. Indices behind the end are an error in TensorFlow.
    taken = [axis.count for axis in operand.axes if axis.dim in gone]
    of_indices = [dim for dim in range(len(step.shapes(1)[0])) if dim != numbers.index_vector_dim]
    places = dict(zip(of_indices, batches, strict=True))
    for axis in indices.axes:
        if axis.dim not in places:
            raise _Unproven(UNKNOWN)
        # Places that are all right take values that are right from as many as there are.
        axis = step.counted(axis, taken[0] if len(taken) == 1 else None)
        axes.append(dataclasses.replace(axis, dim=places[axis.dim], rest=None))
    return Value(tuple(axes))


def _dynamic_slice(step: _Step) -> Value:
    """Follows a slice of one place that a loop counts, of whole dimensions, or of all but some places at both ends."""
    value, sizes = step.value(0), step.one.attributes.dynamic_slice_sizes
    axes = []
    for axis in value.axes:
        place = step.value(1 + axis.dim)
        cut = sizes[axis.dim], step.other.attributes.dynamic_slice_sizes[axis.dim]
        if cut == axis.sizes():
            axes.append(axis)
            continue
        late = axis.extents[0] - cut[0]
        if late == axis.extents[1] - cut[1] and axis.plain and axis.count is not None and axis.count.least >= late:
            # It begins at most `late` places after the first one.
            axes.append(dataclasses.replace(axis, count=axis.count.then(-late), since=None, rest=None, extents=cut))
        elif sizes[axis.dim] != 1 or not (_is_within(place, axis) or step.is_within(place, axis)):
            raise _Unproven(ENDS)
    return Value(tuple(axes), positive=value.positive)


def _is_within(place: Value, axis: Axis) -> bool:
    """Returns whether a place is one of the right values of an axis."""
    if place.scalar is not None:
        return axis.plain and 0 <= place.scalar < (1 if axis.count is None else axis.count.least)
    return axis.plain and axis.count is not None and place.positive and place.most == axis.count.then(-1)


def _dynamic_update_slice(step: _Step) -> Value:
    """Follows an update of one place that a loop counts."""
    value, update, axes = step.value(0), step.value(1), []
    for axis in value.axes:
        place, sizes = step.value(2 + axis.dim), [shape[axis.dim] for shape in step.shapes(1)]
        if tuple(sizes) == axis.sizes():
            other = update.at(axis.dim)
            axes.append(axis if other is None else _joined([axis, other]))
            continue
        axis = step.counted(axis, None if place.most is None else place.most.then(1))
        axis = dataclasses.replace(axis, since=None, rest=None)
        if sizes != [1, 1] or not _is_within(place, axis):
            raise _Unproven(ENDS)
        axes.append(axis)
    if any(axis.dim not in {old.dim for old in axes} for axis in update.axes):
        raise _Unproven(DIFFERS)
    return Value(tuple(axes))


def _unknown(step: _Step) -> Value:
    """Returns what is known of an operation without a rule: only that it has nothing to do with the size."""
    leaves = [leaf for operand in step.operands for leaf in _leaves(operand)]
    if any(leaf.axes for leaf in leaves) or step.one.type != step.other.type:
        raise _Unproven(UNKNOWN)
    return FREE


def _bitcast(step: _Step) -> Value:
    return _elementwise(step) if step.shapes(0)[0] == tuple(step.one.shape) else _unknown(step)


_RULES: Mapping[str, Callable[[_Step], Value]] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    "bitcast-convert": _bitcast,
    "broadcast": _broadcast,
    "concatenate": _concatenate,
    "constant": _constant,
    "convolution": _convolution,
    "dot": _dot,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": _gather,
    "iota": _iota,
    "pad": _pad,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "reshape": _reshape,
    "reverse": _reverse,
    "slice": _slice,
    "sort": _sort,
    "transpose": _transpose,
}
