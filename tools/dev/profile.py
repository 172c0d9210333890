"""Shows where a model spends its time, by kernel: `perf` samples the benchmark of a `tf_aot_library` while it runs.

Below a kernel of XLA's, the table has the passes that almost replaced it, and why they didn't.

    ./bazelw run //tools/dev:profile -- //examples/fc:fc_aot [--seconds 3] [--cpu 1] [-- --config=…]

In your own repository, run `bazel run @rules_tfaot//tools/dev:profile -- //your:target`. Flags after the second `--` go to Bazel.
You need perf (Debian's package linux-perf, or your distribution's linux-tools).
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tfaot import profile


def bazel() -> list[str]:
    """Returns the Bazel of the workspace: its `bazelw`, $BAZEL, or the one on PATH."""
    for program in (shutil.which("./bazelw"), os.environ.get("BAZEL"), shutil.which("bazel"), shutil.which("bazelisk")):
        if program:
            return [program]
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
    if not profile.medians(done.stdout):
        sys.exit(f"profile: {target}_benchmark printed no times:\n{done.stdout}")
    return done.stdout


def passes(target: str, *, flags: Sequence[str]) -> list[str]:
    """Returns the texts of a target's files `NAME.passes.json`."""
    options = [
        "--output_groups=manifest",
        "--compilation_mode=opt",
        "--noshow_progress",
        "--ui_event_filters=-info",
        *flags,
    ]
    files = subprocess.run(
        [*bazel(), "cquery", "--output=files", *options, target], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.split()
    return [Path(file).read_text(encoding="utf-8") for file in files if file.endswith(".passes.json")]


def main() -> None:
    """Builds the benchmark, runs it once to measure a step, samples it, and prints the table."""
    words = sys.argv[1:]
    flags = words[words.index("--") + 1 :] if "--" in words else []
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", help="label of a tf_aot_library")
    parser.add_argument("--seconds", type=float, default=3, help="how long to sample, approximately (default: 3)")
    parser.add_argument("--cpu", type=int, help="the core to run on (default: the last one)")
    options = parser.parse_args(words[: words.index("--")] if "--" in words else words)
    if not shutil.which("perf"):
        sys.exit("profile: perf isn't on PATH: install linux-perf (Debian) or your distribution's linux-tools")
    os.chdir(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."))
    target = options.target if ":" in options.target else f"{options.target}:{options.target.rpartition('/')[2]}"
    print(f"profile: building and timing {target}", file=sys.stderr)
    lines = profile.measure(
        lambda under, steps: run(target, under=under, steps=steps, flags=flags),
        seconds=options.seconds,
        cpu=options.cpu,
        passes=lambda: passes(target, flags=flags),
    )
    print(*lines, sep="\n")
    print(
        "profile: to see a fusion's ops, read the optimized HLO in the library's output group optimized_hlo",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
