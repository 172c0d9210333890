"""The walk through both programs, from the inputs to the results. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfaot.export.rows.hlo import Module, same_attributes
from tfaot.export.rows.loop import Loop
from tfaot.export.rows.rules import RULES
from tfaot.export.rows.step import Step
from tfaot.export.rows.values import BATCHED, COUNTS, FREE, PLACE, TOGETHER, UNKNOWN, Cause, Kind, Tree, Value, leaves


def mixed_results(first: Any, second: Any, batched: Sequence[bool]) -> list[Cause | None]:
    """Decides for each result of a program whether its rows are independent.

    Args:
      first: the HloModuleProto for `SIZES[0]` rows.
      second: the one for `SIZES[1]` rows.
      batched: for each parameter, whether its first dimension is the batch. Parameters without an entry have no batch.

    Returns:
      For each result, None or what may let its rows affect each other.
    """
    walk = Walk(Module.of(first), Module.of(second))
    main = walk.first.instructions[walk.first.entry].values()
    further = sum(instruction.opcode == "parameter" for instruction in main) - len(batched)
    result = walk.run([*(Value(Kind.ROWS) if has else FREE for has in batched), *[FREE] * further])
    causes: list[Cause | None] = []
    for value in leaves(result):
        if value.kind is Kind.ROWS and (value.axis, value.each, value.outer) == (0, 1, 1):
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

    def _computation(self, a: int, b: int, parameters: Sequence[Tree]) -> Tree:
        """Returns a computation's result for these parameters."""
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
            step = Step(one, other, [done[operand] for operand in operands], (mine, theirs), self._order)
            if not alike:
                done[pair] = step.everywhere(step.mixed(COUNTS))
            elif one.opcode == "parameter":
                done[pair] = parameters[one.parameter_number]
            else:
                done[pair] = self._result(step)
        return done[root]

    def called(self, step: Step, index: int, parameters: Sequence[Tree]) -> Tree:
        """Returns the result of a computation that an instruction calls."""
        return self._computation(
            step.one.called_computation_ids[index], step.other.called_computation_ids[index], parameters
        )

    def _result(self, step: Step) -> Tree:
        """Returns the abstract value of a step's result."""
        op = step.one.opcode
        if op == "tuple":
            return tuple(step.operands)
        if op == "get-tuple-element":
            return step.operands[0][step.one.tuple_index]
        if op == "call":
            return self.called(step, 0, step.operands)
        if op == "optimization-barrier":
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
        if not same_attributes(step.one, step.other):
            return step.everywhere(step.mixed(COUNTS))
        rule = RULES.get(step.one.opcode)
        value = step.folded() or (rule(step) if rule else step.unknown())
        if isinstance(value, Value) and value.kind in BATCHED and not isinstance(step.batch, bool | None):
            if step.batch != (value.axis, value.each * value.outer):
                value = step.mixed(TOGETHER)  # the rule and the shapes contradict each other
        elif isinstance(value, Value) and value.kind in BATCHED and not step.one.shape.tuple_shapes:
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
