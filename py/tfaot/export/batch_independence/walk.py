"""The walk through both programs, from the inputs to the results. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfaot.export.batch_independence.hlo import same_attributes
from tfaot.export.batch_independence.loop import Loop
from tfaot.export.batch_independence.rules import RULES
from tfaot.export.batch_independence.step import Step
from tfaot.export.batch_independence.values import (
    BATCHED,
    COUNTS,
    FREE,
    PLACE,
    TOGETHER,
    UNKNOWN,
    Cause,
    Kind,
    Tree,
    Value,
    leaves,
)
from tfaot.xla.module import Computation, Module, read


def mixed_results(first: Any, second: Any, batched: Sequence[bool]) -> list[Cause | None]:
    """Decides for each result of a program whether its rows are independent.

    Args:
      first: the HloModuleProto for `SIZES[0]` rows.
      second: the one for `SIZES[1]` rows.
      batched: for each parameter, whether its first dimension is the batch. Parameters without an entry have no batch.

    Returns:
      For each result, None or what may let its rows affect each other.
    """
    walk = Walk(read(first), read(second))
    main = walk.first.entry.instructions.values()
    further = sum(instruction.opcode == "parameter" for instruction in main) - len(batched)
    result = walk.run([*(Value(Kind.ROWS) if has else FREE for has in batched), *[FREE] * further])
    causes: list[Cause | None] = []
    for value in leaves(result):
        if value.kind is Kind.ROWS and (value.axis, value.width, value.outer) == (0, 1, 1):
            causes.append(None)
        elif value.kind is Kind.MIXED:
            causes.append(value.cause)
        else:
            causes.append(Cause((), "", "result", PLACE if value.kind in BATCHED else UNKNOWN))
    return causes


class Walk:
    """One walk through both programs."""

    def __init__(self, first: Module, second: Module) -> None:
        self.first = first
        self.second = second
        self._order = 0

    def run(self, parameters: Sequence[Value]) -> Tree:
        """Returns the entry computation's result."""
        return self._computation(self.first.entry, self.second.entry, parameters)

    def _computation(self, a: Computation, b: Computation, parameters: Sequence[Tree]) -> Tree:
        """Returns a computation's result for these parameters."""
        mine, theirs = a.instructions, b.instructions
        root = a.root.name, b.root.name
        done: dict[tuple[str, str], Tree] = {}
        stack = [root]
        while stack:
            pair = stack[-1]
            if pair in done:
                stack.pop()
                continue
            one, other = mine[pair[0]], theirs[pair[1]]
            alike = one.opcode == other.opcode and len(one.operands) == len(other.operands)
            operands = list(zip(one.operands, other.operands, strict=True)) if alike else []
            missing = [operand for operand in operands if operand not in done]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            self._order += 1
            step = Step(one, other, [done[operand] for operand in operands], (mine, theirs), self._order)
            if not alike:
                done[pair] = step.everywhere(step.mixed(COUNTS))
            elif one.opcode == "parameter":
                done[pair] = parameters[one.number]
            else:
                done[pair] = self._result(step)
        return done[root]

    def called(self, step: Step, index: int, parameters: Sequence[Tree]) -> Tree:
        """Returns the result of a computation that an instruction calls."""
        a, b = self.first.computations[step.one.called[index]], self.second.computations[step.other.called[index]]
        return self._computation(a, b, parameters)

    def _result(self, step: Step) -> Tree:
        """Returns the abstract value of a step's result."""
        op = step.one.opcode
        if op == "tuple":
            return tuple(step.operands)
        if op == "get-tuple-element":
            return step.operands[0][step.one.attributes.tuple_index]
        if op == "call":
            return self.called(step, 0, step.operands)
        if op == "opt-barrier":
            return step.operands[0]
        if op == "while":
            return Loop(self, step).result()
        if op == "conditional":
            return self._conditional(step)
        if step.empty:
            return FREE
        step = step.without_empty()
        values = [leaf for operand in step.operands for leaf in leaves(operand)]
        if any(value.kind is Kind.MIXED for value in values):
            return step.everywhere(step.mixed("", *values))
        if not same_attributes(step.one.attributes, step.other.attributes):
            return step.everywhere(step.mixed(COUNTS))
        rule = RULES.get(step.one.opcode)
        value = step.folded() or (rule(step) if rule else step.unknown())
        if isinstance(value, Value) and value.kind in BATCHED and not isinstance(step.batch, bool | None):
            if step.batch != (value.axis, value.width * value.outer):
                value = step.mixed(TOGETHER)  # the rule and the shapes contradict each other
        elif isinstance(value, Value) and value.kind in BATCHED and not step.one.type.parts:
            value = step.mixed(TOGETHER)
        return step.everywhere(value) if isinstance(value, Value) else value

    def _conditional(self, step: Step) -> Tree:
        """Joins the branches. The results depend on the predicate, too."""
        predicate, *operands = step.operands
        branches = [self.called(step, index, [operand]) for index, operand in enumerate(operands)]
        joined = branches[0]
        for branch in branches[1:]:
            joined = step.joined(joined, branch)
        return step.decided(predicate, joined)
