"""Writes docs/measured/numerics.md from the logs of the examples' tests.

./bazelw test --config=full //examples/... //examples/architectures:all_sizes && python3 -m tests.verify.report
"""

from __future__ import annotations

import argparse
import pathlib
import platform
import re

from benchmarks import pages
from tests.stages.logs import Row, rows

ROOT = pathlib.Path(__file__).parents[2]
COMMAND = (
    "./bazelw test --config=full //examples/... //examples/architectures:all_sizes && python3 -m tests.verify.report"
)


_LARGE = 0.5
"""The page names targets with errors of this share of a tolerance."""


def line(name: str, comparisons: list[Row], checked: str) -> str:
    """Returns a target's line in the table, or nothing if there is nothing to say of it."""
    free = [row for row in comparisons if "(free run)" in row.name]
    calls = [row for row in comparisons if row not in free]
    largest = max(row.share for row in calls)
    if largest < _LARGE and checked == "100 %" and not any(row.verdict for row in comparisons):
        return ""
    blind = sum(row.verdict == "BLIND" for row in calls)
    failed = sum(row.verdict == "FAILED" for row in comparisons)
    return f"| `{name}` | {len(comparisons)} | {failed} | {blind} | {largest:.0%} | {checked} |"


def values(log: pathlib.Path) -> tuple[int, int]:
    """Returns how many of the values that a test compares are checked, and how many there are."""
    checked, count = re.findall(r"; (\d+) of (\d+) values are checked", log.read_text(encoding="utf-8"))[0]
    return int(checked), int(count)


def shown(checked: int, count: int) -> str:
    """Returns a share of values. Only all values are 100 %."""
    return "100 %" if checked == count else f"{min(100 * checked / count, 99.99):.2f} %"


def cpu() -> str:
    """Returns the CPU's name and its highest level."""
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    name = next(line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name"))
    return f"{name} ({'AVX-512' if ' avx512vl ' in text else 'AVX2' if ' avx2 ' in text else 'no AVX2'})"


def main() -> None:
    """Writes the page."""
    raw = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(description=__doc__, formatter_class=raw).parse_args()
    logs = ROOT / "bazel-testlogs" / "examples"
    tests = {
        f"//examples/{log.parent.parent.relative_to(logs)}:{log.parent.name.removesuffix('_test')}": log
        for log in sorted(logs.rglob("*_aot_test/test.log"))
        if (ROOT / "examples" / log.parent.parent.relative_to(logs) / "BUILD").exists()  # Bazel keeps old logs.
    }
    comparisons = {name: rows(log) for name, log in tests.items()}
    counts = {name: values(log) for name, log in tests.items()}
    total = [sum(numbers) for numbers in zip(*counts.values(), strict=True)]
    every = [row for target in comparisons.values() for row in target]
    named = [line(name, target, shown(*counts[name])) for name, target in comparisons.items()]
    lines = [
        "# Measured numerics",
        "",
        "What the generated test of every example measures, value by value, against TensorFlow.",
        "[How the generated test compares numbers](../internals/numerics.md) explains the tolerances.",
        "",
        f"Made by `{COMMAND}` on {platform.machine()}, {cpu()}.",
        "",
        f"{len(every):,} comparisons of {len(comparisons)} targets: {sum(row.verdict == 'FAILED' for row in every)} failed, "
        f"{sum(row.verdict == 'BLIND' and '(free run)' not in row.name for row in every)} blind. "
        f"{shown(*total)} of {total[1]:,.0f} values are checked, and of each target at least "
        f"{shown(*min(counts.values(), key=lambda pair: pair[0] / pair[1]))}. The largest error is "
        f"{max(row.share for row in every):.0%} of its tolerance.",
        "",
        "*Of tolerance* is the largest error of any value, as a share of that value's own tolerance; more than 100 % fails.",
        "*Checked* is the share of the values for which a wrong one would fail. Targets with 100 % checked, and less than half of",
        "a tolerance, aren't listed.",
        "",
        "| target | comparisons | failed | blind | of tolerance | checked |",
        "|---|---|---|---|---|---|",
        *filter(None, named),
        "",
    ]
    pages.put(ROOT / "docs" / "measured" / "numerics.md", "tests/verify/report.py", "\n".join(lines))


if __name__ == "__main__":
    main()
