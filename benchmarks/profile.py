"""Where a model's time goes, by kernel: `perf` samples the driver while it runs."""

from __future__ import annotations

import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.catalog import Build

_SAMPLE = re.compile(r"^\s*([0-9a-f]+) (.+?)(?:\+0x[0-9a-f]+)? \(")


def shares(script: str) -> list[tuple[str, float]]:
    """Functions and their shares of all samples, largest first, of what `perf script -F ip,sym,dso` printed."""
    counts: collections.Counter[str] = collections.Counter()
    for line in script.splitlines():
        if match := _SAMPLE.match(line):
            counts[match[2]] += 1
    total = sum(counts.values())
    return [(name, count / total) for name, count in counts.most_common()]


def show(build: Build, name: str, cpu: int, *, seconds: float = 3.0) -> None:
    """Prints a table of functions: kernels have the names of their HLO fusions."""
    from benchmarks import catalog, harness
    from benchmarks.process import Failed, Process
    from benchmarks.summary import calls_for

    if not shutil.which("perf"):
        sys.exit("compare: --profile needs perf (the Debian package linux-perf)")
    build.models([name], [])
    peers, missing = build.peers(name, [])
    if not peers:
        sys.exit(f"compare: {name}: {missing[catalog.OURS]}")
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "perf.data")
        command = ["perf", "record", "--quiet", "--event", "cpu-clock", "--freq", "5000", "--output", data, "--"]
        try:
            with Process(peers[0].command, cpu=cpu, environment={}, folder=folder) as process:
                calls = calls_for(min(process.time(5, 1)), seconds * 1e9)
            with Process([*command, *peers[0].command], cpu=cpu, environment={}, folder=folder) as process:
                microseconds = process.time(1, calls)[0] / 1000
                process.finish()
        except Failed as error:
            sys.exit(f"compare: {name}: {error}")
        done = subprocess.run(
            ["perf", "script", "--input", data, "--fields", "ip,sym,dso"], capture_output=True, check=True, text=True
        )
    print(f"{catalog.MODELS[name].title}: {microseconds:.2f} us a call, {calls} calls sampled on core {cpu}")
    print(f"{'share':>7} {'us a call':>10}  function")
    for function, share in shares(done.stdout)[:40]:
        print(f"{share:7.1%} {share * microseconds:10.2f}  {function}")
    harness.say("a kernel's fusion is in the optimized HLO: the library's output group optimized_hlo")
