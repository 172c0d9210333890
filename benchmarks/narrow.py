"""Compares models whose weights have fewer bits with the same models in float32, and with LiteRT's, and writes a table.

    python3 benchmarks/narrow.py [--models fc …] [--peers litert …] [--rounds 10] [--page docs/guide/weights.md]

or `./bazelw run //benchmarks:narrow -- …`. All run on one core, in interleaved rounds. Outputs are compared with those of
float32 weights, and differ by what rounding the weights changes.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import pathlib
import shlex
import subprocess
import sys
from collections.abc import Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks import catalog, compare, environments, harness, summary
from benchmarks.pages import number, put, table

MODELS = ("lstm", "fc", "decoder_step")
DTYPES = ("bfloat16", "int8")
PEERS = {"litert": "", "litert_float16": "float16", "litert_int8": "int8"}
"""LiteRT with the dtype of its weights."""
OURS = "float32"
TOLERANCE = 0.1
"""Beyond this, a peer has computed something else."""


def litert(build: catalog.Build, name: str, weights: str, case: str, folder: str) -> harness.Peer:
    """Converts a model for LiteRT, and returns the peer.

    Raises:
      environments.NotInstalled: LiteRT isn't installed, or its converter fails.
    """
    python = environments.python("litert")
    end = f".{weights}" if weights else ""
    path = f"{catalog.ROOT}:{catalog.ROOT / 'py'}:{build.packages()}"
    command = [sys.executable, "-m", "benchmarks.workers.to_tflite", name, *([weights] if weights else [])]
    done = subprocess.run(
        [*command, f"{folder}/{name}{end}.tflite"],
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    if done.returncode:
        raise environments.NotInstalled(
            "the converter fails: " + (done.stderr.splitlines() or ["no message"])[-1][:300]
        )
    worker = (python, "-m", "benchmarks.workers.litert_peer", case, *([end] if end else []))
    return harness.Peer(f"litert{'_' + weights if weights else ''}", worker, {"PYTHONPATH": str(catalog.ROOT)})


def constants(build: catalog.Build, library: str) -> int:
    """Returns the bytes of a library's constants: what its packed weights take, and all other frozen weights in float32."""
    manifest = json.loads(build.output(f"{library}.model.json").read_text(encoding="utf-8"))
    passes = json.loads(build.output(f"{library}.passes.json").read_text(encoding="utf-8"))
    sizes: list[int] = [4 * math.prod(frozen["shape"]) for frozen in manifest["frozen"]]
    saved: int = sum(constant["before"] - constant["after"] for constant in passes["packed"])
    return sum(sizes) - saved


def page(results: Sequence[harness.Result], weights: dict[tuple[str, str], int], words: str) -> str:
    """Returns the measurements as Markdown.

    Args:
      results: one for each model.
      weights: bytes of the weights in our libraries, by model and dtype.
      words: a paragraph about how, where, and when this was measured.
    """
    rows = []
    missing = []
    for result in results:
        title = catalog.MODELS[result.model].title
        own = result.measured[OURS]
        for name, measured in result.measured.items():
            ratio = summary.best_ratio(measured.rounds, {OURS: own.rounds})
            assert ratio is not None
            size = weights.get((result.model, name))
            rows.append(
                [
                    title,
                    name.replace("_", ", ") if name.startswith("litert") else f"ours, {name}",
                    number(measured.times.minimum),
                    number(measured.times.median),
                    f"**{ratio.value:.2f}** ({ratio.low:.2f} to {ratio.high:.2f})",
                    f"{size / 1e6:.3g}" if size else "",
                    f"{measured.difference.largest:.1g}",
                ]
            )
        missing += [f"- {title}, {name}: {why}" for name, why in result.missing.items()]
    heads = [
        "model",
        "weights",
        "least, µs",
        "median, µs",
        "ours in float32 divided by it (by round)",
        "weights, MB",
        "largest difference",
    ]
    lines = [words, "", *table(heads, rows)]
    return "\n".join([*lines, *(["", "Not measured:", "", *missing] if missing else [])])


def main() -> None:
    """Builds, measures, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", choices=MODELS, metavar="MODEL", default=MODELS)
    parser.add_argument("--peers", nargs="*", choices=[*PEERS], metavar="PEER", default=[*PEERS])
    parser.add_argument("--rounds", type=int, default=10, help="interleaved rounds (default: 10)")
    parser.add_argument("--batches", type=int, default=5, help="batches a round (default: 5)")
    parser.add_argument("--cpu", type=int, help="the core to run on (default: the last one)")
    parser.add_argument("--bazel_flags", default="", help="flags of the build, as a shell would split them")
    parser.add_argument("--startup_flags", default="", help="Bazel's startup flags")
    parser.add_argument("--note", default="", help="a sentence for the page: what else ran on the machine")
    parser.add_argument("--page", type=pathlib.Path, help="put the table into this page")
    flags = parser.parse_args()
    bazel_flags = shlex.split(flags.bazel_flags)
    build = catalog.Build(shlex.split(flags.startup_flags), bazel_flags)
    command = [str(catalog.ROOT / "bazelw"), *shlex.split(flags.startup_flags), "build", "--compilation_mode=opt"]
    targets = [
        f"//benchmarks:{name}{end}{kind}"
        for name in flags.models
        for end in ("", *(f"_{dtype}" for dtype in DTYPES))
        for kind in ("_driver", "_aot.export", "_aot.compile")
    ]
    subprocess.run([*command, *bazel_flags, *targets], cwd=catalog.ROOT, check=True)
    cpus = harness.last_cpus() if flags.cpu is None else (flags.cpu,)
    on = compare.machine(cpus)
    folder = environments.cache() / "models"
    folder.mkdir(parents=True, exist_ok=True)
    results, sizes = [], {}
    for name in flags.models:
        library = str(build.output(f"benchmarks/{name}_aot"))
        inputs = catalog.write_inputs(library, str(folder / name))
        case = json.dumps({"model": name, "inputs": inputs, "files": {}, "folder": str(folder)})
        data = [str(tensor["path"]) for tensor in inputs]
        peers, missing = [], {}
        for dtype in (OURS, *DTYPES):
            end = "" if dtype == OURS else f"_{dtype}"
            driver = str(build.output(f"benchmarks/{name}{end}_driver"))
            peers.append(harness.Peer(dtype, (driver, *data), binary=driver))
            sizes[name, dtype] = constants(build, f"benchmarks/{name}{end}_aot")
        for peer in flags.peers:
            try:
                peers.append(litert(build, name, PEERS[peer], case, str(folder)))
            except environments.NotInstalled as error:
                missing[peer] = str(error)
        plan = harness.Plan(rounds=flags.rounds, batches=flags.batches, cold_starts=1, cpus=cpus, tolerance=TOLERANCE)
        results.append(harness.compare(name, peers, training=False, reference=OURS, plan=plan, missing=missing))
    asked = ["--models", *flags.models, "--rounds", str(flags.rounds), "--batches", str(flags.batches)]
    words = (
        f"    python3 benchmarks/narrow.py {shlex.join(asked)}\n\n"
        f"{on['cpu']}, one core; {on['compiler']}; {datetime.date.today().isoformat()}. {flags.rounds} interleaved rounds. "
        "Libraries have code for x86-64-v3 and x86-64-v4, and run the highest that the machine has. The table has the smallest "
        "batch of each, the median of the rounds' medians, the ratio of the smallest batches, and the smallest and largest "
        "ratio of one round. Differences are relative to the largest output. "
        f"Load average before and after: {on['load_before']}, {os.getloadavg()[0]:.2f}. {flags.note}"
    ).rstrip()
    text = page(results, sizes, words)
    print(text)
    if flags.page:
        put(catalog.ROOT / flags.page, "benchmarks/narrow.py", text)


if __name__ == "__main__":
    main()
