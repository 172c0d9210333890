"""What `//tools:measure` writes: the times of kernels, the machine's own rates, and the numerics of tests. Pure."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

from tfaot.core.errors import TfaotError

FORMAT = 2

_HEADING = re.compile(r"^(\S+), (\S+), against TensorFlow$")
_ROW = re.compile(
    r"^(\d+) +(\S.*?) +([\d.e+\-infa]+) +([\d.e+\-infa]+) +([\d.e+\-infa]+)% +([\d.e+\-infa]+) +([\d.e+\-]+)%"
    r"(?:  (FAILED|BLIND))?$"
)
_UNVERIFIED = re.compile(r"^ {6}(\S.*?) +NOT VERIFIED$")
_FIRST = re.compile(r"^first to diverge: (.*)$")


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One kernel in a run."""

    name: str
    calls: float
    """In a run."""
    microseconds: float
    """Of all its calls in a run."""


@dataclasses.dataclass(frozen=True)
class Profile:
    """The runs of one function."""

    function: str
    isa: str
    steps: int
    microseconds: float
    """The median of a run without a profile."""
    kernels: tuple[Kernel, ...]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One tensor after one step, compared with TensorFlow's."""

    step: int
    tensor: str
    absolute: float
    """The largest error."""
    ulp: float
    """The largest error in units in the last place."""
    share: float
    """The largest error as a share of its value's tolerance: 1.0 is all of it."""
    sees: float
    """By how many tolerances other inputs move half of the values, or more."""
    checked: float
    """The share of values for which a wrong one would fail."""
    verdict: str
    """`FAILED`, `BLIND`, or nothing."""


@dataclasses.dataclass(frozen=True)
class Tested:
    """What a generated test printed for one CPU level."""

    program: str
    isa: str
    comparisons: tuple[Comparison, ...]
    first: str
    """The first tensor that diverges, in the order of execution; empty if none does."""
    unverified: tuple[str, ...]
    """Outputs and variables of which most values could be wrong without a failure."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """Everything that was measured on one machine."""

    target: str
    fingerprint: str
    """The compiled class's."""
    cpu: str
    date: str
    peaks: dict[str, float]
    """`flops` in a second, and bytes in a second of `memory` and of `cache`."""
    profiles: tuple[Profile, ...]
    tested: tuple[Tested, ...]

    def to_json(self) -> str:
        """Returns the file's text."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, *, path: str) -> Measured:
        """Reads the file's text.

        Raises:
          TfaotError: it isn't one, or another version of the rules wrote it.
        """
        try:
            data: dict[str, Any] = json.loads(text)
            if data.pop("format") != FORMAT:
                raise ValueError("another format")
            profiles = tuple(
                Profile(**{**profile, "kernels": tuple(Kernel(**kernel) for kernel in profile["kernels"])})
                for profile in data.pop("profiles")
            )
            tested = tuple(
                Tested(
                    **{
                        **test,
                        "comparisons": tuple(Comparison(**one) for one in test["comparisons"]),
                        "unverified": tuple(test["unverified"]),
                    }
                )
                for test in data.pop("tested")
            )
            return cls(profiles=profiles, tested=tested, **data)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise TfaotError(
                f"{path} isn't what //tools:measure of this version writes",
                exists=f"{type(error).__name__}: {error}",
                do="measure again: bazel run @rules_tfaot//tools:measure -- //your:target --out=FILE",
            ) from None


def profiles(lines: str) -> tuple[Profile, ...]:
    """Reads what a benchmark wrote for `--profile`: a line of JSON for each function."""
    read = []
    for line in lines.splitlines():
        data = json.loads(line)
        kernels: dict[str, Kernel] = {}
        for kernel in data.pop("kernels"):
            name = plain(kernel["name"])
            old = kernels.get(name, Kernel(name, 0.0, 0.0))
            kernels[name] = Kernel(name, old.calls + kernel["calls"], old.microseconds + kernel["microseconds"])
        read.append(Profile(**data, kernels=tuple(kernels.values())))
    return tuple(read)


def tested(program: str, printed: str) -> tuple[Tested, ...]:
    """Reads what a generated test printed, for each CPU level."""
    read: list[Tested] = []
    for line in printed.splitlines():
        if heading := _HEADING.match(line):
            read.append(Tested(program, heading[2], (), "", ()))
        elif read and (row := _ROW.match(line)):
            absolute, ulp, share, sees, checked = (float(row[index]) for index in range(3, 8))
            one = Comparison(int(row[1]), row[2], absolute, ulp, share / 100, sees, checked / 100, row[8] or "")
            read[-1] = dataclasses.replace(read[-1], comparisons=(*read[-1].comparisons, one))
        elif read and (unverified := _UNVERIFIED.match(line)):
            read[-1] = dataclasses.replace(read[-1], unverified=(*read[-1].unverified, unverified[1]))
        elif read and (first := _FIRST.match(line)):
            read[-1] = dataclasses.replace(read[-1], first=first[1])
    return tuple(read)


def plain(kernel: str) -> str:
    """Returns a kernel's name in HLO, without the class and the level that make it unique."""
    return re.sub(r"^tfcompile_.*?_(?:x86_64(?:_v\d)?|armv8[a-z0-9_]*?)_(?=[a-z])", "", kernel)
