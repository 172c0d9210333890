"""Compares programs that JAX exports as StableHLO with JAX itself, and writes a table.

    python3 benchmarks/stablehlo.py [--rounds 10] [--page docs/guide/stablehlo.md]

or `./bazelw run //benchmarks:stablehlo -- …`. The programs are those of tests/models/stablehlo. Ours is the class that is
compiled from the StableHLO, and JAX runs the function that it was exported from, under `jax.jit`. Both run on one core, in
interleaved rounds, and only if their outputs agree.
"""

from __future__ import annotations

import argparse
import array
import datetime
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks import catalog, compare, environments, harness, summary
from benchmarks.pages import number, put, table

PACKAGE = "tests/models/stablehlo"
PROGRAMS = {
    "classifier": "convolutional network, as LeNet, batch 4",
    "training_step": "a step of Adam, two layers, batch 16",
    "decoder": "a recurrent decoder in bfloat16: loop, sort, top-k, random numbers",
}


def without_signs(path: str, dtype: str) -> None:
    """Makes the floats in a file positive: Adam takes roots of its state, which an optimizer would never make negative."""
    codes = {"float32": ("I", 0x7FFFFFFF), "bfloat16": ("H", 0x7FFF)}
    if dtype in codes:
        code, mask = codes[dtype]
        file = pathlib.Path(path)
        file.write_bytes(array.array(code, (bits & mask for bits in array.array(code, file.read_bytes()))).tobytes())


def page(results: Sequence[harness.Result], words: str) -> str:
    """Returns the measurements as Markdown, and for what wasn't measured, the reason."""
    rows = []
    for result in results:
        title = PROGRAMS[result.model]
        if result.missing:
            rows.append([title, "; ".join(f"{name}: {why}" for name, why in result.missing.items()), "", "", ""])
            continue
        ours, jax = result.measured["ours"], result.measured["jax"]
        ratio = summary.best_ratio(ours.rounds, {"jax": jax.rounds})
        assert ratio is not None
        rows.append(
            [
                title,
                number(ours.times.minimum),
                number(jax.times.minimum),
                f"**{ratio.value:.2f}** ({ratio.low:.2f} to {ratio.high:.2f})",
                f"{ours.difference.largest:.1g}",
            ]
        )
    heads = ["program", "ours, µs", "`jax.jit`, µs", "JAX's time divided by ours (by round)", "largest difference"]
    return "\n".join([words, "", *table(heads, rows)])


def main() -> None:
    """Builds, measures, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="interleaved rounds (default: 10)")
    parser.add_argument("--batches", type=int, default=5, help="batches a round (default: 5)")
    parser.add_argument("--bazel_flags", default="", help="flags of the build, as a shell would split them")
    parser.add_argument("--startup_flags", default="", help="Bazel's startup flags")
    parser.add_argument("--note", default="", help="a sentence for the page: what else ran on the machine")
    parser.add_argument("--page", type=pathlib.Path, help="put the table into this page")
    flags = parser.parse_args()
    bazel_flags = shlex.split(flags.bazel_flags)
    build = catalog.Build(shlex.split(flags.startup_flags), bazel_flags)
    command = [str(catalog.ROOT / "bazelw"), *shlex.split(flags.startup_flags), "build", "--compilation_mode=opt"]
    targets = [
        t for name in PROGRAMS for t in (f"//benchmarks:stablehlo_{name}_driver", f"//{PACKAGE}:{name}_aot.export")
    ]
    subprocess.run([*command, *bazel_flags, *targets], cwd=catalog.ROOT, check=True)
    python = environments.python("jax")
    on = compare.machine(None)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name in PROGRAMS:
            library = str(build.output(f"{PACKAGE}/{name}_aot"))
            inputs = catalog.write_inputs(library, f"{folder}/{name}")
            for tensor in inputs:
                without_signs(tensor["path"], tensor["dtype"])
            case = json.dumps({"model": name, "inputs": inputs, "files": {}, "folder": folder})
            driver = str(build.output(f"benchmarks/stablehlo_{name}_driver"))
            peers = [
                harness.Peer("ours", (driver, *(str(tensor["path"]) for tensor in inputs)), binary=driver),
                harness.Peer(
                    "jax",
                    (python, "-m", "benchmarks.workers.jax_program", case),
                    {"PYTHONPATH": str(catalog.ROOT)},
                ),
            ]
            plan = harness.Plan(rounds=flags.rounds, batches=flags.batches, cold_starts=1, cpus=harness.last_cpus())
            results.append(harness.compare(name, peers, training=False, reference="jax", plan=plan, missing={}))
    version = next((r.measured["jax"].version for r in results if "jax" in r.measured), "that didn't run")
    words = (
        f"    python3 benchmarks/stablehlo.py --rounds {flags.rounds} --batches {flags.batches}\n\n"
        f"{on['cpu']}, one core; {on['compiler']}; JAX {version}; {datetime.date.today().isoformat()}. {flags.rounds} "
        f"interleaved rounds. The table has the smallest batch of each, the ratio of these, and the smallest and largest ratio "
        f"of one round. Load average before and after: {on['load_before']}, {os.getloadavg()[0]:.2f}. {flags.note}"
    ).rstrip()
    text = page(results, words)
    print(text)
    if flags.page:
        put(catalog.ROOT / flags.page, "benchmarks/stablehlo.py", text)


if __name__ == "__main__":
    main()
