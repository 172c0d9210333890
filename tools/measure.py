"""Measures a model on this machine, for its report: the time of each kernel, the machine's rates, and the numerics of its tests.

    bazel run //tools:measure -- //my:model_aot --out=my/model.measured.json [--seconds=2] [-- BUILD_FLAGS]

In your own repository, run `bazel run @rules_tfaot//tools:measure`. Name the file in the target's attribute `measured`, and build
NAME_report. Flags after the second `--` go to `bazel build`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tfaot.core import isolate
from tfaot.core.errors import TfaotError
from tfaot.explain import bazel
from tfaot.page import measured

_QUIET = ("--ui_event_filters=-info", "--noshow_progress", "--color=no", "--curses=no")


def cpu() -> str:
    """Returns the name of this machine's CPU."""
    try:
        match = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        match = None
    return match[1] if match else os.uname().machine


def built(command: Sequence[str], workspace: Path, target: str, flags: Sequence[str]) -> Path | None:
    """Builds a program and returns its path. None if there is no such target."""
    asked = subprocess.run([*command, "query", *_QUIET, target], cwd=workspace, check=False, capture_output=True)
    if asked.returncode:
        return None
    build = ["--compilation_mode=opt", *_QUIET, *flags, "--", target]
    done = subprocess.run([*command, "build", *build], cwd=workspace, check=False)
    if done.returncode:
        raise TfaotError(f"{target} doesn't build", do="see Bazel's message above")
    query = subprocess.run(
        [*command, "cquery", "--output=files", *build], cwd=workspace, check=True, capture_output=True, text=True
    )
    root = subprocess.run([*command, "info", *_QUIET, "execution_root"], cwd=workspace, check=True, capture_output=True)
    return Path(root.stdout.decode().strip()) / query.stdout.split()[0]


def run(command: Sequence[str], workspace: Path, target: str, flags: Sequence[str], *arguments: str) -> str:
    """Runs a target under Bazel, which passes the target's own arguments first. Returns what it prints."""
    line = [*command, "run", "--compilation_mode=opt", *_QUIET, *flags, target, "--", *arguments]
    done = subprocess.run(line, cwd=workspace, check=False, stdout=subprocess.PIPE, text=True)
    return done.stdout


def measure(target: str, workspace: Path, *, seconds: float, flags: Sequence[str]) -> measured.Measured:
    """Builds and runs a target's benchmark and tests.

    Raises:
      TfaotError: the target has no benchmark, or it doesn't run.
    """
    command = bazel.command(workspace)
    benchmark = f"{target}_benchmark"
    if built(command, workspace, benchmark, flags) is None:
        raise TfaotError(
            f"{target} has no benchmark",
            exists=f"no target {benchmark}",
            do="name a tf_aot_library without gen_benchmark = False",
        )
    with tempfile.TemporaryDirectory() as folder:
        once = re.findall(r"median ([0-9.]+) us", run(command, workspace, benchmark, flags, "--steps=5"))
        if not once:
            raise TfaotError(f"{benchmark} printed no times", do="run it alone to see why")
        steps = max(20, int(seconds * 1e6 / max(1.0, sum(map(float, once)))))
        print(f"measure: {steps:,} steps", file=sys.stderr)
        file = Path(folder) / "profile"
        run(command, workspace, benchmark, flags, f"--steps={steps}", f"--profile={file}")
        profiles = measured.profiles(file.read_text(encoding="utf-8"))
    tested: list[measured.Tested] = []
    for test in (f"{target}_test", f"{target}_taps_test"):
        if built(command, workspace, test, flags) is not None:
            tested += measured.tested(test, run(command, workspace, test, flags))
    peaks = Path(__file__).absolute().parent / "peaks" / "peaks"
    printed = subprocess.run([str(peaks)], check=True, capture_output=True, text=True).stdout
    return measured.Measured(
        target=target,
        fingerprint=fingerprint(command, workspace, target, flags),
        cpu=cpu(),
        date=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        peaks=json.loads(printed),
        profiles=profiles,
        tested=tuple(tested),
    )


def fingerprint(command: Sequence[str], workspace: Path, target: str, flags: Sequence[str]) -> str:
    """Returns the fingerprint of what was measured, which the report compares with its own."""
    build = ["--compilation_mode=opt", "--output_groups=manifest", *_QUIET, *flags, "--", target]
    subprocess.run([*command, "build", *build], cwd=workspace, check=True)
    done = subprocess.run(
        [*command, "cquery", "--output=files", *build], cwd=workspace, check=True, capture_output=True, text=True
    )
    root = subprocess.run([*command, "info", *_QUIET, "execution_root"], cwd=workspace, check=True, capture_output=True)
    for name in done.stdout.split():
        if name.endswith(".fingerprint.json"):
            path = Path(root.stdout.decode().strip()) / name
            return str(json.loads(path.read_text(encoding="utf-8"))["fingerprint"])
    return ""


def main() -> None:
    """Measures, and writes the file."""
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", help="label of a tf_aot_library")
    parser.add_argument("--out", required=True, help="the file to write")
    parser.add_argument("--seconds", type=float, default=2, help="how long to run, approximately (default: 2)")
    options = parser.parse_args(words[:at])
    target = options.target if ":" in options.target else f"{options.target}:{options.target.rpartition('/')[2]}"
    workspace = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."))
    measured = measure(target, workspace, seconds=options.seconds, flags=words[at + 1 :])
    path = Path(os.environ.get("BUILD_WORKING_DIRECTORY", ".")) / options.out
    path.write_text(measured.to_json(), encoding="utf-8")
    print(
        f"measure: wrote {options.out}: {len(measured.profiles)} profiles, {len(measured.tested)} tests",
        file=sys.stderr,
    )


if __name__ == "__main__":
    isolate.main(main)
