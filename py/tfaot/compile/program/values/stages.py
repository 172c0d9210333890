"""The stages of a formula over rows: each combines values that need what the stage before gave, and the last one writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tfaot.compile.program.values.formulas import REDUCTIONS, SLOW, Formula, Operation, needed, wholes


@dataclasses.dataclass(frozen=True)
class Stage:
    """A stage. It goes through all columns once."""

    operations: tuple[Operation, ...]
    """Those of the formula. What an earlier stage keeps in an array is an `array` here."""
    reductions: tuple[int, ...]
    """What it computes for the next stage."""
    goals: tuple[int, ...]
    """The operations whose values it combines, or in the last stage writes."""
    keeps: tuple[tuple[int, int], ...]
    """The arrays in which it keeps values, and the operations that have them."""

    @property
    def computed(self) -> list[int]:
        """The operations that it computes for each column, in order."""
        return _inside(self.operations, (*self.goals, *(value for _, value in self.keeps)))


def stages(formula: Formula) -> tuple[Stage, ...]:
    """Returns the stages of a formula, whose operations are all needed.

    A later stage computes again what an earlier one has computed. It reads what takes long instead, if there is an array to keep
    that in: one that the last stage writes, and that nothing reads any more.
    """
    depths = _depths(formula.operations)
    by_depth = [
        tuple(
            index
            for index, operation in enumerate(formula.operations)
            if operation.opcode in REDUCTIONS and depths[index] == depth
        )
        for depth in range(1, max(depths, default=0) + 1)
    ]
    goals = [tuple(formula.operations[reduction].operands[0] for reduction in stage) for stage in by_depth]
    goals.append(tuple(value for _, value in formula.arrays))
    views = [[*formula.operations] for _ in goals]
    keeps: list[list[tuple[int, int]]] = [[] for _ in goals]
    for index in reversed(range(len(formula.operations))):
        first, *later = [stage for stage, view in enumerate(views) if index in _inside(view, goals[stage])] or [0]
        if not later or formula.operations[index].opcode not in SLOW:
            continue
        for place, _ in formula.arrays:
            kept = Operation("array", place=place)
            after = {stage: [*views[stage]] for stage in range(first + 1, len(views))}
            for view in after.values():
                view[index] = Operation("array")
            read = [view[operation] for stage, view in after.items() for operation in _inside(view, goals[stage])]
            if kept not in read and all(place != other for stage in keeps for other, _ in stage):
                keeps[first].append((place, index))
                for stage, view in after.items():
                    views[stage] = view
                    view[index] = kept
                break
    parts = zip(views, [*by_depth, ()], goals, keeps, strict=True)
    return tuple(Stage(tuple(view), reductions, goal, tuple(kept)) for view, reductions, goal, kept in parts)


def repeats(formula: Formula) -> bool:
    """Returns whether several stages compute something that takes as long as moving a value."""
    slow = [index for stage in stages(formula) for index in stage.computed if stage.operations[index].opcode in SLOW]
    return len(slow) > len({*slow})


def _inside(operations: Sequence[Operation], goals: Sequence[int]) -> list[int]:
    """Returns the operations of each column that some goals need, in order."""
    # What a value of the row needs is already computed.
    whole = wholes(operations)
    cut = [operation if index in whole else Operation("cut") for index, operation in enumerate(operations)]
    return [operation for operation in needed(cut, goals) if operation in whole]


def _depths(operations: Sequence[Operation]) -> list[int]:
    """Returns how many reductions each operation waits for, one after another."""
    depths: list[int] = []
    for operation in operations:
        depths.append(
            max((depths[operand] for operand in operation.operands), default=0) + (operation.opcode in REDUCTIONS)
        )
    return depths
