"""Measures the speedup of compiled models on several threads, and writes a table.

    python3 benchmarks/threads.py [--models fc_b64 …] [--threads 1 2 4 …] [--rounds 10] [--page docs/guide/threads.md]

or `./bazelw run //benchmarks:threads -- …`. Each number of threads has its own process, which can use any core. The processes
run in interleaved rounds. Their outputs must be bit-identical.
"""

from __future__ import annotations

import argparse
import datetime
import os
import pathlib
import shlex
import sys
import tempfile
from collections.abc import Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks import catalog, compare, harness, summary
from benchmarks.pages import number, put, table


def counts_up_to(cores: int) -> list[int]:
    """Returns 1, 2, 4, and so on, and the number of cores."""
    counts = [1]
    while counts[-1] * 2 <= cores:
        counts.append(counts[-1] * 2)
    return counts + ([cores] if counts[-1] != cores else [])


def peers(driver: str, inputs: Sequence[str], counts: Sequence[int]) -> list[harness.Peer]:
    """Returns the driver on one thread, without a pool, and on more threads."""
    return [
        harness.Peer(str(count), (driver, *([f"--threads={count}"] if count > 1 else []), *inputs)) for count in counts
    ]


def speedups(result: harness.Result) -> dict[int, summary.Ratio]:
    """Returns, by number of threads, the time on one thread divided by the time on that many.

    Raises:
      ValueError: outputs differ, or some peers didn't run.
    """
    if result.missing:
        raise ValueError(f"{result.model}: " + "; ".join(f"{n} threads: {why}" for n, why in result.missing.items()))
    differing = [count for count, measured in result.measured.items() if measured.difference.largest != 0]
    if differing:
        raise ValueError(f"{result.model}: outputs on {', '.join(differing)} threads are not those on one, bit by bit")
    one = result.measured["1"].rounds
    ratios = {
        int(count): summary.best_ratio(measured.rounds, {"1": one}) for count, measured in result.measured.items()
    }
    return {count: ratio for count, ratio in ratios.items() if ratio is not None}


def page(results: Sequence[harness.Result], words: str) -> str:
    """Returns the measurements as Markdown.

    Args:
      results: one for each model, with peers named by their numbers of threads.
      words: a paragraph about how, where, and when this was measured.
    """
    counts = [*results[0].measured]
    rows = []
    for result in results:
        ratios = speedups(result)
        cells = [number(result.measured["1"].times.minimum)]
        for count in counts[1:]:
            ratio = ratios[int(count)]
            minimum = number(result.measured[count].times.minimum)
            cells.append(f"{minimum}: **{ratio.value:.2f}** ({ratio.low:.2f} to {ratio.high:.2f})")
        rows.append([catalog.MODELS[result.model].title, *cells])
    heads = ["model", "1 thread, µs", *(f"{count} threads, µs: speed-up (by round)" for count in counts[1:])]
    return "\n".join([words, "", *table(heads, rows)])


def main() -> None:
    """Builds, measures, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--models",
        nargs="*",
        choices=[*catalog.MODELS],
        metavar="MODEL",
        default=["fc_b64", "conv_train", "mobilenet_v2", "resnet18"],
    )
    parser.add_argument("--threads", nargs="*", type=int, help="counts (default: 1, 2, 4, … to this machine's cores)")
    parser.add_argument("--rounds", type=int, default=10, help="interleaved rounds (default: 10)")
    parser.add_argument("--batches", type=int, default=10, help="batches a round (default: 10)")
    parser.add_argument("--batch_ms", type=float, default=5, help="length of a batch, at least one call (default: 5)")
    parser.add_argument("--bazel_flags", default="", help="flags of the build, as a shell would split them")
    parser.add_argument("--startup_flags", default="", help="Bazel's startup flags")
    parser.add_argument("--note", default="", help="a sentence for the page: what else ran on the machine")
    parser.add_argument("--page", type=pathlib.Path, help="put the table into this page")
    flags = parser.parse_args()
    counts = sorted({1, *(flags.threads or counts_up_to(len(os.sched_getaffinity(0))))})
    build = catalog.Build(shlex.split(flags.startup_flags), shlex.split(flags.bazel_flags))
    build.threads(flags.models)
    plan = harness.Plan(
        rounds=flags.rounds, batches=flags.batches, batch_nanoseconds=flags.batch_ms * 1e6, cold_starts=1, cpus=None
    )
    on = compare.machine(None)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name in flags.models:
            entry = catalog.MODELS[name]
            library = str(build.output(f"{entry.package}/{entry.library}"))
            inputs = catalog.write_inputs(library, f"{folder}/{name}")
            driver = str(build.output(f"benchmarks/{name}_threads_driver"))
            drivers = peers(driver, [str(tensor["path"]) for tensor in inputs], counts)
            results.append(
                harness.compare(name, drivers, training=entry.training, reference="1", plan=plan, missing={})
            )
    asked = ["--models", *flags.models, "--threads", *map(str, counts), "--rounds", str(flags.rounds)]
    asked += ["--batches", str(flags.batches), "--batch_ms", f"{flags.batch_ms:g}"]
    words = (
        f"    python3 benchmarks/threads.py {shlex.join(asked)}\n\n"
        f"{on['cpu']}, {on['cores']} cores; {on['compiler']}; {datetime.date.today().isoformat()}. {flags.rounds} interleaved "
        f"rounds. The table has the smallest batch of each, the ratio of these, and the smallest and largest ratio of one round. "
        f"Outputs are the same, bit by bit. Load average before and after: {on['load_before']}, {os.getloadavg()[0]:.2f}. "
        f"{flags.note}"
    ).rstrip()
    try:
        text = page(results, words)
        print(text)
        if flags.page:
            put(catalog.ROOT / flags.page, "benchmarks/threads.py", text)
    except ValueError as error:
        sys.exit(f"threads: {error}")


if __name__ == "__main__":
    main()
