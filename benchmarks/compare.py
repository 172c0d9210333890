"""Compares compiled models with other frameworks, and writes a table, and all raw times.

    python3 benchmarks/compare.py [--models fc mlp …] [--peers jax torch_eager …] [--rounds 10] [--out FILE]

or `./bazelw run //benchmarks:compare -- …`. `--machine NAME` puts the run into docs/measured/performance/NAME.json, and writes
docs/measured/performance.md. It builds the models and installs the peers that you ask for, and reports what it can't run, and why.
`--threads N` gives each program N threads on N cores. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks import catalog, harness, report


def machine(cpus: Sequence[int] | None) -> dict[str, Any]:
    """Describes the machine that the numbers were measured on."""
    name = ""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
    compiler = subprocess.run(["gcc", "--version"], capture_output=True, check=False, text=True).stdout.splitlines()
    return {
        "cpu": name,
        "cores": os.cpu_count(),
        "pinned_to": ", ".join(map(str, cpus)) if cpus else None,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "compiler": compiler[0] if compiler else "",
        "load_before": round(os.getloadavg()[0], 2),
    }


def main() -> None:
    """Builds, installs, measures, and writes the results. It is long because each flag takes a few lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", choices=[*catalog.MODELS], metavar="MODEL", help="default: all")
    parser.add_argument(
        "--peers", nargs="*", choices=catalog.PEERS, metavar="PEER", help="default: all; ours always runs"
    )
    parser.add_argument("--rounds", type=int, default=10, help="interleaved rounds (default: 10)")
    parser.add_argument("--batches", type=int, default=5, help="batches a round (default: 5)")
    parser.add_argument("--batch_ms", type=float, default=10, help="length of a batch, at least one call (default: 10)")
    parser.add_argument("--cold_starts", type=int, default=3, help="starts of each process (default: 3)")
    parser.add_argument(
        "--threads",
        type=int,
        default=1,
        metavar="N",
        help="of each program, on N cores; 0 for all cores (default: 1). More than one: a page of calls' times, with one start",
    )
    parser.add_argument(
        "--converge",
        type=int,
        default=0,
        metavar="STEPS",
        help="instead: that many steps on one batch, ours and stock, of the models that train",
    )
    parser.add_argument(
        "--add", action="store_true", help="to the results that are in the file, in place of the same models'"
    )
    parser.add_argument("--cpu", type=int, help="the core to run on, with one thread (default: the last one)")
    parser.add_argument("--out", type=pathlib.Path, help="file of the results (default: in the cache folder)")
    parser.add_argument("--machine", metavar="NAME", help="instead: its file beside the page, and write the page")
    parser.add_argument("--title", help="heading of the run on the page (default: the CPU and the number of cores)")
    parser.add_argument("--note", default="", help="a sentence for the page: what else ran on the machine")
    parser.add_argument("--bazel_flags", default="", help="flags of the build, as a shell would split them")
    parser.add_argument("--startup_flags", default="", help="Bazel's startup flags")
    parser.add_argument("--list", action="store_true", help="instead: names of models and peers")
    flags = parser.parse_args()
    if flags.list:
        print("models:", *catalog.MODELS, "\npeers:", *catalog.PEERS)
        return
    cpus = _cpus(parser, flags)
    threads = len(cpus)
    build = catalog.Build(shlex.split(flags.startup_flags), shlex.split(flags.bazel_flags))
    file = report.RUNS / f"{flags.machine}.json" if flags.machine else flags.out or catalog.default_out(threads)
    file.parent.mkdir(parents=True, exist_ok=True)
    models = flags.models or [*catalog.MODELS]
    peers = flags.peers if flags.peers is not None else list(catalog.PEERS)
    plan = harness.Plan(
        rounds=flags.rounds,
        batches=flags.batches,
        batch_nanoseconds=flags.batch_ms * 1e6,
        cold_starts=flags.cold_starts if threads == 1 else 1,
        cpus=cpus,
    )
    on = machine(cpus)
    document: dict[str, Any] = {
        "title": flags.title or f"{on['cpu']}, {'one core' if threads == 1 else f'{threads} cores'}",
        "date": datetime.date.today().isoformat(),
        "command": "python3 benchmarks/compare.py " + " ".join(shlex.quote(word) for word in _shown(sys.argv[1:])),
        "note": flags.note,
        "machine": on,
        "threads": threads,
        "plan": dataclasses.asdict(plan),
        "results": [],
        "converge": [],
        "work": {},
    }
    if flags.converge:
        models, peers = [name for name in models if catalog.MODELS[name].training], ["stock"]
    if flags.add and file.exists():
        measured = "converge" if flags.converge else "results"
        before = json.loads(file.read_text(encoding="utf-8"))
        if (had := before["threads"]) != threads:
            parser.error(
                f"--add: {file} has results of {had} thread{'s' if had > 1 else ''}, and these would be of {threads}"
            )
        before[measured] = [result for result in before[measured] if result["model"] not in models]
        # The comparison keeps its title, note, plan, machine, and command.
        kept = before if flags.converge and before["results"] else ("results", "converge", "work", "title", "note")
        document |= {key: before[key] for key in kept if key not in ("title", "note") or not getattr(flags, key)}
    broken = build.models(models, peers, threads)
    # The page on several threads has no limits of one core, and no sizes.
    if threads == 1:
        document["roofline"] = build.roofline(cpus)
        document["work"] |= build.work(models)
    for name in models:
        started, missing = build.peers(name, peers, threads)
        if name in broken:
            missing["ours"] = broken[name]
        if flags.converge:
            document["converge"].append(harness.converge(name, started, plan, flags.converge))
        else:
            result = harness.compare(
                name,
                started,
                training=catalog.MODELS[name].training,
                reference="tensorflow_session",
                plan=plan,
                missing=missing,
            )
            document["results"].append(harness.as_json(result))
        # After each model, so an interrupted run keeps what it has measured.
        file.write_text(json.dumps(document, indent=1), encoding="utf-8")
    document["machine"]["load_after"] = round(os.getloadavg()[0], 2)
    file.write_text(json.dumps(document, indent=1), encoding="utf-8")
    if flags.machine:
        report.write()
    print(report.page({file.name: document}))
    print(f"compare: all of it is in {file}", file=sys.stderr)


def _cpus(parser: argparse.ArgumentParser, flags: argparse.Namespace) -> tuple[int, ...]:
    """Returns the cores to run on: one for each thread of a program."""
    try:
        cpus = harness.last_cpus(flags.threads or len(os.sched_getaffinity(0)))
    except ValueError as error:
        parser.error(f"--threads: {error}")
    if len(cpus) > 1 and flags.cpu is not None:
        parser.error("--cpu is for one thread")
    if len(cpus) > 1 and flags.converge:
        parser.error("--converge is for one thread: stock tfcompile has no more here")
    return cpus if flags.cpu is None else (flags.cpu,)


def _shown(words: list[str]) -> list[str]:
    """Returns the command's words, except those that only say how this machine builds, or where it writes."""
    shown, skip = [], False
    for word in words:
        key, equals, _ = word.partition("=")
        if skip:
            skip = False
        elif key in ("--bazel_flags", "--startup_flags", "--out", "--title", "--note"):
            skip = not equals
        else:
            shown.append(word)
    return shown


if __name__ == "__main__":
    main()
