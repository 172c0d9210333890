"""Runs the compile stage repeatedly on a busy machine, and counts the runs that hang.

`./bazelw run //tests/stress -- --runs 1000` prints the figures of docs/internals/forking.md. TensorFlow is imported once. Each run
is a child that applies the passes and compiles, like the stage's main. A run that uses no CPU time for `--idle` seconds counts as
a hang: its stacks are printed, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import resource
import subprocess
import sys
import time

from tests.stages.harness import StageTest
from tfaot.core import isolate
from tfaot.core.errors import TfaotError

MODEL = """\
import tensorflow as tf

kernel = tf.Variable(tf.ones([16, 4]))


def model(x):
    return tf.nn.softmax(x @ kernel)
"""


class Stress(StageTest):
    """The stages as functions; see `StageTest`."""

    def run_stage(self, runs: int, idle: float) -> int:
        """Compiles one model many times. Returns how many runs hung."""
        exported = self.export(MODEL, signature={"x": "float32[32, 16]"})
        hangs = 0
        for run in range(runs):
            with contextlib.redirect_stderr(io.StringIO()) as warned:
                try:
                    isolate.run_isolated(lambda: self.compile(exported), what=f"run {run}", idle_seconds=idle)
                except TfaotError as error:
                    hangs += 1
                    sys.stdout.write(f"{error}\n")
            if text := warned.getvalue():
                hangs += 1
                sys.stdout.write(text)
            if (run + 1) % 100 == 0:
                print(f"{run + 1} runs, {hangs} hangs", flush=True)
        return hangs


def main() -> int:
    """Prints the figures, and returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--idle", type=float, default=30.0, help="seconds without CPU time that make a hang")
    parser.add_argument("--load", type=int, default=os.cpu_count() or 1, help="processes that keep the machine busy")
    flags = parser.parse_args()
    Stress.setUpClass()
    stress = Stress()
    stress.setUp()
    load = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(flags.load)]
    begin = time.monotonic()
    try:
        hangs = stress.run_stage(flags.runs, flags.idle)
    finally:
        for process in load:
            process.kill()
        stress.doCleanups()
    seconds = time.monotonic() - begin
    for process in load:
        process.wait()
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    print("| runs | hangs | time | per run | peak memory |\n|---|---|---|---|---|")
    print(f"| {flags.runs:,} | {hangs} | {seconds:,.0f} s | {seconds / flags.runs:.2f} s | {peak:,} MB |")
    return 1 if hangs else 0


if __name__ == "__main__":
    sys.exit(main())
