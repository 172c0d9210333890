"""Measures the generated test: breaks compiled programs of all examples, and counts what their tests catch.

`python3 tests/mutants/mutate.py [--count 1000] [--page docs/measured/mutants.md] [//examples/fc:fc_aot …]`

It builds the examples' stages with Bazel, adds a switch for every fault to each program, compiles each once, and runs each mutant
in its own process. The generated test isn't modified: only its exit status counts. Whether a mutant changes a result is decided
without it. docs/measured/mutants.md says how.
"""

from __future__ import annotations

import argparse
import collections
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).absolute().parents[2] / "py"))

import report
from model import ROOT, Failed, Model, Toolchain, Verdict
from program import Mutant

_STAGES = ("export", "compile", "render", "verify")
_ROUNDINGS = 3


def main() -> None:
    """Parses the flags, and prints a line per model. Exits with 1 if the aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="how many mutants; 0 for all that there are")
    parser.add_argument("--seed", type=int, default=11, help="chooses among the mutants")
    parser.add_argument("--page", type=Path, help="a page to write")
    parser.add_argument("--jobs", type=int, default=2, help="of Bazel")
    parser.add_argument("--folder", type=Path, help="for what is compiled; emptied, and kept")
    parser.add_argument("targets", nargs="*", help="labels of tf_aot_library; all examples by default")
    flags = parser.parse_args()
    labels = flags.targets or _examples()
    generated = _built(labels, flags.jobs)
    with tempfile.TemporaryDirectory() as folder:
        results, possible = run(labels, generated, flags.folder or Path(folder), flags.count, flags.seed)
    summary = report.summary(results)
    print(summary.text)
    if flags.page:
        flags.page.parent.mkdir(parents=True, exist_ok=True)
        flags.page.write_text(report.page(results, possible), encoding="utf-8")
    sys.exit(0 if summary.reached else 1)


def run(
    labels: Sequence[str], generated: Path, folder: Path, count: int, seed: int
) -> tuple[dict[str, list[Verdict]], int]:
    """Breaks models whose stages are built.

    Args:
      labels: the models' labels.
      generated: the folder with the stages' outputs, by package.
      folder: a folder for compiled code.
      count: the number of mutants, 0 for all.
      seed: selects among them.

    Returns:
      The verdicts by label, the original's first, and the number of possible mutants.
    """
    toolchain = Toolchain(folder)
    models = [Model(generated / label.removeprefix("//").replace(":", "/"), generated, toolchain) for label in labels]
    drivers = [model.build() for model in models]
    chosen = choose({model.label: model.mutants for model in models}, count, seed)
    results: dict[str, list[Verdict]] = {}
    for model, driver in zip(models, drivers, strict=True):
        begin = time.monotonic()
        results[model.label] = model.run(driver, [*originals(model), *chosen[model.label]])
        _say(model.label, results[model.label], time.monotonic() - begin)
    return results, sum(len(model.mutants) for model in models)


def originals(model: Model) -> list[Mutant]:
    """Returns the program as it is, and with different rounding. The test must pass both."""
    return [
        mutant
        for isa in model.isas
        for mutant in (
            Mutant("unmutated", "", isa, "none", -1),
            *(Mutant("rounding", f"seed {seed}", isa, "rounding", -1, value=seed + 7) for seed in range(_ROUNDINGS)),
        )
    ]


def choose(mutants: Mapping[str, Sequence[Mutant]], count: int, seed: int) -> dict[str, list[Mutant]]:
    """Selects mutants, alternating models and, within each, classes of faults. Depends only on the seed."""
    if not count:
        return {label: list(sites) for label, sites in mutants.items()}
    rng = random.Random(seed)
    queues: dict[str, dict[str, list[Mutant]]] = {}
    for label, sites in mutants.items():
        by_name: dict[str, list[Mutant]] = collections.defaultdict(list)
        for mutant in rng.sample(list(sites), len(sites)):
            by_name[mutant.name].append(mutant)
        queues[label] = dict(sorted(by_name.items()))
    chosen: dict[str, list[Mutant]] = {label: [] for label in mutants}
    left = min(count, sum(map(len, mutants.values())))
    while left:
        for label, by_name in queues.items():
            if not by_name or not left:
                continue
            name = next(iter(by_name))
            queue = by_name.pop(name)
            chosen[label].append(queue.pop())
            left -= 1
            if queue:
                by_name[name] = queue  # moves to the end
    return chosen


def _examples() -> list[str]:
    # Those with a generated test. Clusters have other files, and no test of one class. A replica doesn't run alone; those of
    # tests/models/distributed have mutants of their own.
    tests = "//examples/... - //examples/distributed/..."
    query = ["./bazelw", "query", f'filter("_aot_test$", kind("cc_test rule", {tests}))', "--output=label"]
    labels = subprocess.run(query, capture_output=True, check=True, cwd=ROOT, text=True).stdout.split()
    return [label.removesuffix("_test") for label in labels]


def _built(labels: Sequence[str], jobs: int) -> Path:
    """Builds the stages. Returns their output folder."""
    stages = [f"{label}.{stage}" for label in labels for stage in _STAGES]
    command = ["./bazelw", "build", f"--jobs={jobs}", *stages]
    subprocess.run(command, check=True, cwd=ROOT)
    output = subprocess.run(
        ["./bazelw", "info", "bazel-bin"], capture_output=True, check=True, cwd=ROOT, text=True
    ).stdout.strip()
    return Path(output)


def _say(label: str, verdicts: Sequence[Verdict], seconds: float) -> None:
    faults = [verdict for verdict in verdicts if verdict.mutant.name not in report.ORIGINALS]
    missed = sum(verdict.survives for verdict in faults)
    changing = sum(verdict.changes for verdict in faults)
    alarms = sum(verdict.caught for verdict in verdicts if verdict.mutant.kind == "none")
    print(
        f"{label}: {len(faults)} mutants, {changing} change a result, {missed} of these survive, "
        f"{alarms} false alarms; {seconds:.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    try:
        main()
    except Failed as failed:
        sys.exit(f"error: {failed}")
