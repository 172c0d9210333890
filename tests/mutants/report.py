"""The page of a run: what was caught, by model and class of fault, and every mutant that was missed."""

from __future__ import annotations

import collections
import dataclasses
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from model import CHANGED, Verdict

ORIGINALS = ("unmutated", "rounding")
"""Names of what isn't a fault."""

AIM = 0.99

VALUES = 0.95
"""As AIM, of values. One value is nearer to its tolerance than all values of a model are."""

NOISE = 10
"""A difference isn't rounding if it exceeds one-ULP effects by this factor. observer.h has the same number."""

_SHAKEN = (
    "These runs move values by a whole ULP, and a rounding by half of one at most. A loop of many steps adds that up."
)

_BOUNDS = (1e-3, 1e-4, 1e-5, 1e-6, 0.0)


@dataclasses.dataclass(frozen=True)
class Summary:
    """A run in numbers."""

    text: str
    reached: bool
    """Whether at least `AIM` of the mutants that change a result are caught, and `VALUES` of the changed values, no original raises
    a false alarm, and each model has mutants that change a result."""


@dataclasses.dataclass(frozen=True)
class _Row:
    mutants: int
    same: int
    rounding: int
    changing: int
    caught: int
    crashed: int
    values: int
    noticed: int

    @classmethod
    def of(cls, verdicts: Sequence[Verdict]) -> _Row:
        faults = [verdict for verdict in verdicts if verdict.mutant.name not in ORIGINALS]
        changing = [verdict for verdict in faults if verdict.changes]
        same = sum(verdict.observed == "ok" and not verdict.differs for verdict in faults)
        return cls(
            len(faults),
            same,
            len(faults) - same - len(changing),
            len(changing),
            sum(verdict.caught for verdict in changing),
            sum(verdict.tested.startswith("signal") for verdict in changing),
            sum(verdict.values for verdict in faults),
            sum(verdict.noticed for verdict in faults),
        )

    @property
    def cells(self) -> str:
        numbers = (self.mutants, self.same, self.rounding, self.changing, self.caught)
        shares = (_share(self.caught, self.changing), _share(self.noticed, self.values))
        return " | ".join([*map(str, numbers), shares[0], f"{self.values:,}", shares[1]])


def _share(part: int, whole: int) -> str:
    """Returns a percentage. Only all is 100 %."""
    if part == whole:
        return "100 %" if whole else "–"
    return f"{min(100 * part / whole, 99.99):.2f} %"


def summary(results: Mapping[str, Sequence[Verdict]]) -> Summary:
    """Summarizes a run."""
    every = [verdict for verdicts in results.values() for verdict in verdicts]
    row = _Row.of(every)
    alarms = _alarms(results, "none")
    shaken = _alarms(results, "rounding")
    text = (
        f"{row.mutants} mutants of {len(results)} models: {row.same} change no bit, {row.rounding} change no more than "
        f"rounding does, and {row.changing} change a result. The tests catch {row.caught} of these, "
        f"{_share(row.caught, row.changing)}. They compare {row.values:,} values that change, and notice {row.noticed:,} of "
        f"these, {_share(row.noticed, row.values)}. "
        f"{len(alarms)} unmutated models fail their test. With differently rounded products, {len(shaken)} do."
    )
    dead = _dead(results)
    if dead:
        text += f" No mutant changes a result of {len(dead)} model(s): {', '.join(dead)}."
    reached = row.caught >= AIM * row.changing and row.noticed >= VALUES * row.values
    return Summary(text, reached and not alarms and not dead)


def page(results: Mapping[str, Sequence[Verdict]], possible: int) -> str:
    """Returns the page's text."""
    total = summary(results)
    every = [verdict for verdicts in results.values() for verdict in verdicts]
    by_name: dict[str, list[Verdict]] = collections.defaultdict(list)
    for verdict in every:
        if verdict.mutant.name not in ORIGINALS:
            by_name[verdict.mutant.name].append(verdict)
    missed = [
        (label, v)
        for label, verdicts in results.items()
        for v in verdicts
        if v.survives and v.mutant.name not in ORIGINALS
    ]
    alarms = _alarms(results, "none")
    shaken = _alarms(results, "rounding")
    row = _Row.of(every)
    header = "mutants | change no bit | only rounding | change a result | caught | | values changed | noticed |"
    return "\n".join(
        [
            "# What the generated test catches",
            "",
            "A test that can't fail proves nothing. This page breaks compiled programs on purpose, and counts how often the",
            "generated test notices. To measure it again:",
            "",
            "```sh",
            f"python3 tests/mutants/mutate.py --count {row.mutants} --page docs/measured/mutants.md",
            "```",
            "",
            f"Measured on {_cpu()}. {total.text}",
            "",
            "## How it is measured",
            "",
            f"The programs of the examples offer {possible:,} places for a fault. A run draws from them so that models and",
            "classes of faults come in turn. Each model is linked once, with a switch for every fault, and each mutant runs in its",
            "own process. The only verdict is the exit status of the generated test.",
            "",
            "The test, its goldens, and its tolerances don't decide whether a mutant changes a result. Instead, a second process",
            "runs the class on the test's inputs, and compares every output and every written variable, in full, with",
            "those of the unmutated program. A mutant **changes a result** if a value moves by more than both of these bounds:",
            "",
            f"- {CHANGED:g} of its tensor's largest value.",
            f"- {NOISE} times the effect of rounding there. To measure it, each variable that the model writes, each input, and",
            "  each value that a product or convolution gives moves up or down by one ULP, in three runs. Integers don't. If a",
            "  model computes with 16-bit floats, what products give moves by the largest error of their rounding.",
            "",
            "Integers and booleans must not change, unless rounding changes them. A mutant that crashes or never ends also",
            f"changes a result: {row.crashed} do.",
            "",
            "The test compares initial values of variables bit by bit before the first run, so no fault is put into them. The",
            "program reads a changed copy instead.",
            "",
            "A test compares many values, and one that is wrong is enough for it to fail. So the page also counts **values**: how",
            "many of those that a test compares move by more than both bounds, with the effect of rounding on this value alone,",
            "and how many of these the test doesn't tolerate. The test counts them itself, in four lines that are added to",
            "`runtime/tfaot/verify.h` and decide nothing. Those of free runs, whose tolerances are wider, don't count.",
            "",
            "What the kernels' operands hold when the program runs decides where some faults can be:",
            "",
            "- *use a masked element*: a false, or a zero among zeros and ones, becomes true, or one.",
            "- *an index off by one*, *a float count off by one*: one value of an operand that holds integers, or floats that are",
            "  integers, is smaller by one.",
            "- *reduce over n - 1*: the last term of sums, or the last value that a reduction reads, is zero.",
            "",
            "*Wrong state at a step* lets one run start with a variable's values from the first run, and the first run with zeros.",
            "",
            "If no mutant of a model changes a result, its inputs or weights leave nothing to see, and the run has measured",
            "nothing. The run then fails, as it does if too few mutants are caught.",
            "",
            "## With other bounds",
            "",
            "| a value moves by more than | change a result | caught | |",
            "|---:|---:|---:|---:|",
            *(_bound(every, bound) for bound in _BOUNDS),
            "",
            "## By class of fault",
            "",
            f"| class | {header}",
            "|---|" + "---:|" * 8,
            *(f"| {name} | {_Row.of(mutants).cells} |" for name, mutants in sorted(by_name.items())),
            f"| all | {row.cells} |",
            "",
            "## By model",
            "",
            "The last column says whether the test of the unmutated model passes, and how many of its runs with differently",
            "rounded products pass. Models whose tests catch every fault, "
            f"notice {100 * VALUES:.0f} % of the changed values, and pass",
            "otherwise, aren't listed.",
            "",
            f"| model | {header} passes |",
            "|---|" + "---:|" * 8 + "---|",
            *(
                f"| {label} | {_Row.of(verdicts).cells} | {_passes(verdicts)} |"
                for label, verdicts in results.items()
                if not _perfect(verdicts)
            ),
            "",
            "## What is missed",
            "",
            *(_missed(missed) or ["Nothing."]),
            "",
            "## False alarms",
            "",
            *([f"- {label}" for label in alarms] or ["No unmutated model fails its test."]),
            "",
            *([f"With differently rounded products: {', '.join(shaken)}.", _SHAKEN] if shaken else []),
            "",
        ]
    )


def _bound(verdicts: Sequence[Verdict], bound: float) -> str:
    faults = [verdict for verdict in verdicts if verdict.mutant.name not in ORIGINALS]
    changing = [verdict for verdict in faults if verdict.observed != "ok" or verdict.change > bound]
    caught = sum(verdict.caught for verdict in changing)
    return f"| {bound:g} of the largest value | {len(changing)} | {caught} | {_share(caught, len(changing))} |"


def _dead(results: Mapping[str, Sequence[Verdict]]) -> list[str]:
    return [label for label, verdicts in results.items() if not _Row.of(verdicts).changing]


def _missed(missed: Sequence[tuple[str, Verdict]]) -> list[str]:
    if not missed:
        return []
    return [
        "| model | level | class | where | change | first seen in |",
        "|---|---|---|---|---:|---|",
        *(
            f"| {label} | {v.mutant.isa} | {v.mutant.name} | {v.mutant.where} | {v.change:.2g} | `{v.tensor}`, call {v.call} |"
            for label, v in sorted(missed, key=lambda item: (item[0], -item[1].change))
        ),
    ]


def _alarms(results: Mapping[str, Sequence[Verdict]], kind: str) -> list[str]:
    return [label for label, verdicts in results.items() if any(v.caught for v in verdicts if v.mutant.kind == kind)]


def _perfect(verdicts: Sequence[Verdict]) -> bool:
    row = _Row.of(verdicts)
    passes = not any(v.caught for v in verdicts if v.mutant.name in ORIGINALS)
    return passes and row.caught == row.changing and row.noticed >= VALUES * row.values


def _passes(verdicts: Iterable[Verdict]) -> str:
    verdicts = list(verdicts)
    plain = [v for v in verdicts if v.mutant.kind == "none"]
    rounded = [v for v in verdicts if v.mutant.kind == "rounding"]
    good = "yes" if not any(v.caught for v in plain) else "**no**"
    return f"{good}, {sum(not v.caught for v in rounded)} of {len(rounded)}"


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
