"""Whether the rows of a batch are independent: row i of every result depends on row i of the inputs, and on nothing else.

A class with `batch_sizes` runs a batch in parts, and pads the last one. That gives TensorFlow's results only if the model
computes each row by itself, wherever the row stands and however many there are. This module decides it by analysis, not by
trying numbers.

It looks at HLO, what XLA makes of the graph, because HLO has few operations with exact meanings, and because all shapes
and shape arithmetic are plain numbers in it. The graph is lowered twice, for batches of `SIZES` rows. Where the two differ, they
show what depends on the batch's size: a dimension of 2 and 1009 is the batch, one of 6 and 3027 has three places a row,
and a constant that differs counts rows. Both are walked together, and each value gets a `Kind`. An operation that could let
rows see each other gives `MIXED`, which remembers the operation. What no rule knows is `MIXED` too.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tensorflow.core.framework import graph_pb2

from tfaot.core import manifest
from tfaot.core.errors import TfaotError, listed
from tfaot.graph import lowering
from tfaot.graph.names import tensor_name

SIZES = (2, 1009)
"""Sizes of batch that are compared: far apart, lest a count of rows that is cut off or rounded be the same for both."""

Array = npt.NDArray[Any]


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
_BATCHED = frozenset({Kind.ROWS, Kind.INDEX, Kind.COLUMNS})
_PLACED = frozenset({Kind.PLACE, Kind.COUNTER})

Tree = Any
"""A Value, or a tuple of Trees for a tuple of HLO."""

TOGETHER = "puts rows together"
COUNTS = "uses how many rows there are"
PLACE = "uses where in the batch a row stands"
UNKNOWN = "is not known to keep rows apart"
DECIDES = "decides for all rows at once"

_ELEMENTWISE = frozenset(
    (  # noqa: SIM905
        "abs acos acosh add and asin asinh atan2 atanh cbrt ceil clamp compare complex convert copy cosh cosine "
        "count-leading-zeros divide erf exponential exponential-minus-one floor imag is-finite log log-plus-one "
        "logistic map maximum minimum multiply negate not or popcnt power real reduce-precision remainder "
        "round-nearest-afz round-nearest-even rsqrt select shift-left shift-right-arithmetic shift-right-logical sign "
        "sine sinh sqrt subtract tan tanh xor"
    ).split(" ")
)
"""Each place of the result depends on the same place of the operands, or on scalars."""


@dataclasses.dataclass(frozen=True)
class Module:
    """A program of HLO, with what the walk looks up."""

    computations: Mapping[int, Any]
    instructions: Mapping[int, Mapping[int, Any]]
    """By computation, then by id."""
    entry: int

    @classmethod
    def of(cls, proto: Any) -> Module:
        """Reads an HloModuleProto."""
        computations = {computation.id: computation for computation in proto.computations}
        instructions = {
            number: {instruction.id: instruction for instruction in computation.instructions}
            for number, computation in computations.items()
        }
        return cls(computations, instructions, proto.entry_computation_id)


def check(
    graph: graph_pb2.GraphDef,
    entry: manifest.EntryPoint,
    variables: Sequence[manifest.Variable],
    *,
    what: str,
    sources: Mapping[str, str],
) -> None:
    """An entry point that is run in parts must compute each row by itself.

    Args:
      graph: the whole graph; placeholders leave the batch open.
      entry: an entry point with `batch_sizes`.
      variables: the manifest's.
      what: names the model, for messages.
      sources: `file:line` by node, for messages.

    Raises:
      TfaotError: it cannot be shown to.
    """
    from tensorflow.compiler.xla.service import hlo_pb2

    nodes = {node.name: node for node in graph.node}
    modules = []
    try:
        for rows in SIZES:
            inputs = []
            for tensor in entry.inputs:
                attr = nodes[tensor_name(tensor.name)[0]].attr
                sizes = [dim.size for dim in attr["shape"].shape.dim]
                inputs.append(
                    lowering.Argument(
                        tensor.name, attr["dtype"].type, tuple([rows, *sizes[1:]] if tensor.batched else sizes)
                    )
                )
            held = [lowering.Argument(variable.name, variable.dtype, variable.shape) for variable in variables]
            names = [output.name for output in entry.outputs]
            lowered = lowering.lower(graph, inputs, held, names, stage="hlo_serialized", for_shapes=True)
            modules.append(hlo_pb2.HloModuleProto.FromString(lowered))
    except Exception as error:  # its types say nothing; its text is all there is
        raise TfaotError(
            f"{what}: {entry.name} cannot be analyzed for batches",
            details=str(error).partition("\nStack trace")[0],
            exists=f"batch_sizes = {list(entry.batch_sizes)}, and a compiler that takes the model for other sizes or not at all",
            do=f"mend what it names; or, if no row changes another row's results, say so: {ATTRIBUTE}",
        ) from None
    causes = mixed_results(modules[0], modules[1], [tensor.batched for tensor in entry.inputs])
    wrong = [cause for cause in causes if cause]
    if not wrong:
        return
    first = min(wrong, key=lambda cause: cause.order)
    decided = [output.cpp_name for output, cause in zip(entry.outputs, causes, strict=True) if cause == first]
    raise TfaotError(
        f"{what}: {entry.name} cannot be shown to compute each row of a batch by itself",
        details=f"{first.op} {_located(first.node, sources)}{first.why}",
        exists=f"batch_sizes = {list(entry.batch_sizes)}: a batch is run in parts, and padded; that op decides "
        + listed(decided),
        do="compute each row by itself, with batch norm for inference and no sums over the batch; or leave batch_sizes out; "
        f"or, if no row changes another row's results, say so: {ATTRIBUTE}",
    )


ATTRIBUTE = "rows_independent = True"


def _located(node: str, sources: Mapping[str, str]) -> str:
    """The node's name and the line that made it, as far as they are known, and a blank."""
    if not node:
        return ""
    parts = node.split("/")
    for start in range(len(parts)):
        tail = "/".join(parts[start:])
        places = {place for name, place in sources.items() if name == tail or name.endswith("/" + tail)}
        if node in sources:
            places = {sources[node]}
        if places:
            return f"{node!r} at {' or '.join(sorted(places))} "
    return f"{node!r} "


def mixed_results(first: Any, second: Any, batched: Sequence[bool]) -> list[Cause | None]:
    """Decides for each result of a program whether its rows are independent.

    Args:
      first: the HloModuleProto for `SIZES[0]` rows.
      second: the one for `SIZES[1]` rows.
      batched: for each parameter, whether its first dimension is the batch; that of no further one is.

    Returns:
      For each result None, or what may let its rows see each other.
    """
    walk = _Walk(Module.of(first), Module.of(second))
    main = walk.first.instructions[walk.first.entry].values()
    further = sum(instruction.opcode == "parameter" for instruction in main) - len(batched)
    result = walk.run([*(Value(Kind.ROWS) if has else FREE for has in batched), *[FREE] * further])
    causes: list[Cause | None] = []
    for value in _leaves(result):
        if value.kind is Kind.ROWS and (value.axis, value.each, value.outer) == (0, 1, 1):
            causes.append(None)
        elif value.kind is Kind.MIXED:
            causes.append(value.cause)
        else:
            causes.append(Cause((), "", "result", PLACE if value.kind in _BATCHED else UNKNOWN))
    return causes


def _leaves(tree: Tree) -> list[Value]:
    return [leaf for part in tree for leaf in _leaves(part)] if isinstance(tree, tuple) else [tree]


def _unflattened(tree: Tree, leaves: Iterable[Value]) -> Tree:
    """A tree of the same form with other leaves."""
    source = iter(leaves)

    def fill(part: Tree) -> Tree:
        return tuple(fill(each) for each in part) if isinstance(part, tuple) else next(source)

    return fill(tree)


class _Walk:
    """One walk through both programs."""

    def __init__(self, first: Module, second: Module) -> None:
        self.first = first
        self.second = second
        self._order = 0

    def run(self, parameters: Sequence[Value]) -> Tree:
        """Returns the entry computation's result."""
        return self._computation(self.first.entry, self.second.entry, parameters)

    def _computation(self, a: int, b: int, parameters: Sequence[Tree]) -> Tree:
        """A computation's result for these parameters."""
        mine, theirs = self.first.instructions[a], self.second.instructions[b]
        root = (self.first.computations[a].root_id, self.second.computations[b].root_id)
        done: dict[tuple[int, int], Tree] = {}
        stack = [root]
        while stack:
            pair = stack[-1]
            if pair in done:
                stack.pop()
                continue
            one, other = mine[pair[0]], theirs[pair[1]]
            alike = one.opcode == other.opcode and len(one.operand_ids) == len(other.operand_ids)
            operands = list(zip(one.operand_ids, other.operand_ids, strict=True)) if alike else []
            missing = [operand for operand in operands if operand not in done]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            self._order += 1
            step = _Step(self, one, other, [done[operand] for operand in operands], a, b, self._order)
            if not alike:
                done[pair] = step.everywhere(step.mixed(COUNTS))
            elif one.opcode == "parameter":
                done[pair] = parameters[one.parameter_number]
            else:
                done[pair] = step.result()
        return done[root]

    def called(self, step: _Step, index: int, parameters: Sequence[Tree]) -> Tree:
        """The result of a computation that an instruction calls."""
        return self._computation(
            step.one.called_computation_ids[index], step.other.called_computation_ids[index], parameters
        )


class _Step:
    """One pair of instructions, and what is known of their operands."""

    def __init__(
        self, walk: _Walk, one: Any, other: Any, operands: Sequence[Tree], first: int, second: int, order: int
    ) -> None:
        self.walk = walk
        self.one = one
        self.other = other
        self.operands = operands
        self.instructions = walk.first.instructions[first], walk.second.instructions[second]
        self._order = order

    @property
    def shape(self) -> tuple[int, ...]:
        """The first result's."""
        return tuple(self.one.shape.dimensions)

    @property
    def batch(self) -> tuple[int, int] | bool | None:
        """The dimension that holds the batch, and the places that a row has; None if there is none; False if it is unclear."""
        return _batch(self.one.shape, self.other.shape)

    def mixed(self, why: str, *parts: Tree) -> Value:
        """The value that remembers this instruction; or the first that is mixed already."""
        known = [leaf.cause for part in parts for leaf in _leaves(part) if leaf.kind is Kind.MIXED and leaf.cause]
        if known:
            return Value(Kind.MIXED, cause=min(known, key=lambda cause: cause.order))
        metadata = self.one.metadata
        return Value(
            Kind.MIXED,
            cause=Cause((self._order,), metadata.op_name, metadata.op_type or self.one.opcode, why),
        )

    def everywhere(self, value: Value, shape: Any = None) -> Tree:
        """The value for each array of the result."""
        shape = self.one.shape if shape is None else shape
        if shape.tuple_shapes or shape.element_type == _TUPLE:
            return tuple(self.everywhere(value, part) for part in shape.tuple_shapes)
        return value

    def result(self) -> Tree:
        """What is known of the result."""
        op = self.one.opcode
        if op == "tuple":
            return tuple(self.operands)
        if op == "get-tuple-element":
            return self.operands[0][self.one.tuple_index]
        if op == "call":
            return self.walk.called(self, 0, self.operands)
        if op == "optimization-barrier":
            return self.operands[0]
        if op == "while":
            return _Loop(self).result()
        if op == "conditional":
            return self._conditional()
        values = [leaf for operand in self.operands for leaf in _leaves(operand)]
        if any(value.kind is Kind.MIXED for value in values):
            return self.everywhere(self.mixed("", *values))
        if not _same_attributes(self.one, self.other):
            return self.everywhere(self.mixed(COUNTS))
        rule = _RULES.get(op)
        value = self._folded() or (rule(self) if rule else self._unknown())
        if isinstance(value, Value) and value.kind in _BATCHED and not isinstance(self.batch, bool | None):
            if self.batch != (value.axis, value.each * value.outer):
                value = self.mixed(TOGETHER)  # the rule and the shapes contradict each other
        elif isinstance(value, Value) and value.kind in _BATCHED and not self.one.shape.tuple_shapes:
            value = self.mixed(TOGETHER)
        return self.everywhere(value) if isinstance(value, Value) else value

    def _folded(self) -> Value | None:
        """A few integers that do not depend on the operands' rows, if they can be computed."""
        if self.batch is not None:
            return None
        results: list[Integers] = []
        for which, instruction in enumerate((self.one, self.other)):
            if instruction.opcode == "get-dimension-size":
                shape, axis = self.instructions[which][instruction.operand_ids[0]].shape, instruction.dimensions[0]
                if axis < len(shape.is_dynamic_dimension) and shape.is_dynamic_dimension[axis]:
                    return None
                results.append((shape.dimensions[axis],))
                continue
            operands = [
                None if not isinstance(operand, Value) or operand.constant is None else operand.constant[which]
                for operand in self.operands
            ]
            if (computed := _computed(instruction, operands)) is None:
                return None
            results.append(computed)
        known = [operand for operand in self.operands if isinstance(operand, Value)]
        forwards = self.one.opcode in ("copy", "reshape") and len(known) == 1
        return Value(
            Kind.FREE if results[0] == results[1] else Kind.SIZE,
            constant=(results[0], results[1]),
            same=known[0].same if forwards else None,
        )

    def together(self, values: Sequence[Value]) -> Value:
        """What depends on all of these, which are not mixed, place by place."""
        kinds = {value.kind for value in values}
        if kinds & _BATCHED:
            rows = [value for value in values if value.kind in _BATCHED]
            if kinds & {Kind.INDEX, Kind.COLUMNS}:
                return self.mixed(PLACE)
            if len({_layout(value) for value in rows}) > 1:
                return self.mixed(TOGETHER)
            for kind, why in ((Kind.SIZE, COUNTS), (Kind.PLACE, PLACE), (Kind.COUNTER, PLACE), (Kind.ONE, TOGETHER)):
                if kind in kinds:
                    return self.mixed(why)
            return Value(Kind.ROWS, *_layout(rows[0]))
        if Kind.ONE in kinds:
            if kinds & _PLACED:
                return self.mixed(PLACE)
            return self.mixed(COUNTS) if Kind.SIZE in kinds else Value(Kind.ONE)
        if kinds & _PLACED:
            return Value(Kind.PLACE)
        return Value(Kind.SIZE) if Kind.SIZE in kinds else FREE

    def without_batch(self, value: Value) -> Value:
        """A value of which a result without a batch is made: or, with one, the same for each row."""
        if self.batch is None:
            return value
        if value.kind is Kind.FREE and not isinstance(self.batch, bool):
            return Value(Kind.ROWS, *self.batch)
        return self.mixed({Kind.SIZE: COUNTS, Kind.FREE: TOGETHER}.get(value.kind, PLACE))

    def _unknown(self) -> Value:
        """An operation without a rule: what depends on no row stays so."""
        value = self.together([leaf for operand in self.operands for leaf in _leaves(operand)])
        shapes = [self.one.shape, *self.one.shape.tuple_shapes], [self.other.shape, *self.other.shape.tuple_shapes]
        if value.kind in _BATCHED or any(_batch(a, b) is not None for a, b in zip(*shapes, strict=True)):
            return self.mixed(UNKNOWN)
        return value

    def _conditional(self) -> Tree:
        """Both branches may be taken, which depends on the predicate."""
        predicate, *operands = self.operands
        branches = [self.walk.called(self, index, [operand]) for index, operand in enumerate(operands)]
        joined = branches[0]
        for branch in branches[1:]:
            joined = self.joined(joined, branch)
        return self._decided(predicate, joined)

    def _decided(self, predicate: Value, tree: Tree) -> Tree:
        """Results, each of which depends on the predicate besides."""
        if predicate.kind is Kind.FREE:
            return tree
        leaves = [
            self.mixed(DECIDES, predicate, leaf)
            if predicate.kind is Kind.MIXED or leaf.kind is Kind.MIXED or leaf.kind in _BATCHED
            else self.together([predicate, leaf])
            for leaf in _leaves(tree)
        ]
        return _unflattened(tree, leaves)

    def joined(self, a: Tree, b: Tree) -> Tree:
        """What may be either."""
        return _unflattened(a, [self._either(x, y) for x, y in zip(_leaves(a), _leaves(b), strict=True)])

    def _either(self, a: Value, b: Value) -> Value:
        if a == b:
            return a
        if Kind.MIXED in (a.kind, b.kind):
            return self.mixed("", a, b)
        return self.together([a, b])

    def value(self, index: int) -> Value:
        """An operand that is an array."""
        value: Value = self.operands[index]
        return value

    def operand_shape(self, index: int) -> tuple[int, ...]:
        """An operand's, in the first program."""
        return tuple(self.instructions[0][self.one.operand_ids[index]].shape.dimensions)

    @property
    def second_shape(self) -> tuple[int, ...]:
        """The first operand's, in the second program."""
        return tuple(self.instructions[1][self.other.operand_ids[0]].shape.dimensions)

    def full(self, axis: int, sizes: Sequence[int], others: Sequence[int]) -> bool:
        """Whether sizes of slices, one list for each program, hold all of an operand's dimension."""
        return sizes[axis] == self.operand_shape(0)[axis] and others[axis] == self.second_shape[axis]


def _layout(value: Value) -> tuple[int, int, int]:
    return value.axis, value.each, value.outer


_TUPLE = 13
"""`TUPLE` of xla_data.proto."""


def _batch(one: Any, other: Any) -> tuple[int, int] | bool | None:
    differing = [i for i, (a, b) in enumerate(zip(one.dimensions, other.dimensions, strict=False)) if a != b]
    if len(one.dimensions) != len(other.dimensions) or len(differing) > 1:
        return False
    if not differing:
        return None
    a, b = one.dimensions[differing[0]], other.dimensions[differing[0]]
    if a % SIZES[0] or b % SIZES[1] or a // SIZES[0] != b // SIZES[1]:
        return False
    return differing[0], a // SIZES[0]


_LINKS = (
    "backend_config",
    "called_computation_ids",
    "control_predecessor_ids",
    "dynamic_slice_sizes",
    "frontend_attributes",
    "gather_slice_sizes",
    "id",
    "literal",
    "metadata",
    "name",
    "operand_ids",
    "shape",
    "slice_dimensions",
    "statistics_viz",
)
"""What two instructions that do the same may differ in; the rules compare sizes themselves."""


def _same_attributes(one: Any, other: Any) -> bool:
    copies = []
    for instruction in (one, other):
        copy = type(instruction)()
        for field, content in instruction.ListFields():
            if field.name not in _LINKS:
                if field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED:
                    getattr(copy, field.name).extend(content)
                elif field.message_type:
                    getattr(copy, field.name).CopyFrom(content)
                else:
                    setattr(copy, field.name, content)
        copies.append(copy)
    return bool(copies[0] == copies[1])


# Rules: what is known of a result, by operation. No operand is MIXED, and attributes but for sizes are the same.


def _elementwise(step: _Step) -> Value:
    values = [step.value(i) for i in range(len(step.operands))]
    if step.one.opcode in ("copy", "convert"):
        return dataclasses.replace(values[0], constant=None)
    if step.one.opcode == "add" and len(values) == 2:
        for a, b in (values, values[::-1]):
            if a.same is not None and a.kind is Kind.COUNTER and b.constant == ((1,), (1,)):
                return Value(Kind.PLACE, next=a.same)
    return step.together(values)


def _bits(step: _Step) -> Value:
    """Only the last dimension may come or go."""
    return _along(lambda step: [_rank(step) - 1])(step) if step.operand_shape(0) != step.shape else step.value(0)


def _constant(step: _Step) -> Value:
    if step.one.shape == step.other.shape:
        return FREE if step.one.literal == step.other.literal else Value(Kind.SIZE)
    batch, arrays = step.batch, [_literal(step.one), _literal(step.other)]
    if batch is None or isinstance(batch, bool) or arrays[0] is None or arrays[1] is None:
        return step.mixed(COUNTS)
    axis, each = batch
    rows = [
        np.moveaxis(array, axis, 0).reshape(size, each, -1)
        for array, size in zip(arrays, SIZES, strict=True)
        if array is not None
    ]
    first = rows[0][0]
    if all((row == first).all() for array in rows for row in array):
        return Value(Kind.ROWS, axis, each)
    if each == 1 and all((array[:, 0] == np.arange(len(array))[:, None]).all() for array in rows):
        return Value(Kind.INDEX, axis)
    return step.mixed(PLACE)


def _iota(step: _Step) -> Value:
    dimension = step.one.dimensions[0] if step.one.dimensions else 0
    batch = step.batch
    if batch is None:
        return FREE
    if isinstance(batch, bool):
        return step.mixed(PLACE)
    axis, each = batch
    if dimension != axis:
        return Value(Kind.ROWS, axis, each)
    return Value(Kind.INDEX, axis) if each == 1 else step.mixed(PLACE)


def _reshape(step: _Step) -> Value:
    value = step.value(0)
    if value.kind not in _BATCHED:
        same = step.operand_shape(0) == step.shape
        return value if same else dataclasses.replace(step.without_batch(value), same=None, next=None, filled=None)
    batch = step.batch
    if batch is None or isinstance(batch, bool):
        return step.mixed(TOGETHER)
    before, after = step.operand_shape(0), step.shape
    if before == after:
        return value
    axis, each = batch
    # Dimensions are ordered: with as much before the rows as before, each row's places stay its own.
    outer, rest = divmod(math.prod(before[: value.axis]) * value.outer, math.prod(after[:axis]))
    if rest or each % max(outer, 1) or not outer:
        return step.mixed(TOGETHER)
    if value.kind is Kind.COLUMNS:
        return step.mixed(PLACE)
    return Value(value.kind, axis, each // outer, outer)


def _transpose(step: _Step) -> Value:
    value = step.value(0)
    if value.kind not in _BATCHED:
        return value
    order = list(step.one.dimensions)
    columns = (order.index(value.columns[0]), value.columns[1]) if value.kind is Kind.COLUMNS else (0, frozenset())
    return Value(value.kind, order.index(value.axis), value.each, value.outer, columns=columns)


def _broadcast(step: _Step) -> Value:
    value = step.value(0)
    if value.kind not in _BATCHED:
        return dataclasses.replace(step.without_batch(value), constant=None, same=None, next=None, filled=None)
    if value.kind is Kind.COLUMNS:
        return step.mixed(PLACE)
    return Value(value.kind, step.one.dimensions[value.axis], value.each, value.outer)


def _slice(step: _Step) -> Value:
    value = step.value(0)
    cuts = [[(d.start, d.limit, d.stride) for d in i.slice_dimensions] for i in (step.one, step.other)]
    if value.kind not in _BATCHED:
        if cuts[0] == cuts[1]:
            return dataclasses.replace(value, constant=None, same=None, next=None, filled=None)
        return step.mixed(PLACE)
    others = [[cut for axis, cut in enumerate(part) if axis != value.axis] for part in cuts]
    whole = [(0, size[value.axis], 1) for size in (step.operand_shape(0), step.second_shape)]
    if others[0] != others[1] or [part[value.axis] for part in cuts] != whole:
        return step.mixed(PLACE)
    if value.kind is Kind.COLUMNS:
        return step.mixed(PLACE)
    return value


def _concatenate(step: _Step) -> Value:
    values = [step.value(i) for i in range(len(step.operands))]
    dimension = step.one.dimensions[0]
    rows = [value for value in values if value.kind in _BATCHED]
    if not rows:
        return step.without_batch(step.together(values))
    if len({_layout(value) for value in values}) > 1 or rows[0].axis == dimension:
        return step.mixed(TOGETHER)
    if any(value.kind in (Kind.INDEX, Kind.COLUMNS) for value in values):
        found: set[int] = set()
        place = 0
        for index, value in enumerate(values):
            size = step.operand_shape(index)[dimension]
            if value.kind is Kind.INDEX:
                found.update(range(place, place + size))
            elif value.kind is Kind.COLUMNS:
                if value.columns[0] != dimension:
                    return step.mixed(PLACE)
                found.update(place + column for column in value.columns[1])
            place += size
        return Value(Kind.COLUMNS, *_layout(rows[0]), columns=(dimension, frozenset(found)))
    return step.together(values)


def _pad(step: _Step) -> Value:
    value, padding = step.value(0), step.value(1)
    if value.kind not in _BATCHED:
        return step.without_batch(step.together([value, padding]))
    edge = step.one.padding_config.dimensions[value.axis]
    if edge.edge_padding_low or edge.edge_padding_high or edge.interior_padding:
        return step.mixed(TOGETHER)
    return step.together([value, padding])


def _along(axes: Callable[[_Step], Iterable[int]]) -> Callable[[_Step], Value]:
    """A rule for what works along some dimensions of its result, and keeps the others apart."""

    def rule(step: _Step) -> Value:
        values = [leaf for operand in step.operands for leaf in _leaves(operand)]
        value = step.together(values)
        if value.kind in _BATCHED and value.axis in axes(step):
            return step.mixed(TOGETHER if step.one.opcode != "reverse" else PLACE)
        return value

    return rule


def _rank(step: _Step) -> int:
    shape = step.one.shape
    return len((shape.tuple_shapes[0] if shape.tuple_shapes else shape).dimensions)


def _reduce(step: _Step) -> Value:
    value = step.together([leaf for operand in step.operands for leaf in _leaves(operand)])
    if value.kind not in _BATCHED:
        return value
    gone = set(step.one.dimensions)
    if value.axis in gone:
        return step.mixed(TOGETHER)
    return Value(value.kind, value.axis - sum(axis < value.axis for axis in gone), value.each, value.outer)


def _windowed(step: _Step) -> Value:
    value = step.together([leaf for operand in step.operands for leaf in _leaves(operand)])
    if value.kind not in _BATCHED:
        return value
    window = step.one.window.dimensions[value.axis]
    trivial = (
        window.size == 1
        and window.stride == 1
        and not (window.padding_low or window.padding_high)
        and max(window.base_dilation, 1) == 1
    )
    return value if trivial else step.mixed(TOGETHER)


def _dot(step: _Step) -> Value:
    left, right = step.value(0), step.value(1)
    numbers = step.one.dot_dimension_numbers
    if not {left.kind, right.kind} & _BATCHED:
        return step.together([left, right])
    sides = (
        (left, list(numbers.lhs_contracting_dimensions), list(numbers.lhs_batch_dimensions), 0),
        (right, list(numbers.rhs_contracting_dimensions), list(numbers.rhs_batch_dimensions), 1),
    )
    places: list[tuple[str, int]] = []
    before = len(sides[0][2])
    for value, contracting, batch, index in sides:
        free = [a for a in range(len(step.operand_shape(index))) if a not in contracting and a not in batch]
        if value.kind in _BATCHED:
            if value.kind is not Kind.ROWS:
                return step.mixed(PLACE)
            if value.axis in contracting:
                return step.mixed(TOGETHER)
            if value.axis in batch:
                places.append(("batch", batch.index(value.axis)))
            else:
                places.append(("free", before + free.index(value.axis)))
        elif value.kind is not Kind.FREE:
            return step.mixed(COUNTS if value.kind is Kind.SIZE else PLACE)
        before += len(free) if index == 0 else 0
    if len(set(places)) > 1 or (
        len(places) == 2 and (places[0][0] == "free" or _layout(left)[1:] != _layout(right)[1:])
    ):
        return step.mixed(TOGETHER)
    rows = left if left.kind in _BATCHED else right
    return Value(Kind.ROWS, places[0][1], rows.each, rows.outer)


def _convolution(step: _Step) -> Value:
    values, kernel = step.value(0), step.value(1)
    if not {values.kind, kernel.kind} & _BATCHED:
        return step.together([values, kernel])
    numbers = step.one.convolution_dimension_numbers
    if (
        values.kind is not Kind.ROWS
        or kernel.kind is not Kind.FREE
        or values.axis != numbers.input_batch_dimension
        or step.one.batch_group_count > 1
    ):
        return step.mixed(TOGETHER)
    return Value(Kind.ROWS, numbers.output_batch_dimension, values.each, values.outer)


def _gather(step: _Step) -> Value:
    operand, indices = step.value(0), step.value(1)
    numbers = step.one.gather_dimension_numbers
    sizes, others = list(step.one.gather_slice_sizes), list(step.other.gather_slice_sizes)
    if not {operand.kind, indices.kind} & _BATCHED:
        return step.together([operand, indices]) if sizes == others else step.mixed(COUNTS)
    rank = len(step.shape)
    offsets = list(numbers.offset_dims)
    in_batch = [axis for axis in range(rank) if axis not in offsets]
    kept = [axis for axis in range(len(step.operand_shape(1))) if axis != numbers.index_vector_dim]
    sliced = [
        axis
        for axis in range(len(step.operand_shape(0)))
        if axis not in numbers.collapsed_slice_dims and axis not in numbers.operand_batching_dims
    ]
    if operand.kind not in _BATCHED:
        if operand.kind is not Kind.FREE or indices.kind is not Kind.ROWS or sizes != others:
            return step.mixed(COUNTS if operand.kind is Kind.SIZE else PLACE)
        if indices.axis == numbers.index_vector_dim:
            return step.mixed(TOGETHER)
        return Value(Kind.ROWS, in_batch[kept.index(indices.axis)], indices.each, indices.outer)
    if operand.kind is not Kind.ROWS:
        return step.mixed(PLACE)
    if indices.kind not in _BATCHED:
        if indices.kind is not Kind.FREE:
            return step.mixed(COUNTS if indices.kind is Kind.SIZE else PLACE)
        if operand.axis not in sliced or not step.full(operand.axis, sizes, others):
            return step.mixed(PLACE)
        return Value(Kind.ROWS, offsets[sliced.index(operand.axis)], operand.each, operand.outer)
    if indices.axis == numbers.index_vector_dim or _layout(operand)[1:] != (1, 1) or _layout(indices)[1:] != (1, 1):
        return step.mixed(TOGETHER)
    result = Value(Kind.ROWS, in_batch[kept.index(indices.axis)])
    paired = list(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    if indices.kind is Kind.ROWS:
        return result if (operand.axis, indices.axis) in paired else step.mixed(TOGETHER)
    # What is looked up in each row, at the row's own number: x[range(n), columns].
    mapped = list(numbers.start_index_map)
    if indices.kind is Kind.INDEX:
        own = set(range(len(mapped)))
    elif indices.columns[0] == numbers.index_vector_dim:
        own = set(indices.columns[1])
    else:
        return step.mixed(PLACE)
    if {mapped[column] for column in own} != {operand.axis} or sizes[operand.axis] != 1 or operand.axis in sliced:
        return step.mixed(PLACE)
    return result


def _dynamic_slice(step: _Step) -> Value:
    operand, *starts = [step.value(i) for i in range(len(step.operands))]
    sizes, others = list(step.one.dynamic_slice_sizes), list(step.other.dynamic_slice_sizes)
    if operand.kind not in _BATCHED:
        if sizes != others:
            return step.mixed(COUNTS)
        return step.together([dataclasses.replace(operand, constant=None), *starts])
    if operand.kind is not Kind.ROWS:
        return step.mixed(PLACE)
    elsewhere = [start for axis, start in enumerate(starts) if axis != operand.axis]
    if step.full(operand.axis, sizes, others):
        return step.together([Value(Kind.ROWS, *_layout(operand)), *elsewhere])
    if sizes != others or sizes[operand.axis] != 1 or _layout(operand)[1:] != (1, 1):
        return step.mixed(PLACE)
    if starts[operand.axis].kind is not Kind.COUNTER:
        return step.mixed(PLACE)
    return step.together([Value(Kind.ONE), *elsewhere])


def _dynamic_update_slice(step: _Step) -> Value:
    operand, update, *starts = [step.value(i) for i in range(len(step.operands))]
    if operand.kind not in _BATCHED:
        if update.kind in _BATCHED:
            return step.mixed(TOGETHER)
        return step.together([operand, update, *starts])
    if operand.kind is not Kind.ROWS:
        return step.mixed(PLACE)
    elsewhere = [start for axis, start in enumerate(starts) if axis != operand.axis]
    if update.kind in _BATCHED:
        return step.together([operand, update, *elsewhere])
    if (
        starts[operand.axis].kind is not Kind.COUNTER
        or step.operand_shape(1)[operand.axis] != 1
        or _layout(operand)[1:] != (1, 1)
    ):
        return step.mixed(PLACE)
    row = step.together([update, *elsewhere])
    if row.kind not in (Kind.FREE, Kind.ONE):
        return step.mixed(PLACE)
    return dataclasses.replace(operand, same=None, filled=operand.same if operand.filled is None else operand.filled)


def _scatter(step: _Step) -> Value:
    values = [leaf for operand in step.operands for leaf in _leaves(operand)]
    if not any(value.kind in _BATCHED for value in values):
        return step.together(values)
    if len(values) != 3 or values[0].kind is not Kind.ROWS or values[2].kind is not Kind.ROWS:
        return step.mixed(TOGETHER)
    operand, indices, updates = values
    numbers = step.one.scatter_dimension_numbers
    gone = [*numbers.inserted_window_dims, *numbers.input_batching_dims]
    kept = [axis for axis in range(len(step.operand_shape(0))) if axis not in gone]
    if indices.kind is not Kind.FREE or operand.axis not in kept or _layout(operand)[1:] != _layout(updates)[1:]:
        return step.mixed(TOGETHER)
    if operand.axis in numbers.scatter_dims_to_operand_dims:
        return step.mixed(TOGETHER)
    if numbers.update_window_dims[kept.index(operand.axis)] != updates.axis:
        return step.mixed(TOGETHER)
    return operand


def _set_size(step: _Step) -> Value:
    value = step.value(0)
    if value.kind in _BATCHED and value.axis == step.one.dimensions[0]:
        return step.mixed(COUNTS)
    return step.together([value, step.value(1)])


def _custom_call(step: _Step) -> Value:
    if step.one.custom_call_target == "TopK":
        return _along(lambda step: [_rank(step) - 1])(step)
    return step._unknown()


_MATRICES = _along(lambda step: range(_rank(step) - 2, _rank(step)))
_LAST = _along(lambda step: [_rank(step) - 1])

_RULES: Mapping[str, Callable[[_Step], Value]] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    "batch-norm-inference": _along(lambda step: [step.one.feature_index]),
    "bitcast-convert": _bits,
    "broadcast": _broadcast,
    "cholesky": _MATRICES,
    "concatenate": _concatenate,
    "constant": _constant,
    "convolution": _convolution,
    "custom-call": _custom_call,
    "dot": _dot,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": _gather,
    "iota": _iota,
    "pad": _pad,
    "reduce": _reduce,
    "reduce-window": _windowed,
    "reshape": _reshape,
    "reverse": _along(lambda step: step.one.dimensions),
    "scatter": _scatter,
    "select-and-scatter": _windowed,
    "set-dimension-size": _set_size,
    "slice": _slice,
    "sort": _along(lambda step: step.one.dimensions),
    "topk": _LAST,
    "transpose": _transpose,
    "triangular-solve": _MATRICES,
}


class _Loop:
    """A While of both programs.

    If its condition depends on no row, it runs equally often whatever the batch, and what it carries is followed until
    nothing changes. If the condition counts rows, the loop must be one over the rows, as `tf.map_fn` makes it: it counts
    0, 1, and so on to the number of rows, reads the rows of that number, and writes results of that number.
    """

    def __init__(self, step: _Step) -> None:
        self._step = step
        self._start: Tree = step.operands[0]

    def result(self) -> Tree:
        """What is known of what the loop leaves."""
        step, state = self._step, _forgotten(self._start)
        while True:
            condition = self._condition(state)
            if condition.kind is not Kind.FREE:
                break
            after = self._grown(state, step.walk.called(step, 0, [state]))
            if _kinds(after) == _kinds(state):
                return _forgotten(state)
            state = after
        if condition.kind in (Kind.SIZE, Kind.PLACE):
            return self._over_rows(condition)
        while True:  # each row ends by itself, or all together
            after = self._grown(state, step.walk.called(step, 0, [state]))
            if _kinds(after) == _kinds(state):
                return step._decided(self._condition(state), _forgotten(state))
            state = after

    def _condition(self, state: Tree) -> Value:
        found: Value = _leaves(self._step.walk.called(self._step, 1, [state]))[0]
        return found

    def _grown(self, before: Tree, after: Tree) -> Tree:
        """What the loop may carry before any iteration. What is mixed once stays so, for its first reason."""
        leaves = [
            old if old.kind is Kind.MIXED else self._step._either(_plain(old), _plain(new))
            for old, new in zip(_leaves(before), _leaves(after), strict=True)
        ]
        return _unflattened(before, leaves)

    def _over_rows(self, condition: Value) -> Tree:
        step = self._step
        start = _leaves(self._start)
        counts = [value.kind is Kind.FREE and value.constant == ((0,), (0,)) for value in start]
        # What one row of a loop around this one has, must not meet what one row of this loop has.
        mixed = {index: step.mixed(TOGETHER) for index, value in enumerate(start) if value.kind is Kind.ONE}
        start = [Value(Kind.PLACE) if value.kind is Kind.COUNTER else value for value in start]
        while True:
            state = [
                mixed.get(index)
                or dataclasses.replace(
                    value,
                    kind=Kind.COUNTER if counts[index] else value.kind,
                    constant=None,
                    same=index,
                    next=None,
                    filled=None,
                )
                for index, value in enumerate(start)
            ]
            after = _leaves(step.walk.called(step, 0, [_unflattened(self._start, state)]))
            wrong = False
            for index, value in enumerate(after):
                if index in mixed or value.same == index or (value.filled == index and value.kind is Kind.ROWS):
                    if counts[index] and index not in mixed:
                        counts[index], wrong = False, True  # a zero that stays one
                elif counts[index] and value.next == index:
                    pass
                else:
                    why = PLACE if counts[index] or start[index].kind is not Kind.ROWS else COUNTS
                    mixed[index], counts[index], wrong = step.mixed(why, value), False, True
            if not wrong:
                break
        if not self._runs_once_a_row(counts, [value.same == index for index, value in enumerate(after)]):
            return _unflattened(
                self._start,
                [
                    mixed.get(index, _plain(value))
                    if after[index].same == index
                    else step.mixed(COUNTS, condition, value)
                    for index, value in enumerate(start)
                ],
            )
        leaves = [
            mixed.get(index, Value(Kind.SIZE) if counts[index] else _plain(value)) for index, value in enumerate(start)
        ]
        return _unflattened(self._start, leaves)

    def _runs_once_a_row(self, counts: Sequence[bool], kept: Sequence[bool]) -> bool:
        """Whether the condition holds while counters are below the number of rows, and then no more."""
        step = self._step
        for which, (module, instruction) in enumerate(((step.walk.first, step.one), (step.walk.second, step.other))):
            rows = SIZES[which]
            for count in range(rows + 1):
                leaves: list[Any] = [
                    (count,) if counted else value.constant[which] if value.constant and unchanged else None
                    for counted, value, unchanged in zip(counts, _leaves(self._start), kept, strict=True)
                ]
                operand = _unflattened(self._start, leaves)
                held = _evaluated(module, instruction.called_computation_ids[1], [operand])
                if held is None or bool(held[0]) != (count < rows):
                    return False
        return True


def _kinds(tree: Tree) -> list[tuple[Any, ...]]:
    return [(value.kind, _layout(value), value.columns) for value in _leaves(tree)]


def _plain(value: Value) -> Value:
    """Without what holds for one iteration, or one value, only."""
    return dataclasses.replace(value, constant=None, same=None, next=None, filled=None)


def _forgotten(tree: Tree) -> Tree:
    return _unflattened(tree, [_plain(value) for value in _leaves(tree)])


Integers = tuple[int, ...]
"""A few, in the order of an array's."""

_COMPUTED: Mapping[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "and": lambda a, b: a & b,
    "convert": lambda a: a,
    "copy": lambda a: a,
    "maximum": max,
    "minimum": min,
    "multiply": lambda a, b: a * b,
    "not": lambda a: 1 - a,
    "or": lambda a, b: a | b,
    "reshape": lambda a: a,
    "select": lambda a, b, c: b if a else c,
    "subtract": lambda a, b: a - b,
}
_COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "EQ": lambda a, b: a == b,
    "GE": lambda a, b: a >= b,
    "GT": lambda a, b: a > b,
    "LE": lambda a, b: a <= b,
    "LT": lambda a, b: a < b,
    "NE": lambda a, b: a != b,
}
_INTEGERS = frozenset(range(1, 10))
"""`PRED` to `U64` of xla_data.proto."""
_FEW = 16


def _computed(instruction: Any, operands: Sequence[Integers | None]) -> Integers | None:
    """The result of an operation on a few integers; None if it is not known or not so simple."""
    shape, op = instruction.shape, instruction.opcode
    if shape.element_type not in _INTEGERS or math.prod(shape.dimensions) > _FEW or len(shape.dimensions) > 1:
        return None
    if op == "constant":
        array = _literal(instruction)
        return None if array is None else tuple(int(value) for value in array.reshape(-1))
    known = [operand for operand in operands if operand is not None]
    if len(known) < len(operands) or not known:
        return None
    if op == "slice":
        (cut,) = instruction.slice_dimensions
        return known[0][cut.start : cut.limit : cut.stride]
    if op == "broadcast" and len(known[0]) == 1:
        return tuple(known[0] * math.prod(shape.dimensions))
    if op == "concatenate":
        return tuple(value for operand in known for value in operand)
    if (op == "not" and shape.element_type != 1) or len({len(operand) for operand in known}) > 1:
        return None
    if op == "compare":
        return tuple(int(_COMPARED[instruction.comparison_direction](*pair)) for pair in zip(*known, strict=True))
    return tuple(_COMPUTED[op](*values) for values in zip(*known, strict=True)) if op in _COMPUTED else None


def _evaluated(module: Module, computation: int, parameters: Sequence[Any]) -> Any:
    """A condition's value for these integers, as far as it can be computed; what is unknown is None."""
    instructions = module.instructions[computation]
    done: dict[int, Any] = {}

    def of(number: int) -> Any:
        if number not in done:
            done[number] = compute(instructions[number])
        return done[number]

    def compute(instruction: Any) -> Any:
        op = instruction.opcode
        if op == "parameter":
            return parameters[instruction.parameter_number]
        operands = [of(operand) for operand in instruction.operand_ids]
        if op == "tuple":
            return tuple(operands)
        if op == "get-tuple-element":
            return None if operands[0] is None else operands[0][instruction.tuple_index]
        if op == "call":
            return _evaluated(module, instruction.called_computation_ids[0], operands)
        return _computed(instruction, operands)

    return of(module.computations[computation].root_id)


_LITERALS: Mapping[int, tuple[str, str]] = {
    1: ("preds", "?"),
    2: ("s8s", "i1"),
    3: ("s16s", "<i2"),
    4: ("s32s", "<i4"),
    5: ("s64s", "<i8"),
    6: ("u8s", "u1"),
    7: ("u16s", "<u2"),
    8: ("u32s", "<u4"),
    9: ("u64s", "<u8"),
    10: ("f16s", "<u2"),
    11: ("f32s", "<f4"),
    12: ("f64s", "<f8"),
    15: ("c64s", "<c8"),
    16: ("bf16s", "<u2"),
    18: ("c128s", "<c16"),
}
"""By the element types of xla_data.proto: the field of a literal that has the values, and their dtype; of half floats, the bits."""


def _literal(instruction: Any) -> Array | None:
    """A constant's values, or None if its type is none that is known."""
    field, dtype = _LITERALS.get(instruction.shape.element_type, ("", ""))
    if not field:
        return None
    content = getattr(instruction.literal, field)
    if isinstance(content, bytes):
        values = np.frombuffer(content, dtype)
    elif "c" in dtype:
        values = np.asarray(content, f"<f{int(dtype[2:]) // 2}").view(dtype)
    else:
        values = np.asarray(content, dtype)
    shape = tuple(instruction.shape.dimensions)
    return values.reshape(shape) if values.size == math.prod(shape) else None
