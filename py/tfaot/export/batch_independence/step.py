"""One step of the walk: a pair of instructions with the values of their operands. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tfaot.export.batch_independence.hlo import batch_of
from tfaot.export.batch_independence.integers import Integers, computed
from tfaot.export.batch_independence.values import (
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
from tfaot.xla.module import Instruction, Shape


class Step:
    """One pair of instructions, and the values of their operands."""

    def __init__(
        self,
        one: Instruction,
        other: Instruction,
        operands: Sequence[Tree],
        instructions: tuple[Mapping[str, Instruction], Mapping[str, Instruction]],
        order: int,
    ) -> None:
        """Takes a pair of instructions.

        Args:
          one: the first program's instruction.
          other: the second program's instruction.
          operands: what is known about their operands.
          instructions: the instructions of the surrounding computations, by name.
          order: a number that grows from step to step.
        """
        self.one = one
        self.other = other
        self.operands = operands
        self.instructions = instructions
        self._order = order

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the first result."""
        return self.one.shape

    @property
    def empty(self) -> bool:
        """Whether the result is an array without elements, which depends on nothing."""
        return all(0 in part.shape for part in (self.one, self.other))

    def without_empty(self) -> Step:
        """Returns the step without arrays that have no elements, if it concatenates: a padding of none, for example."""
        if self.one.opcode != "concatenate":
            return self
        pairs = list(zip(self.one.operands, self.other.operands, strict=True))
        full = [
            index
            for index, pair in enumerate(pairs)
            if not all(0 in self.instructions[which][operand].shape for which, operand in enumerate(pair))
        ]
        if len(full) == len(pairs):
            return self
        made = []
        for instruction in (self.one, self.other):
            operands = tuple(instruction.operands[index] for index in full)
            opcode = "concatenate" if len(full) > 1 else "copy"
            made.append(dataclasses.replace(instruction, opcode=opcode, operands=operands))
        return Step(made[0], made[1], [self.operands[index] for index in full], self.instructions, self._order)

    @property
    def batch(self) -> tuple[int, int] | bool | None:
        """The batch dimension and its elements per row; None if there is no batch, False if it is unclear."""
        return batch_of(self.one.type, self.other.type)

    def mixed(self, why: str, *parts: Tree) -> Value:
        """Returns a MIXED value that records this instruction, or the first cause among `parts`."""
        causes = [leaf.cause for part in parts for leaf in leaves(part) if leaf.kind is Kind.MIXED and leaf.cause]
        if causes:
            return Value(Kind.MIXED, cause=min(causes, key=lambda cause: cause.order))
        metadata = self.one.attributes.metadata
        return Value(
            Kind.MIXED, cause=Cause((self._order,), metadata.op_name, metadata.op_type or self.one.opcode, why)
        )

    def everywhere(self, value: Value, shape: Shape | None = None) -> Tree:
        """Returns a tree with this value for each array of the result."""
        shape = self.one.type if shape is None else shape
        if shape.dtype == "tuple":
            return tuple(self.everywhere(value, part) for part in shape.parts)
        return value

    def folded(self) -> Value | None:
        """Returns the result as known integers, if it is a small array and can be evaluated."""
        if self.batch is not None:
            return None
        results: list[Integers] = []
        for which, instruction in enumerate((self.one, self.other)):
            if instruction.opcode == "get-dimension-size":
                shape, axis = self.instructions[which][instruction.operands[0]].type, instruction.dimensions[0]
                if shape.dynamic[axis]:
                    return None
                results.append((shape.dims[axis],))
                continue
            operands = [
                None if not isinstance(operand, Value) or operand.constant is None else operand.constant[which]
                for operand in self.operands
            ]
            result = computed(instruction, operands)
            if result is None:
                return None
            results.append(result)
        values = [operand for operand in self.operands if isinstance(operand, Value)]
        forwards = self.one.opcode in ("copy", "reshape") and len(values) == 1
        return Value(
            Kind.FREE if results[0] == results[1] else Kind.SIZE,
            constant=(results[0], results[1]),
            same=values[0].same if forwards else None,
        )

    def together(self, values: Sequence[Value]) -> Value:
        """Combines values elementwise. None of them is MIXED."""
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
        """Returns the value of a result made only from `value`, which may have a batch dimension where all rows are equal."""
        if self.batch is None:
            return value
        if value.kind is Kind.FREE and not isinstance(self.batch, bool):
            return Value(Kind.ROWS, *self.batch)
        return self.mixed({Kind.SIZE: COUNTS, Kind.FREE: TOGETHER}.get(value.kind, PLACE))

    def unknown(self) -> Value:
        """Returns the result of an operation without a rule, which is known only if no operand has rows."""
        value = self.together([leaf for operand in self.operands for leaf in leaves(operand)])
        shapes = [self.one.type, *self.one.type.parts], [self.other.type, *self.other.type.parts]
        if value.kind in BATCHED or any(batch_of(a, b) is not None for a, b in zip(*shapes, strict=True)):
            return self.mixed(UNKNOWN)
        return value

    def decided(self, predicate: Value, tree: Tree) -> Tree:
        """Returns results that also depend on a predicate."""
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
        """Joins two trees, either of which may be the result."""
        return unflattened(a, [self.either(x, y) for x, y in zip(leaves(a), leaves(b), strict=True)])

    def either(self, a: Value, b: Value) -> Value:
        """Joins two values."""
        if a == b:
            return a
        if Kind.MIXED in (a.kind, b.kind):
            return self.mixed("", a, b)
        return self.together([a, b])

    def value(self, index: int) -> Value:
        """Returns the value of an operand that is an array."""
        value: Value = self.operands[index]
        return value

    def operand_shape(self, index: int) -> tuple[int, ...]:
        """Returns the shape of an operand in the first program."""
        return self.instructions[0][self.one.operands[index]].shape

    @property
    def second_shape(self) -> tuple[int, ...]:
        """The shape of the first operand in the second program."""
        return self.instructions[1][self.other.operands[0]].shape

    def full(self, axis: int, sizes: Sequence[int], others: Sequence[int]) -> bool:
        """Returns whether slices of these sizes, listed for each program, span the first operand's whole dimension."""
        return sizes[axis] == self.operand_shape(0)[axis] and others[axis] == self.second_shape[axis]
