"""Analyzes loops, both with a fixed trip count and over the rows of a batch. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

from tfaot.export.batch_independence.hlo import SIZES
from tfaot.export.batch_independence.integers import evaluated
from tfaot.export.batch_independence.step import Step
from tfaot.export.batch_independence.values import (
    COUNTS,
    PLACE,
    TOGETHER,
    Kind,
    Tree,
    Value,
    forgotten,
    kinds,
    leaves,
    plain,
    unflattened,
)
from tfaot.xla.module import Module


class Calls(Protocol):
    """The part of the walk that a loop uses."""

    first: Module
    second: Module

    def called(self, step: Step, index: int, parameters: Sequence[Tree]) -> Tree:
        """Returns the result of a computation that a step's instruction calls."""
        ...


class Loop:
    """A While in both programs.

    If its condition depends on no row, the trip count doesn't depend on the batch, and the body is repeated until its
    values no longer change. If the condition counts rows, the loop must iterate over the rows, as `tf.map_fn` does: it
    counts from 0 to the number of rows, and step k reads row k and writes row k.
    """

    def __init__(self, walk: Calls, step: Step) -> None:
        self._walk = walk
        self._step = step
        self._start: Tree = step.operands[0]

    def result(self) -> Tree:
        """Returns the abstract values of the loop's results."""
        step, state = self._step, forgotten(self._start)
        while True:
            condition = self._condition(state)
            if condition.kind is not Kind.FREE:
                break
            after = self._grown(state, self._walk.called(step, 0, [state]))
            if kinds(after) == kinds(state):
                return forgotten(state)
            state = after
        if condition.kind in (Kind.SIZE, Kind.PLACE):
            return self._over_rows(condition)
        while True:  # rows end one by one, or all at once
            after = self._grown(state, self._walk.called(step, 0, [state]))
            if kinds(after) == kinds(state):
                return step.decided(self._condition(state), forgotten(state))
            state = after

    def _condition(self, state: Tree) -> Value:
        condition: Value = leaves(self._walk.called(self._step, 1, [state]))[0]
        return condition

    def _grown(self, before: Tree, after: Tree) -> Tree:
        """Returns what the loop may carry before any iteration. Mixed values stay mixed, with their first cause."""
        grown = [
            old if old.kind is Kind.MIXED else self._step.either(plain(old), plain(new))
            for old, new in zip(leaves(before), leaves(after), strict=True)
        ]
        return unflattened(before, grown)

    def _over_rows(self, condition: Value) -> Tree:
        step = self._step
        start = leaves(self._start)
        counts = [value.kind is Kind.FREE and value.constant == ((0,), (0,)) for value in start]
        # A row of an enclosing loop must not be combined with a row of this one.
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
            after = leaves(self._walk.called(step, 0, [unflattened(self._start, state)]))
            wrong = False
            for index, value in enumerate(after):
                if index in mixed or value.same == index or (value.filled == index and value.kind is Kind.ROWS):
                    if counts[index] and index not in mixed:
                        counts[index], wrong = False, True  # a zero that never changes
                elif counts[index] and value.next == index:
                    pass
                else:
                    why = PLACE if counts[index] or start[index].kind is not Kind.ROWS else COUNTS
                    mixed[index], counts[index], wrong = step.mixed(why, value), False, True
            if not wrong:
                break
        if not self._runs_once_a_row(counts, [value.same == index for index, value in enumerate(after)]):
            return unflattened(
                self._start,
                [
                    mixed.get(index, plain(value))
                    if after[index].same == index
                    else step.mixed(COUNTS, condition, value)
                    for index, value in enumerate(start)
                ],
            )
        left = [
            mixed.get(index, Value(Kind.SIZE) if counts[index] else plain(value)) for index, value in enumerate(start)
        ]
        return unflattened(self._start, left)

    def _runs_once_a_row(self, counts: Sequence[bool], kept: Sequence[bool]) -> bool:
        """Returns whether the condition is true exactly while the counters are below the number of rows."""
        step = self._step
        for which, (module, instruction) in enumerate(((self._walk.first, step.one), (self._walk.second, step.other))):
            rows = SIZES[which]
            for count in range(rows + 1):
                values: list[Any] = [
                    (count,) if counted else value.constant[which] if value.constant and unchanged else None
                    for counted, value, unchanged in zip(counts, leaves(self._start), kept, strict=True)
                ]
                operand = unflattened(self._start, values)
                held = evaluated(module, module.computations[instruction.called[1]], [operand])
                if held is None or bool(held[0]) != (count < rows):
                    return False
        return True
