"""Reads the table that a generated test, or a replay, prints."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import sys

_ROW = re.compile(r"^(\d+) +(.+?) +(\S+) +(\S+) +(\S+)% +(\S+) +(\S+)%(?:  (FAILED|BLIND))?$")


@dataclasses.dataclass(frozen=True)
class Row:
    """One comparison."""

    step: int
    name: str
    ulp: float
    """The largest error, in units in the last place."""
    share: float
    """The largest error as a fraction of its value's tolerance."""
    sees: float
    """How many tolerances a change to the model moves half of the values by, or more."""
    checked: float
    """The share of values for which a wrong one would fail."""
    verdict: str
    """`FAILED`, `BLIND`, or nothing."""


def rows(log: pathlib.Path) -> list[Row]:
    """Returns all comparisons in a log. Ends the process if there are none."""
    rows = []
    if log.exists():
        for line in log.read_text(encoding="utf-8").splitlines():
            if match := _ROW.match(line):
                step, name, _, ulp, share, sees, checked, verdict = match.groups()
                numbers = float(ulp), float(share) / 100, float(sees), float(checked) / 100
                rows.append(Row(int(step), name, *numbers, verdict or ""))
    if not rows:
        sys.exit(f"{log} contains no table of comparisons: run ./bazelw test //examples/... first")
    return rows
