"""Shows where a compiled model spends its time, by kernel: `perf` samples its benchmark while it runs."""

from __future__ import annotations

import collections
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence

_SAMPLE = re.compile(r"^\s*[0-9a-f]+ (.+?)(?:\+0x[0-9a-f]+)? \(")
_KERNEL = re.compile(r"^tfcompile_xla_generated_.*?tfaot_internal__")
"""The prefix that tfcompile adds to the names of its kernels."""
_TIMED = re.compile(r"^(.+), \S+: \d+ steps, min [0-9.]+ us, median ([0-9.]+) us", re.MULTILINE)
"""A line that runtime/tfaot/benchmark.h prints."""


def shares(script: str) -> list[tuple[str, float]]:
    """Returns functions and their shares of all samples, largest first, from `perf script -F ip,sym,dso` output."""
    counts: collections.Counter[str] = collections.Counter()
    for line in script.splitlines():
        if match := _SAMPLE.match(line):
            counts[_KERNEL.sub("", match[1])] += 1
    total = sum(counts.values())
    return [(name, count / total) for name, count in counts.most_common()]


def near_misses(passes: Iterable[str]) -> dict[str, list[str]]:
    """Returns why passes left something as it is, by the name that the table has for it.

    Args:
      passes: texts of `NAME.passes.json`.
    """
    reasons: dict[str, list[str]] = {}
    for text in passes:
        for miss in json.loads(text)["missed"]:
            origin = f" ({miss['origin']})" if miss["origin"] else ""
            reasons.setdefault(_KERNEL.sub("", miss["what"]), []).append(f"{miss['pass']}: {miss['reason']}{origin}")
    return reasons


def table(script: str, microseconds: float, missed: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns lines of a table: a function's share, its microseconds per step, its name, and near misses. Omits the smallest."""
    lines = [f"{'share':>7} {'us/step':>10}  function"]
    for function, share in shares(script):
        if share >= 0.001:
            lines.append(f"{share:7.1%} {share * microseconds:10.2f}  {function}")
            lines += [f"{'':20}left by {reason}" for reason in missed.get(function, ())]
    return lines


def medians(printed: str) -> dict[str, float]:
    """Returns the microseconds per step that a benchmark printed, by class or entry point."""
    return {match[1]: float(match[2]) for match in _TIMED.finditer(printed)}


def measure(
    run: Callable[[Sequence[str], int], str], *, seconds: float, cpu: int | None, passes: Callable[[], Iterable[str]]
) -> list[str]:
    """Runs a benchmark once to measure a step, samples it, and returns the lines of a report.

    Args:
      run: runs the benchmark, for a number of steps, under the command that it gets, and returns its output.
      seconds: how long to sample, approximately.
      cpu: the core to run on; None for the last one.
      passes: returns the texts of the `NAME.passes.json` of what was run.
    """
    pin = ["taskset", "-c", str(max(os.sched_getaffinity(0)) if cpu is None else cpu)]
    once = sum(medians(run(pin, 10)).values())
    steps = max(10, int(seconds * 1e6 / max(once, 0.01) / 1.1))
    print(f"profile: sampling {steps:,} steps of about {once:.2f} us", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "perf.data")
        perf = ["perf", "record", "--quiet", "--event=cpu-clock", "--freq=5000", f"--output={data}"]
        times = medians(run([*pin, *perf], steps))
        done = subprocess.run(
            ["perf", "script", "--input", data, "--fields", "ip,sym,dso"], capture_output=True, check=True, text=True
        )
    lines = [f"{what}: {microseconds:.2f} us, the median of {steps:,} steps" for what, microseconds in times.items()]
    return lines + table(done.stdout, sum(times.values()), near_misses(passes()))
