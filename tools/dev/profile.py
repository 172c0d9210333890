"""Shows where a model spends its time, by kernel: `perf` samples the benchmark of a `tf_aot_library` while it runs.

    ./bazelw run //tools/dev:profile -- //examples/fc:fc_aot [--seconds 3] [--cpu 1] [-- --config=…]

In your own repository, run `bazel run @rules_tfaot//tools/dev:profile -- //your:target`. Flags after the second `--` go to Bazel.
You need perf (Debian's package linux-perf, or your distribution's linux-tools).
"""

from __future__ import annotations

import argparse
import collections
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

_SAMPLE = re.compile(r"^\s*[0-9a-f]+ (.+?)(?:\+0x[0-9a-f]+)? \(")
_KERNEL = re.compile(r"^tfcompile_xla_generated_.*?tfaot_internal__")
"""The prefix that tfcompile adds to the names of its kernels."""
_TIMED = re.compile(r"^(\S+), \S+: \d+ steps, min [0-9.]+ us, median ([0-9.]+) us", re.MULTILINE)
"""A line that runtime/tfaot/benchmark.h prints."""


def shares(script: str) -> list[tuple[str, float]]:
    """Returns functions and their shares of all samples, largest first, from `perf script -F ip,sym,dso` output."""
    counts: collections.Counter[str] = collections.Counter()
    for line in script.splitlines():
        if match := _SAMPLE.match(line):
            counts[_KERNEL.sub("", match[1])] += 1
    total = sum(counts.values())
    return [(name, count / total) for name, count in counts.most_common()]


def table(script: str, microseconds: float) -> list[str]:
    """Returns lines of a table: a function's share, its microseconds per step, and its name. Omits the smallest."""
    return [f"{'share':>7} {'us/step':>10}  function"] + [
        f"{share:7.1%} {share * microseconds:10.2f}  {function}" for function, share in shares(script) if share >= 0.001
    ]


def medians(printed: str) -> dict[str, float]:
    """Returns the microseconds per step that a benchmark printed, by class or entry point."""
    return {match[1]: float(match[2]) for match in _TIMED.finditer(printed)}


def bazel() -> list[str]:
    """Returns the Bazel of the workspace: its `bazelw`, $BAZEL, or the one on PATH."""
    for found in (shutil.which("./bazelw"), os.environ.get("BAZEL"), shutil.which("bazel"), shutil.which("bazelisk")):
        if found:
            return [found]
    sys.exit("profile: no Bazel: there is no ./bazelw, $BAZEL, or bazel on PATH")


def run(target: str, *, under: Sequence[str], steps: int, flags: Sequence[str]) -> str:
    """Runs a target's benchmark under a command, and returns its output."""
    command = [*bazel(), "run", "--compilation_mode=opt", "--ui_event_filters=-info", "--noshow_progress", *flags]
    command += [f"--run_under={shlex.join(under)}", target + "_benchmark", "--", f"--steps={steps}"]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(
            f"profile: {target}_benchmark doesn't build or run: name a tf_aot_library without gen_benchmark = False"
        )
    if not medians(done.stdout):
        sys.exit(f"profile: {target}_benchmark printed no times:\n{done.stdout}")
    return done.stdout


def main() -> None:
    """Builds the benchmark, runs it once to measure a step, samples it, and prints the table."""
    words = sys.argv[1:]
    flags = words[words.index("--") + 1 :] if "--" in words else []
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", help="label of a tf_aot_library")
    parser.add_argument("--seconds", type=float, default=3, help="how long to sample, approximately (default: 3)")
    parser.add_argument("--cpu", type=int, help="the core to run on (default: the last one)")
    given = parser.parse_args(words[: words.index("--")] if "--" in words else words)
    if not shutil.which("perf"):
        sys.exit("profile: perf isn't on PATH: install linux-perf (Debian) or your distribution's linux-tools")
    os.chdir(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."))
    target = given.target if ":" in given.target else f"{given.target}:{given.target.rpartition('/')[2]}"
    pin = ["taskset", "-c", str(max(os.sched_getaffinity(0)) if given.cpu is None else given.cpu)]
    print(f"profile: building and timing {target}", file=sys.stderr)
    once = sum(medians(run(target, under=pin, steps=10, flags=flags)).values())
    steps = max(10, int(given.seconds * 1e6 / max(once, 0.01) / 1.1))
    print(f"profile: sampling {steps:,} steps of about {once:.2f} us", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "perf.data")
        perf = ["perf", "record", "--quiet", "--event=cpu-clock", "--freq=5000", f"--output={data}"]
        times = medians(run(target, under=[*pin, *perf], steps=steps, flags=flags))
        done = subprocess.run(
            ["perf", "script", "--input", data, "--fields", "ip,sym,dso"], capture_output=True, check=True, text=True
        )
    for what, microseconds in times.items():
        print(f"{what}: {microseconds:.2f} us, the median of {steps:,} steps")
    print(*table(done.stdout, sum(times.values())), sep="\n")
    print(
        "profile: to see a fusion's ops, read the optimized HLO in the library's output group optimized_hlo",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
