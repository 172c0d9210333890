"""Measures compiled models at the CPU levels of their default, one level beside the other, and prints a table.

    python3 benchmarks/levels.py [--models fc_b64 …] [--rounds 5]

Each level has its own process of the same program, which `TFAOT_ISA` tells what to run. The processes run on one core, in
interleaved rounds. The table goes into docs/guide/cpu_levels.md.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks import catalog, harness, summary
from benchmarks.pages import number, table

LEVELS = ("x86-64-v3", "x86-64-v4")


def page(results: Sequence[harness.Result]) -> str:
    """Returns the measurements as Markdown: how much less time the higher level takes than the lower one.

    Args:
      results: one for each model, with peers named by their levels.

    Raises:
      ValueError: a level didn't run, or its outputs differ from the lower one's beyond rounding.
    """
    rows = []
    ratios = []
    for result in results:
        if result.missing:
            raise ValueError(f"{result.model}: " + "; ".join(f"{name}: {why}" for name, why in result.missing.items()))
        low, high = (result.measured[level] for level in LEVELS)
        ratio = summary.best_ratio(high.rounds, {LEVELS[0]: low.rounds})
        assert ratio
        ratios.append(ratio.value)
        times = [number(level.times.minimum) for level in (low, high)]
        title = catalog.MODELS[result.model].title
        rows.append([title, *times, f"**{ratio.value:.2f}**", f"{ratio.low:.2f} to {ratio.high:.2f}"])
    heads = ["model", *(f"{level}, µs" for level in LEVELS), "ratio", "by round"]
    mean = f"Geometric mean: {statistics.geometric_mean(ratios):.2f}. Smallest: {min(ratios):.2f}."
    return "\n".join([*table(heads, rows), mean])


def main() -> None:
    """Builds, measures, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--models",
        nargs="*",
        choices=[*catalog.MODELS],
        metavar="MODEL",
        default=[*catalog.MODELS],
        help="default: all",
    )
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--batches", type=int, default=4, help="batches a round (default: 4)")
    parser.add_argument("--batch_ms", type=float, default=5, help="length of a batch, at least one call (default: 5)")
    flags = parser.parse_args()
    build = catalog.Build((), ())
    build.models(flags.models, ())
    plan = harness.Plan(
        rounds=flags.rounds,
        batches=flags.batches,
        batch_nanoseconds=flags.batch_ms * 1e6,
        cold_starts=1,
        cpus=harness.last_cpus(),
    )
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name in flags.models:
            entry = catalog.MODELS[name]
            library = str(build.output(f"{entry.package}/{entry.library}"))
            inputs = catalog.write_inputs(library, f"{folder}/{name}")
            driver = str(build.output(f"benchmarks/{catalog.program(name, harness.OURS)}"))
            command = (driver, *(str(tensor["path"]) for tensor in inputs))
            peers = [harness.Peer(level, command, {"TFAOT_ISA": level}) for level in LEVELS]
            results.append(
                harness.compare(name, peers, training=entry.training, reference=LEVELS[0], plan=plan, missing={})
            )
    try:
        print(page(results))
    except ValueError as error:
        sys.exit(f"levels: {error}")


if __name__ == "__main__":
    main()
