"""Writes the page of a run from results.json: tables of ratios, times, cold starts, sizes, and missing peers, and plots.

The page of a run on several threads has ratios, times, differences, and missing peers. The limits are those of one core, and
the rest is on the page of one core.
"""

from __future__ import annotations

import html
import math
import os
import pathlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import harness, summary
from benchmarks.catalog import MODELS, OURS, PEERS
from benchmarks.harness import Result

COLOURS = {
    "ours": "#d62728",
    "stock": "#7f7f7f",
    "tensorflow_session": "#ff7f0e",
    "tensorflow_jit": "#ffbb78",
    "jax": "#1f77b4",
    "onnxruntime": "#2ca02c",
    "litert": "#98df8a",
    "iree": "#9467bd",
    "torch_eager": "#8c564b",
    "torch_compile": "#c49c94",
    "openvino": "#17becf",
}


def threads_of(document: Mapping[str, Any]) -> int:
    """Returns how many threads each program of a run had. Runs from before there was a choice had one."""
    threads: int = document.get("threads", 1)
    return threads


def ratio_of(result: Result) -> summary.Ratio | None:
    """Returns the ratio of the best peer to ours, or None if one of them is missing."""
    if OURS not in result.measured:
        return None
    peers = {name: m.rounds for name, m in result.measured.items() if name != OURS}
    return summary.best_ratio(result.measured[OURS].rounds, peers)


def number(value: float) -> str:
    """Formats three digits, without an exponent."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns a Markdown table."""
    return [
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ]


def ratios(results: Sequence[Result], *, stock: bool = True) -> list[str]:
    """Returns a table of the best peer's minimum divided by ours, by model. `stock` asks for a column for that peer."""
    rows = []
    for result in results:
        ours, found = result.measured.get(OURS), ratio_of(result)
        title = MODELS[result.model].title
        if ours is None or found is None:
            rows.append([title, *["–"] * (6 if stock else 5)])
            continue
        tfcompile = result.measured.get("stock")
        cells = [f"{tfcompile.times.minimum / ours.times.minimum:.2f}" if tfcompile else "–"] if stock else []
        rows.append(
            [
                title,
                number(ours.times.minimum),
                found.peer,
                number(result.measured[found.peer].times.minimum),
                f"**{found.value:.2f}**",
                f"{found.low:.2f} to {found.high:.2f}",
                *cells,
            ]
        )
    head = ["model", "ours, µs", "best peer", "its µs", "ratio", "by round"]
    return table([*head, "stock tfcompile / ours"] if stock else head, rows)


def every_peer(results: Sequence[Result]) -> list[str]:
    """Returns a table of every peer's minimum, median, and variation."""
    names = [name for name in (OURS, *PEERS) if any(name in result.measured for result in results)]
    rows = []
    for result in results:
        cells = [MODELS[result.model].title]
        for name in names:
            measured = result.measured.get(name)
            if measured is None:
                cells.append("–")
                continue
            t = measured.times
            cells.append(f"{number(t.minimum)} / {number(t.median)} ({t.variation:.0%})")
        rows.append(cells)
    return table(["model", *names], rows)


def by_peer(results: Sequence[Result], of: Any) -> list[str]:
    """Returns a table with one figure for every peer and model. `of` formats a `Measured`."""
    names = [name for name in (OURS, *PEERS) if any(name in result.measured for result in results)]
    rows = [
        [MODELS[r.model].title, *(of(r.measured[name]) if name in r.measured else "–" for name in names)]
        for r in results
    ]
    return table(["model", *names], rows)


def missing(results: Sequence[Result]) -> list[str]:
    """Returns a table of peers that didn't run, by reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for peer, why in result.missing.items():
            reasons.setdefault((peer, why), []).append(result.model)
    rows = [[peer, why.replace("|", "\\|"), ", ".join(models)] for (peer, why), models in sorted(reasons.items())]
    return table(["peer", "why", "models"], rows) if rows else ["None.", ""]


def converge(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns medians of steps on one converging batch, of all, the first tenth, and the last, for ours and stock."""
    rows = []
    for run in found:
        medians: Mapping[str, Sequence[float]] = run["medians"]
        ours, stock = (medians.get(name) for name in (OURS, "stock"))
        cells = [text for peer in (ours, stock) for text in (map(number, peer) if peer else ["–"] * 3)]
        ratio = f"**{stock[0] / ours[0]:.2f}**" if ours and stock else "–"
        rows.append([MODELS[run["model"]].title, f"{run['steps']:,}", *cells, ratio])
    head = ["ours, median, µs", "first tenth", "last tenth", "stock, median, µs", "first tenth", "last tenth"]
    return table(["model", "steps", *head, "stock / ours"], rows)


def bound(work: Mapping[str, int], roofline: Mapping[str, Any]) -> float:
    """Returns a call's minimum in microseconds: arithmetic at the core's peak, or reading variables from where they fit."""
    arithmetic: float = work["flops"] / roofline["gflops"] / 1e3
    levels = roofline["bandwidth"]
    level: Mapping[str, float] = next(
        (level for level in levels if level["kib"] * 1024 >= work["variables"]), levels[-1]
    )
    return max(arithmetic, work["variables"] / level["gb_per_s"] / 1e3)


def peers_of(results: Sequence[Result]) -> str:
    """Returns a sentence about the number of peers behind each ratio. Few peers run a training step."""
    counts = Counter(sum(name in result.measured for name in PEERS) for result in results if ratio_of(result))
    each = [
        f"{peers} ({models} model{'s' if models > 1 else ''})" for peers, models in sorted(counts.items(), reverse=True)
    ]
    return f"The best peer is the fastest of those that run the model. Peers that run a model: {', '.join(each)}."


def shares(results: Sequence[Result], document: Mapping[str, Any]) -> list[str]:
    """Returns how close ours and the best peer are to the core's limits, for models whose work is known."""
    rows = []
    for result in results:
        work, ratio = document["work"].get(result.model, {}), ratio_of(result)
        if not ratio or not work.get("flops"):
            continue
        least = bound(work, document["roofline"])
        times = [result.measured[name].times.minimum for name in (OURS, ratio.peer)]
        rows.append(
            [
                MODELS[result.model].title,
                number(work["flops"] / 1e6),
                number(work["variables"] / 1e6),
                number(least),
                *(f"{number(work['flops'] / time / 1e3)} ({least / time:.0%})" for time in times),
            ]
        )
    head = ["model", "MFLOP", "variables, MB", "bound, µs", "ours, GFLOP/s (share)", "best peer, GFLOP/s (share)"]
    return table(head, rows)


ROOFLINE_AIM = 0.7
"""The fraction of the roofline to reach where arithmetic is the limit."""

COLD_START_AIM = 20.0
"""How many times earlier than each framework to deliver a first result."""


def aims(results: Sequence[Result], document: Mapping[str, Any]) -> list[str]:
    """Returns what falls short of its aim, by how much, and what the core's limits would allow."""
    rows = []

    def row(result: Result, what: str, aim: float, reached: float, most: float | None) -> None:
        if reached < aim:
            possible = "–" if most is None else f"{most:.2f}"
            short = f"{1 - reached / aim:.0%}"
            rows.append([MODELS[result.model].title, what, f"{aim:g}", f"{reached:.2f}", short, possible])

    for result in results:
        work, ratio = document["work"].get(result.model, {}), ratio_of(result)
        if not ratio:
            continue
        ours, peer = result.measured[OURS], result.measured[ratio.peer]
        least = bound(work, document["roofline"]) if work.get("flops") else None
        most = least and peer.times.minimum / least
        row(result, "best peer / ours", MODELS[result.model].aim, ratio.value, most)
        if least and least == work["flops"] / document["roofline"]["gflops"] / 1e3:
            row(result, "share of the roofline", ROOFLINE_AIM, least / ours.times.minimum, 1.0)
        starts = [result.measured[name].cold_start for name in PEERS if name != "stock" and name in result.measured]
        if starts:
            # A first result takes at least one call.
            most = min(starts) / (ours.times.minimum / 1e6)
            row(result, "quickest framework's cold start / ours", COLD_START_AIM, min(starts) / ours.cold_start, most)
    head = ["model", "what", "aim", "reached", "short by", "at most"]
    return table(head, rows) if rows else ["None.", ""]


def sizes(results: Sequence[Result], work: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Returns the sizes of stripped binaries, in total and without the variables that they contain."""
    rows = []
    for result in results:
        found = [result.measured[name].size if name in result.measured else 0 for name in (OURS, "stock")]
        if not any(found):
            continue
        variables = work.get(result.model, {}).get("variables", 0)
        cells = [number(size / 1e6) if size else "–" for size in found]
        beyond = [number((size - variables) / 1e6) if size and variables else "–" for size in found]
        rows.append([MODELS[result.model].title, cells[0], beyond[0], cells[1], beyond[1]])
    return table(["model", OURS, "beyond variables", "stock", "beyond variables"], rows)


def limits(results: Sequence[Result], document: Mapping[str, Any]) -> list[str]:
    """Returns the sections about one core's limits, and the aims that they bound."""
    return [
        "## Share of the roofline",
        "",
        "Only matrix products and convolutions count as work. The bound of a call is the time that its arithmetic takes at the",
        "core's peak, or that reading its variables takes from the cache that holds them, whichever is longer. The share is the",
        "bound divided by the time. The work of a 3 × 3 convolution is that of its definition. Winograd filtering takes fewer",
        "products, so a share may be above 100%.",
        "",
        *shares(results, document),
        "## Aims that are not reached",
        "",
        "The aims are:",
        "",
        f"- Best peer / ours: at least 1, and {max(entry.aim for entry in MODELS.values()):g} on small models and on training.",
        f"- {ROOFLINE_AIM:.0%} of the roofline where arithmetic is the bound.",
        f"- The first result {COLD_START_AIM:g} times sooner than any framework's.",
        "",
        "*At most* is what a program at the roofline would reach beside the same peer. For cold starts, it is a program whose",
        "first result takes no longer than a call. [Gaps](gaps.md) has what was tried, and what the profiles show is left.",
        "",
        *aims(results, document),
    ]


def processes(results: Sequence[Result], document: Mapping[str, Any]) -> list[str]:
    """Returns the sections about whole processes: cold starts, memory, and sizes."""
    return [
        "## Cold start: process start to first result, ms",
        "",
        *by_peer(results, lambda m: number(m.cold_start * 1e3)),
        "## Resident memory after the first result, MB",
        "",
        *by_peer(results, lambda m: number(m.resident / 1e6)),
        "## Stripped binary, variables and driver included, MB",
        "",
        *sizes(results, document["work"]),
    ]


def roofline_of(roofline: Mapping[str, Any]) -> list[str]:
    """Returns the section about what one core can do."""
    return [
        "## Roofline of that core",
        "",
        f"Multiply-adds: {roofline['gflops']:.0f} GFLOP/s, float32. Reading:",
        "",
        *table(
            ["working set", *(_size(point["kib"]) for point in roofline["bandwidth"])],
            [["GB/s", *(number(point["gb_per_s"]) for point in roofline["bandwidth"])]],
        ),
    ]


_ONE_CORE = """\
Each program runs on one core, with one thread, in a separate process, in interleaved rounds. Weights and inputs are the
same. A peer is timed only if its outputs agree with TensorFlow's. Times are microseconds for a call. A ratio above 1
means that ours is faster. Stock tfcompile output counts as a peer, and has its own column."""
_CORES = """\
Each program runs on {threads} cores, with {threads} threads, in a separate process, in interleaved rounds. Weights and
inputs are the same. A peer is timed only if its outputs agree with TensorFlow's. Times are microseconds for a call. A ratio
above 1 means that ours is faster. [The page of one core](performance.md) also has cold starts, memory, sizes, and what the
core's limits allow."""


def page(document: Mapping[str, Any], plots: Mapping[str, str]) -> str:
    """Returns the page's text. `plots` maps titles to the plots' files."""
    results = [harness.from_json(result) for result in document["results"]]
    machine, plan, threads = document["machine"], document["plan"], threads_of(document)
    found = [ratio.value for result in results if (ratio := ratio_of(result))]
    versions = {
        name: result.measured[name].version
        for result in results
        for name in result.measured
        if result.measured[name].version
    }
    lines = [
        f"# Performance{'' if threads == 1 else f' on {threads} cores'}: compiled models beside other frameworks",
        "",
        "The benchmark suite ([benchmarks/README.md](../../benchmarks/README.md)) wrote this page. To renew it:",
        "",
        f"    {document['command']}",
        "",
        _ONE_CORE if threads == 1 else _CORES.format(threads=threads),
        "",
    ]
    if document["note"]:
        lines += [f"> **{document['note']}**", ""]
    lines += ["## Ratios to the best peer", ""]
    lines += [f"Geometric mean over {len(found)} models: {summary.geometric_mean(found):.2f}.", ""] if found else []
    lines += [peers_of(results), ""] if found else []
    lines += ratios(results, stock=threads == 1)
    lines += [f"![{html.escape(title)}]({path})\n" for title, path in plots.items()]
    lines += limits(results, document) if threads == 1 else []
    lines += ["## Every peer: minimum / median (how far rounds' minima lie apart), µs", "", *every_peer(results)]
    lines += processes(results, document) if threads == 1 else []
    lines += ["## Largest difference from TensorFlow's outputs, as a share of the largest value", ""]
    lines += by_peer(results, lambda m: f"{m.difference.largest:.1e}")
    lines += [
        f"The tolerance is {harness.TOLERANCE:g} for inference, and {harness.TRAINING_TOLERANCE:g} for the losses of the first "
        f"{harness.TRAINING_STEPS} training steps.",
        "",
        "## Missing",
        "",
        *missing(results),
    ]
    if document["converge"]:
        lines += ["## Many steps on one batch that converges", "", *converge(document["converge"])]
    cores = f"core{'s' if threads > 1 else ''} {machine['pinned_to']}"
    lines += [
        "## Machine and versions",
        "",
        f"{machine['cpu']}, {machine['cores']} cores, pinned to {cores}; Linux {machine['kernel']}; "
        f"{machine['compiler']}; Python {machine['python']}; {document['date']}. Load average before and after: "
        f"{machine['load_before']}, {machine.get('load_after', '–')}.",
        f"{plan['rounds']} rounds of {plan['batches']} batches of about {plan['batch_nanoseconds'] / 1e6:g} ms"
        + (f"; {plan['cold_starts']} cold starts, the quickest counts." if threads == 1 else "."),
        "",
        ", ".join(f"{name} {version}" for name, version in sorted(versions.items())) + ".",
        "",
    ]
    lines += roofline_of(document["roofline"]) if threads == 1 else []
    return "\n".join(lines).rstrip() + "\n"


def _size(kib: int) -> str:
    return f"{kib} KiB" if kib < 1024 else f"{kib // 1024} MiB"


def bars(title: str, groups: Mapping[str, Mapping[str, float]], unit: str) -> str:
    """Returns an SVG of horizontal bars on a logarithmic scale: groups of named, positive values.

    Every bar has its value next to it, so nobody has to read the scale.
    """
    values = [value for group in groups.values() for value in group.values()]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values) * 1.01))
    left, width, height = 290, 620, 13
    count = sum(len(group) for group in groups.values()) + 1.5 * len(groups)
    total = int(60 + height * count)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 90}" height="{total}" '
        f'font-family="sans-serif" font-size="11">',
        f'<rect width="100%" height="100%" fill="white"/><text x="10" y="20" font-size="14">{html.escape(title)}</text>',
    ]

    def x(value: float) -> float:
        return left + width * (math.log10(value) - low) / max(high - low, 1)

    for power in range(low, high + 1):
        out.append(f'<path d="M{x(10.0**power):.1f} 32V{total - 8}" stroke="#ddd"/>')
        out.append(
            f'<text x="{x(10.0**power):.1f}" y="30" text-anchor="middle" fill="#777">{10.0**power:g} {unit}</text>'
        )
    y = 44.0
    for name, group in groups.items():
        out.append(f'<text x="10" y="{y + 10:.0f}" font-weight="bold">{html.escape(name)}</text>')
        for peer, value in sorted(group.items(), key=lambda item: item[1]):
            bar = f'width="{max(x(value) - left, 1):.1f}" height="{height - 2}" fill="{COLOURS.get(peer, "#999")}"'
            out.append(f'<rect x="{left}" y="{y:.0f}" {bar}/>')
            out.append(f'<text x="{left - 5}" y="{y + 10:.0f}" text-anchor="end">{html.escape(peer)}</text>')
            out.append(f'<text x="{x(value) + 4:.1f}" y="{y + 10:.0f}">{number(value)}</text>')
            y += height
        y += 1.5 * height
    return "\n".join([*out, "</svg>", ""])


def write(document: Mapping[str, Any], path: pathlib.Path) -> None:
    """Writes the page, and its plots to a folder with its name next to it."""
    results = [harness.from_json(result) for result in document["results"]]
    folder = path.with_suffix("")
    plots = {}

    def plot(name: str, title: str, groups: dict[str, dict[str, float]], unit: str) -> None:
        groups = {model: group for model, group in groups.items() if group}
        if groups:
            os.makedirs(folder, exist_ok=True)
            (folder / f"{name}.svg").write_text(bars(title, groups, unit), encoding="utf-8")
            plots[title] = f"{folder.name}/{name}.svg"

    for kind, training in (("inference", False), ("training", True)):
        chosen = [result for result in results if MODELS[result.model].training == training]
        groups = {
            MODELS[r.model].title: {name: measured.times.minimum for name, measured in r.measured.items()}
            for r in chosen
        }
        plot(kind, f"Time of a call, {kind}: the smallest of all rounds", groups, "µs")
    if threads_of(document) == 1:
        starts = {MODELS[r.model].title: {n: 1e3 * m.cold_start for n, m in r.measured.items()} for r in results}
        plot("cold_start", "Cold start: process start to first result", starts, "ms")
        bandwidth = {_size(p["kib"]): {"read": p["gb_per_s"]} for p in document["roofline"]["bandwidth"]}
        plot("bandwidth", "Reading on one core, by working set", bandwidth, "GB/s")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(document, plots), encoding="utf-8")


if __name__ == "__main__":
    import argparse
    import json

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=pathlib.Path, help="results.json of a run of benchmarks/compare.py")
    parser.add_argument("page", type=pathlib.Path, help="the page to write; plots go into a folder beside it")
    given = parser.parse_args()
    write(json.loads(given.results.read_text(encoding="utf-8")), given.page)
