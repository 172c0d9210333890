"""Times a model with an open size beside TensorFlow, for several lengths, on one core, and prints a table.

    ./bazelw run -c opt //benchmarks:lengths

Each time is the shortest of rounds in which the two alternate.
"""

from __future__ import annotations

import os
import pathlib
import re
import runpy
import subprocess
import time
from typing import Any

ROOT = pathlib.Path(__file__).absolute().parents[1]
ROUNDS, CALLS = 6, 5


def tensorflow(encoder: Any, length: int) -> float:
    """Returns the microseconds of a call of TensorFlow, with one thread."""
    import tensorflow as tf

    tokens, mask = tf.range(length)[None] % 100, tf.ones((1, length))
    encoder(tokens, mask)
    best = float("inf")
    for _ in range(50):  # short rounds, as the program's, between which others can use the core
        start = time.perf_counter()
        for _ in range(CALLS):
            encoder(tokens, mask)
        best = min(best, time.perf_counter() - start)
    return best / CALLS * 1e6


def main() -> None:
    """Prints the table."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    encoder = runpy.run_path(str(ROOT / "examples/lengths/model.py"))["model"]()
    ours, theirs = dict[int, float](), dict[int, float]()
    for _ in range(ROUNDS):
        printed = subprocess.run([ROOT / "examples/lengths/cost"], capture_output=True, check=True, text=True).stdout
        for length, took in re.findall(r"(\d+) tokens: +([\d.]+) us", printed):
            ours[int(length)] = min(ours.get(int(length), 1e9), float(took))
        for length in ours:
            theirs[length] = min(theirs.get(length, 1e9), tensorflow(encoder, length))
    print("| length | compiled, µs | TensorFlow, µs |\n|---|---|---|")
    for length, took in ours.items():
        print(f"| {length} | {took:.0f} | {theirs[length]:.0f} |")


if __name__ == "__main__":
    main()
