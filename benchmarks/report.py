"""Writes docs/measured/performance.md, and README.md's table, from docs/measured/performance: `python3 -m benchmarks.report`.

Each file there is a run of benchmarks/compare.py on one machine, with every peer's times, cold starts, sizes, and differences. The
page has a table for each.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

from benchmarks import harness, summary
from benchmarks.catalog import MODELS, PEERS, ROOT
from benchmarks.harness import OURS
from benchmarks.pages import number, put, table

PAGE = ROOT / "docs" / "measured" / "performance.md"
RUNS = PAGE.with_suffix("")
"""The folder of runs, a file for each machine and number of threads."""

ROOFLINE_AIM = 0.7
"""The fraction of the roofline to reach where arithmetic is the limit."""

COLD_START_AIM = 20.0
"""How many times earlier than each framework to deliver a first result."""


def bound(work: Mapping[str, int], roofline: Mapping[str, Any]) -> tuple[float, bool]:
    """Returns a call's minimum in microseconds, and whether arithmetic at the core's peak is what bounds it.

    Otherwise, reading the variables does, from the cache that holds them.
    """
    arithmetic: float = work["flops"] / roofline["gflops"] / 1e3
    levels = roofline["bandwidth"]
    level = next((level for level in levels if level["kib"] * 1024 >= work["variables"]), levels[-1])
    reading: float = work["variables"] / level["gb_per_s"] / 1e3
    return max(arithmetic, reading), arithmetic >= reading


def mark(text: str, reached: float, aim: float) -> str:
    """Returns a figure, in bold if it reaches its aim."""
    return f"**{text}**" if reached >= aim else text


def row(result: Mapping[str, Any], document: Mapping[str, Any]) -> list[str]:
    """Returns a model's cells: the best peer and, on one core, stock tfcompile, the roofline, cold starts, and memory."""
    entry, measured, best = MODELS[result["model"]], result["measured"], result["ratio"]
    one = document["threads"] == 1
    if not best:
        return [entry.title, *["–"] * (8 if one else 4)]
    ours = measured[OURS]
    least = ours["times"]["minimum"]
    ratio = mark(f"{best['value']:.2f}", best["value"], entry.aim)
    peer = best["peer"]
    cells = [entry.title, number(least), peer, number(measured[peer]["times"]["minimum"])]
    cells.append(f"{ratio} ({best['low']:.2f} to {best['high']:.2f})")
    if not one:
        return cells
    cells.append(f"{measured['stock']['times']['minimum'] / least:.2f}" if "stock" in measured else "–")
    work = document["work"].get(result["model"], {})
    if work.get("flops"):
        limit, arithmetic = bound(work, document["roofline"])
        share = f"{limit / least:.0%}"
        cells.append(mark(share, limit / least, ROOFLINE_AIM) if arithmetic else f"({share})")
    else:
        cells.append("–")
    frameworks = [measured[name] for name in PEERS if name != "stock" and name in measured]
    start, memory = (min((peer[key] for peer in frameworks), default=math.nan) for key in ("cold_start", "resident"))
    first = mark(number(1e3 * ours["cold_start"]), start / ours["cold_start"], COLD_START_AIM)
    cells += [f"{first} / {number(1e3 * start)}", f"{number(ours['resident'] / 1e6)} / {number(memory / 1e6)}"]
    return cells


def section(document: Mapping[str, Any], file: str) -> list[str]:
    """Returns the page's section about one run."""
    results, machine, threads = document["results"], document["machine"], document["threads"]
    ratios = [result["ratio"]["value"] for result in results if result["ratio"]]
    counts = Counter(sum(name in r["measured"] for name in PEERS) for r in results if r["ratio"])
    peers = ", ".join(f"{count} ({models})" for count, models in sorted(counts.items(), reverse=True))
    cores = f"core{'s' if threads > 1 else ''} {machine['pinned_to']}"
    head = ["model", "ours, µs", "best peer", "its µs", "ratio (by round)"]
    head += ["stock / ours", "of the roofline", "first result, ms", "memory, MB"] if threads == 1 else []
    lines = [f"## {document['title']}", ""]
    lines += [document["note"], ""] if document["note"] else []
    lines += [f"Geometric mean over {len(ratios)} models: {summary.geometric_mean(ratios):.2f}.", ""] if ratios else []
    lines += [f"Peers that run a model (how many models): {peers}.", ""] if ratios else []
    lines += table(head, [row(result, document) for result in results])
    lines += [
        f"[{file}](performance/{file}): {machine['cpu']}, {machine['cores']} cores, pinned to {cores}; {machine['compiler']}; "
        f"{document['date']}; load average before and after: {machine['load_before']}, {machine.get('load_after', '–')}; "
        f"`{document['command']}`.",
        "",
    ]
    runs = [(run, run["medians"]) for run in document["converge"] if {OURS, "stock"} <= {*run["medians"]}]
    if runs:
        slower = [medians["stock"][0] / medians[OURS][0] for _, medians in runs]
        lines += [
            f"As training converges, over {max(run['steps'] for run, _ in runs):,} steps on one batch, stock tfcompile takes "
            f"{min(slower):.2f} to {max(slower):.2f} times as long as ours (medians of {len(runs)} models).",
            "",
        ]
    return lines


def page(documents: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the page's text. `documents` maps files' names to runs."""
    most = max(entry.aim for entry in MODELS.values())
    lines = f"""\
# Performance: compiled models beside other frameworks

The [benchmark suite](../../benchmarks/README.md) wrote this page from the runs in [performance/](performance), which have every
peer's times, cold starts, memory, sizes, differences, and why a peer doesn't run a model. To measure a machine, and write the page:

    python3 benchmarks/compare.py --machine zen5 --title 'AMD EPYC (Zen 5), one core'

Each program has one thread on one core, or N on N cores, in a process of its own, in interleaved rounds, with the same weights and
inputs. A peer is timed only if its outputs agree with TensorFlow's: within {harness.TOLERANCE:g} of the largest value, or, in
training, {harness.TRAINING_TOLERANCE:g} for the losses of the first {harness.TRAINING_STEPS} steps.

- **Times** are the smallest batch of all rounds, in µs for a call. **Ratio** is the fastest peer's time divided by ours, and
  its smallest and largest value in a round. Stock tfcompile counts as a peer.
- **Of the roofline** is the least time that the core allows, divided by ours. That is the time for the multiply-adds of products
  and convolutions at the core's peak or, in parentheses, for reading the variables if that takes longer. Winograd filtering takes
  fewer multiply-adds than the definition of a convolution, so a share may be above 100%.
- **First result** is the time from starting the process, ours / the quickest framework's. **Memory** is what is then resident, ours
  / the smallest framework's.

Bold figures reach their aim: a ratio of 1, and {most:g} on small models and on training; {ROOFLINE_AIM:.0%} of the roofline
where arithmetic bounds a model; a first result {COLD_START_AIM:g} times as early as any framework's. [Gaps](gaps.md) lists what
is open.
""".splitlines()
    for file, document in documents.items():
        lines += ["", *section(document, file)]
    return "\n".join(lines).replace("\n\n\n", "\n\n").rstrip() + "\n"


def overview(documents: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns a table with a line for each run."""
    rows = []
    for document in documents.values():
        ratios = [result["ratio"]["value"] for result in document["results"] if result["ratio"]]
        if ratios:
            mean = summary.geometric_mean(ratios)
            rows.append([document["title"], str(len(ratios)), f"{mean:.2f}", f"{min(ratios):.2f} to {max(ratios):.2f}"])
    return "\n".join(table(["on", "models", "best peer's time / ours, mean", "least to most"], rows))


def runs_in(folder: pathlib.Path) -> dict[str, dict[str, Any]]:
    """Returns the runs in a folder by the names of their files."""
    return {file.name: json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))}


def write() -> None:
    """Writes the page of all runs, and the table in README.md."""
    documents = runs_in(RUNS)
    PAGE.write_text(page(documents), encoding="utf-8")
    put(ROOT / "README.md", "benchmarks/report.py", overview(documents))


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    write()
