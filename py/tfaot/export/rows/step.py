"""One step of the analysis: an instruction of both programs, and what is known of its operands. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tfaot.export.rows.hlo import TUPLE, batch_of
from tfaot.export.rows.integers import Integers, computed
from tfaot.export.rows.values import (
    BATCHED,
    COUNTS,
    DECIDES,
    FREE,
    PLACE,
    PLACED,
    TOGETHER,
    UNKNOWN,
    Cause,
    Kind,
    Tree,
    Value,
    layout,
    leaves,
    unflattened,
)


class Step:
    """One pair of instructions, and what is known of their operands."""

    def __init__(
        self,
        one: Any,
        other: Any,
        operands: Sequence[Tree],
        instructions: tuple[Mapping[int, Any], Mapping[int, Any]],
        order: int,
    ) -> None:
        """Takes a pair of instructions.

        Args:
          one: the first program's.
          other: the second program's.
          operands: what is known of their operands.
          instructions: those of the computations around them, by id.
          order: a number that grows from step to step.
        """
        self.one = one
        self.other = other
        self.operands = operands
        self.instructions = instructions
        self._order = order

    @property
    def shape(self) -> tuple[int, ...]:
        """The first result's."""
        return tuple(self.one.shape.dimensions)

    @property
    def batch(self) -> tuple[int, int] | bool | None:
        """The dimension that holds the batch, and the places that a row has; None if there is none; False if it is unclear."""
        return batch_of(self.one.shape, self.other.shape)

    def mixed(self, why: str, *parts: Tree) -> Value:
        """The value that remembers this instruction; or the first that is mixed already."""
        known = [leaf.cause for part in parts for leaf in leaves(part) if leaf.kind is Kind.MIXED and leaf.cause]
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
        if shape.tuple_shapes or shape.element_type == TUPLE:
            return tuple(self.everywhere(value, part) for part in shape.tuple_shapes)
        return value

    def folded(self) -> Value | None:
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
            found = computed(instruction, operands)
            if found is None:
                return None
            results.append(found)
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
        if kinds & BATCHED:
            rows = [value for value in values if value.kind in BATCHED]
            if kinds & {Kind.INDEX, Kind.COLUMNS}:
                return self.mixed(PLACE)
            if len({layout(value) for value in rows}) > 1:
                return self.mixed(TOGETHER)
            for kind, why in ((Kind.SIZE, COUNTS), (Kind.PLACE, PLACE), (Kind.COUNTER, PLACE), (Kind.ONE, TOGETHER)):
                if kind in kinds:
                    return self.mixed(why)
            return Value(Kind.ROWS, *layout(rows[0]))
        if Kind.ONE in kinds:
            if kinds & PLACED:
                return self.mixed(PLACE)
            return self.mixed(COUNTS) if Kind.SIZE in kinds else Value(Kind.ONE)
        if kinds & PLACED:
            return Value(Kind.PLACE)
        return Value(Kind.SIZE) if Kind.SIZE in kinds else FREE

    def without_batch(self, value: Value) -> Value:
        """A value of which a result without a batch is made: or, with one, the same for each row."""
        if self.batch is None:
            return value
        if value.kind is Kind.FREE and not isinstance(self.batch, bool):
            return Value(Kind.ROWS, *self.batch)
        return self.mixed({Kind.SIZE: COUNTS, Kind.FREE: TOGETHER}.get(value.kind, PLACE))

    def unknown(self) -> Value:
        """An operation without a rule: what depends on no row stays so."""
        value = self.together([leaf for operand in self.operands for leaf in leaves(operand)])
        shapes = [self.one.shape, *self.one.shape.tuple_shapes], [self.other.shape, *self.other.shape.tuple_shapes]
        if value.kind in BATCHED or any(batch_of(a, b) is not None for a, b in zip(*shapes, strict=True)):
            return self.mixed(UNKNOWN)
        return value

    def decided(self, predicate: Value, tree: Tree) -> Tree:
        """Results, each of which depends on the predicate besides."""
        if predicate.kind is Kind.FREE:
            return tree
        decided = [
            self.mixed(DECIDES, predicate, leaf)
            if predicate.kind is Kind.MIXED or leaf.kind is Kind.MIXED or leaf.kind in BATCHED
            else self.together([predicate, leaf])
            for leaf in leaves(tree)
        ]
        return unflattened(tree, decided)

    def joined(self, a: Tree, b: Tree) -> Tree:
        """What may be either."""
        return unflattened(a, [self.either(x, y) for x, y in zip(leaves(a), leaves(b), strict=True)])

    def either(self, a: Value, b: Value) -> Value:
        """What may be either of two values."""
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
