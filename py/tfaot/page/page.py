"""The report on a compiled model: one HTML file that needs no network and no scripts."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from tfaot.core.fingerprint import Stamp
from tfaot.core.manifest import EntryPoint, Manifest, Tensor
from tfaot.page import graphviz, measured, plots
from tfaot.page.sections import sections
from tfaot.page.style import STYLE

LINES = 3000
"""The most lines of HLO to show, from the start."""
CHARACTERS = 400
"""The most characters of a line to show. Constants of large models are in lines of megabytes."""
INSTRUCTIONS = 1500
"""The most instructions of HLO to draw."""
ROWS = 400
"""The most rows of a table to show."""


@dataclasses.dataclass(frozen=True)
class Request:
    """What to show, and where to write it. Files of functions are in the same order. What there is none of isn't shown."""

    name: str
    manifest: str
    graph: str
    """The graph to draw."""
    report: str
    """JSON of what stands in the way of compiling the model."""
    sources: str
    """JSON of `file:line` by node."""
    out_page: str
    passes: tuple[str, ...] = ()
    fingerprints: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    """JSON of each function's steps and their memory, for the highest CPU level."""
    objects: tuple[str, ...] = ()
    hlo: tuple[str, ...] = ()
    """HLO before optimization, as text."""
    optimized: tuple[str, ...] = ()
    """The same after it."""
    drawings: tuple[str, ...] = ()
    """Drawings of the HLO before optimization, in Graphviz's language."""
    optimized_drawings: tuple[str, ...] = ()
    """Drawings of the optimized HLO."""
    measured: str = ""
    """What `//tools:measure` wrote."""
    clusters: str = ""
    """JSON of the clusters that were cut out of the graph."""
    label: str = ""
    """The target, for commands that the page shows."""


def write(request: Request) -> None:
    """Writes the page.

    Raises:
      TfaotError: a file isn't what the stages write.
    """
    manifest = Manifest.from_json(_read(request.manifest), path=request.manifest)
    programs = [(_stem(path, ".program.json"), _program(path)) for path in request.programs]
    stamps = [(path, json.loads(_read(path))) for path in request.fingerprints]
    measurement = (
        measured.Measured.from_json(_read(request.measured), path=request.measured) if request.measured else None
    )
    parts = {
        "Compiled": _compiled(manifest, [stamp for _, stamp in stamps]),
        "Graph": _graph(request, manifest),
        "HLO": _hlos(request),
        "Memory": "".join(_memory(*named) for named in programs),
        "Time": _time(request, programs, measurement, stamps),
        "Numbers": _numbers(request, manifest, measurement),
        "Names": "".join(_entry(entry) for entry in manifest.entry_points)
        + _tensors("Variables", manifest.variables, "variable"),
        "Passes": "".join(_passes(_stem(path, ".passes.json"), json.loads(_read(path))) for path in request.passes),
        "Sizes": _sizes(request),
        "Fingerprints": "".join(_fingerprint(stamp) for _, stamp in stamps[:1]),
        "What compiles it again": _again(request, manifest, stamps),
    }
    parts = {title: text for title, text in parts.items() if text}
    with open(request.out_page, "w", encoding="utf-8") as file:
        file.write(_html(request.name, manifest, parts))


def _program(path: str) -> dict[str, Any]:
    program: dict[str, Any] = json.loads(_read(path))
    for step in program["steps"]:
        step["kernel"] = measured.plain(step["kernel"])
    return program


def _html(name: str, manifest: Manifest, parts: dict[str, str]) -> str:
    anchors = {title: title.lower().replace(" ", "-") for title in parts}
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(name)}</title>",
            f"<style>{STYLE}</style>",
            "</head>",
            "<body>",
            f"<header><h1>{escape(name)}: <code>{escape(manifest.cpp_class)}</code></h1>",
            '<nav aria-label="Sections">'
            + "".join(f'<a href="#{anchor}">{title}</a>' for title, anchor in anchors.items())
            + "</nav></header>",
            "<main>",
            *(f'<section><h2 id="{anchors[title]}">{title}</h2>\n{text}</section>' for title, text in parts.items()),
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _compiled(manifest: Manifest, stamps: Sequence[dict[str, Any]]) -> str:
    rows: list[tuple[object, ...]] = [("TensorFlow", manifest.tensorflow)]
    rows += [("rules_tfaot", stamp["rules"]) for stamp in stamps[:1]]
    rows += [("CPU levels", ", ".join(stamp["isa"])) for stamp in stamps[:1]]
    rows += [("fingerprint", stamp["fingerprint"]) for stamp in stamps[:1]]
    rows += [
        ("entry points", ", ".join(entry.cpp_name for entry in manifest.entry_points)),
        *(
            (f"buckets of {size.name}", ", ".join(map(str, size.buckets)))
            for size in dict.fromkeys(size for entry in manifest.entry_points for size in entry.sizes)
        ),
        ("variables", f"{len(manifest.variables)}, {sum(variable.bytes for variable in manifest.variables):,} bytes"),
        ("written by a run", ", ".join(variable.name for variable in manifest.written) or "none"),
        ("frozen into the code", ", ".join(variable.name for variable in manifest.frozen) or "none"),
    ]
    return _table(("what", "value"), rows)


def _graph(request: Request, manifest: Manifest) -> str:
    """Draws the graph, with what the check found in it, and with clusters if some were cut out."""
    # Later, because it imports TensorFlow.
    from tensorflow.core.framework import graph_pb2

    from tfaot.graph.names import producer
    from tfaot.page import graph as drawing

    graph = graph_pb2.GraphDef()
    with open(request.graph, "rb") as file:
        graph.ParseFromString(file.read())
    report = json.loads(_read(request.report))
    findings = [finding for entry in report["entry_points"] for finding in entry["findings"]]
    marks: dict[str, str] = {}
    for finding in findings:
        for place in finding["places"]:
            marks.setdefault(place["node"], finding["severity"])
            # What is inside a function is marked at the outermost call.
            for outer in place["nesting"][:1]:
                marks.setdefault(re.sub(r"\(.*", "", outer), finding["severity"])
    clusters = json.loads(_read(request.clusters))["clusters"] if request.clusters else []
    inside = {node: number for number, cluster in enumerate(clusters) for node in cluster["nodes"]}
    outputs = {producer(name) for entry in manifest.entry_points for name in entry.fetches}
    drawn = drawing.draw(graph, marks, inside, outputs)
    text = f"<p>{drawing.text(drawn)}</p>" + _drawing(drawn.dot, "graph", "the graph")
    if clusters:
        rows = [
            (number, cluster["name"], len(cluster["nodes"]), cluster["computing"])
            for number, cluster in enumerate(clusters)
        ]
        text += _table(("cluster", "name", "nodes", "that compute"), rows)
    else:
        text += "<p>The whole graph is compiled, as one cluster.</p>"
    if not findings:
        return text + "<p>The check found nothing that stands in the way, and no hazards.</p>"
    rows_ = [
        (finding["severity"], finding["what"], _place(finding["places"]), finding["rewrite"]) for finding in findings
    ]
    return text + _table(("", "what the check found", "where", "to do"), rows_)


def _place(places: Sequence[dict[str, Any]]) -> str:
    shown = [place["node"] + (f" at {place['source']}" if place["source"] else "") for place in places[:3]]
    return "; ".join(shown) + (f"; {len(places) - 3} more" if len(places) > 3 else "")


def _hlos(request: Request) -> str:
    text = "".join(
        _hlo(index, *map(_read, paths))
        for index, paths in enumerate(
            zip(request.hlo, request.optimized, request.drawings, request.optimized_drawings, strict=True)
        )
    )
    return (
        "<p>Of the graph as it was exported, without the passes, for the highest CPU level.</p>" + text if text else ""
    )


def _hlo(index: int, before: str, after: str, drawing: str, optimized_drawing: str) -> str:
    headings = (line.split()[1].rstrip(",") for line in before.splitlines() if line.startswith("HloModule "))
    name = next(headings, "module")
    return "".join(
        [
            _details(f"{name}: before fusion, drawn", _drawing(drawing, f"before{index}", "HLO before fusion")),
            _details(f"{name}: after fusion, drawn", _drawing(optimized_drawing, f"after{index}", "HLO after fusion")),
            _details(f"{name}: before fusion, as text", _text(before)),
            _details(f"{name}: after fusion, as text", _text(after)),
        ]
    )


def _text(text: str) -> str:
    lines = text.splitlines()
    shown = [line if len(line) <= CHARACTERS else line[:CHARACTERS] + " …" for line in lines[:LINES]]
    cut = sum(len(line) > CHARACTERS for line in lines[:LINES])
    notes = []
    if len(lines) > LINES:
        notes.append(f"The first {LINES:,} of {len(lines):,} lines.")
    if cut:
        notes.append(f"{cut:,} lines are cut after {CHARACTERS} characters.")
    if notes:
        notes.append("The output groups hlo and optimized_hlo have all of it.")
    return _note(*notes) + f'<pre tabindex="0">{escape(chr(10).join(shown))}</pre>'


def _drawing(dot: str, name: str, what: str) -> str:
    """Returns a drawing with buttons for its size, which work without scripts."""
    if (nodes := dot.count(" [label=")) > INSTRUCTIONS:
        return _note(f"It has {nodes:,} instructions, and at most {INSTRUCTIONS:,} are drawn. The text below has them.")
    svg = graphviz.draw(dot)
    width = re.search(r'width="(\d+)pt"', svg)
    svg = svg.replace("<svg ", f'<svg style="--w:{width[1] if width else 900}px" ', 1)
    choices = "".join(
        f'<label><input type="radio" name="zoom-{name}" value="{value}"{" checked" if value == "fit" else ""}> {text}</label>'
        for value, text in (("fit", "fit"), ("50", "50 %"), ("100", "100 %"), ("200", "200 %"))
    )
    return (
        f'<div class="zoom"><fieldset><legend>Size of the drawing</legend>{choices}</fieldset>'
        f'<div class="scroll drawing" tabindex="0" role="group" aria-label="{escape(what)}">{svg}</div></div>'
    )


def _memory(name: str, program: dict[str, Any]) -> str:
    steps, size = program["steps"], program["memory"]
    text = f"<h3>{escape(name)}</h3><p>{len(steps)} steps, and {size:,} bytes of working memory."
    values = plots.values(program)
    if values:
        used = plots.live_bytes(values, len(steps))
        at = max(range(len(used)), key=used.__getitem__)
        alive = sorted(
            (value for value in values if value.first <= at <= value.last), key=lambda value: value.start - value.end
        )
        text += (
            f" {used[at]:,} bytes are in use at step {at}, the most.</p>"
            + _note(f"From left to right, steps 0 to {len(steps) - 1}. From bottom to top, addresses 0 to {size:,}.")
            + plots.memory(values, size, len(steps))
            + _details(
                f"{len(alive)} values in use at step {at}",
                _table(
                    ("written by", "at address", "bytes", "from step", "to step"),
                    [(value.kernel, value.start, value.end - value.start, value.first, value.last) for value in alive],
                ),
            )
        )
    else:
        text += "</p>"

    def places(step: dict[str, Any], what: str) -> str:
        return "; ".join(f"{place['of']} at {place['offset']:,}, {place['bytes']:,} bytes" for place in step[what])

    rows = [
        (number, step["kernel"], step["times"], step["origin"], places(step, "reads"), places(step, "writes"))
        for number, step in enumerate(steps)
    ]
    return text + _details("The steps", _table(("step", "kernel", "times", "of", "reads", "writes"), rows))


def _time(
    request: Request,
    programs: Sequence[tuple[str, dict[str, Any]]],
    measurement: measured.Measured | None,
    stamps: Sequence[tuple[str, dict[str, Any]]],
) -> str:
    if not programs:
        return ""
    target = request.label or "//your:target"
    command = f"bazel run @rules_tfaot//tools:measure -- {target} --out={request.name}.measured.json"
    if measurement is None:
        arithmetic = "".join(_planned(*named) for named in programs)
        return (
            "<p>Nothing was measured. To see the time of each kernel and a roofline, run this command, and set "
            f'<code>measured = "{escape(request.name)}.measured.json"</code> on the target:</p>'
            f'<pre tabindex="0">{escape(command)}</pre>' + arithmetic
        )
    own = next((stamp["fingerprint"] for _, stamp in stamps), "")
    text = f"<p>Measured on {escape(measurement.cpu)}, {escape(measurement.date)}, on one core.</p>"
    if measurement.fingerprint != own:
        text += _warn(
            f"The measured model has the fingerprint {measurement.fingerprint}, and this one has {own}. Measure again: {command}"
        )
    steps_of: dict[str, list[dict[str, Any]]] = {}
    for _, program in programs:
        for step in program["steps"]:
            steps_of.setdefault(step["kernel"], []).append(step)
    return text + "".join(_profile(profile, steps_of, measurement.peaks) for profile in measurement.profiles)


def _planned(name: str, program: dict[str, Any]) -> str:
    totals: Counter[str] = Counter()
    for step in program["steps"]:
        totals[step["kernel"]] += (step["operations"] or 0) * step["times"]
    flops = sum(totals.values())
    if not flops:
        return ""
    rows = [(kernel, count, _Html(plots.bar(count / flops))) for kernel, count in totals.most_common(12) if count]
    return _details(f"{name}: {flops:,} arithmetic operations in a run", _table(("kernel", "operations", ""), rows))


def _profile(profile: measured.Profile, steps_of: dict[str, list[dict[str, Any]]], peaks: dict[str, float]) -> str:
    total = sum(kernel.microseconds for kernel in profile.kernels) or 1.0
    rows, points = [], []
    for kernel in sorted(profile.kernels, key=lambda kernel: -kernel.microseconds):
        steps = steps_of.get(kernel.name, [])
        calls = sum(step["times"] for step in steps)
        flops = sum((step["operations"] or 0) * step["times"] for step in steps)
        moved = sum(place["bytes"] * step["times"] for step in steps for place in (*step["reads"], *step["writes"]))
        rate = intensity = limit = ""
        if flops and moved and kernel.microseconds and round(kernel.calls) == calls:
            points.append(plots.Point(kernel.name, flops, moved, kernel.microseconds))
            reached = flops / kernel.microseconds * 1e6
            roof = min(peaks["flops"], flops / moved * peaks["cache"])
            rate, intensity, limit = f"{reached / 1e9:.2f}", f"{flops / moved:.2f}", f"{reached / roof:.0%}"
        rows.append(
            (
                kernel.name,
                f"{kernel.calls:g}",
                f"{kernel.microseconds:.2f}",
                f"{kernel.microseconds / total:.1%}",
                _Html(plots.bar(kernel.microseconds / total)),
                rate,
                intensity,
                limit,
            )
        )
    head = ("kernel", "calls", "µs", "share", "", "GFLOP/s", "op/byte", "of the roof")
    text = (
        f"<h3>{escape(profile.function)}, {escape(profile.isa)}</h3><p>{profile.microseconds:,.2f} µs, the median of "
        f"{profile.steps:,} runs. With a clock around each kernel, the kernels take {total:,.2f} µs.</p>"
    )
    if points:
        plot, caption = plots.roofline(points, peaks)
        text += (
            f"{plot}<p>{escape(caption)} A kernel's area is its share of the time. Bytes are those that a kernel reads and writes, "
            "wherever they are.</p>"
        )
    left_out = len(profile.kernels) - len(points)
    if left_out:
        text += _note(
            f"{left_out} kernels aren't in the roofline: their arithmetic isn't known, or how often a loop runs them."
        )
    return text + _table(head, rows)


def _numbers(request: Request, manifest: Manifest, measurement: measured.Measured | None) -> str:
    if not request.programs:
        return ""
    if measurement is None or not measurement.tested:
        names = [output.name for entry in manifest.entry_points for output in entry.outputs]
        names += [variable.name for variable in manifest.written]
        command = "//tools:measure" if measurement is None else "the target's test, which gen_test = False leaves out,"
        return f"<p>The test compares {escape(_listed(names))} with TensorFlow. {command} adds what it finds.</p>"
    text = ""
    for tested in measurement.tested:
        failed = sum(comparison.verdict == "FAILED" for comparison in tested.comparisons)
        title = f"{tested.program}, {tested.isa}: {len(tested.comparisons)} comparisons, {failed} failed"
        if tested.first:
            text += _warn(f"{title}. The first to diverge, in the order of execution: {tested.first}.")
        else:
            text += f"<p>{escape(title)}. None diverges.</p>"
        if tested.unverified:
            text += _warn(f"Not verified: {_listed(tested.unverified)}. A wrong value of them can pass.")
        rows = [
            (
                comparison.step,
                comparison.tensor,
                f"{comparison.absolute:.3g}",
                f"{comparison.ulp:.3g}",
                f"{comparison.share:.1%}",
                _Html(plots.bar(comparison.share)),
                f"{comparison.sees:.3g}",
                f"{100 * comparison.checked:.4g}%",
                comparison.verdict,
            )
            for comparison in tested.comparisons
        ]
        head = ("step", "tensor", "max abs", "max ulp", "tolerance", "", "sees", "checked", "")
        text += _details("Each tensor, in the order of execution", _table(head, rows), opened=bool(failed))
    return text


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (f", and {len(names) - 12} more" if len(names) > 12 else "")


def _entry(entry: EntryPoint) -> str:
    inputs = _tensors(f"Inputs of {entry.cpp_name}", entry.inputs, "input")
    return inputs + _tensors(f"Outputs of {entry.cpp_name}", entry.outputs, "output")


def _tensors(title: str, tensors: Sequence[Tensor], kind: str) -> str:
    if not tensors:
        return ""
    rows = [
        (tensor.name, f"{tensor.cpp_name}()", f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]", tensor.bytes)
        for tensor in tensors
    ]
    return _details(f"{title} ({len(tensors)})", _table((f"TensorFlow's {kind}", "C++", "type", "bytes"), rows))


def _passes(name: str, passes: dict[str, Any]) -> str:
    changed = [(pass_name, count) for pass_name, count in passes.items() if isinstance(count, int) and count]
    return _details(f"{name}: {len(changed)} passes changed it", _table(("pass", "places"), changed))


def _sizes(request: Request) -> str:
    sizes: Counter[str] = Counter()
    for path in request.objects:
        with open(path, "rb") as file:
            sizes.update(sections(file.read()))
    if not sizes:
        return ""
    total = sum(sizes.values())
    rows = [(name, size, _Html(plots.bar(size / total))) for name, size in sizes.most_common()]
    return (
        _table(("section", "bytes", ""), [*rows, ("all", total, "")])
        + "<p>Of the object files with kernels and constants, of all CPU levels. The linker drops what nothing calls.</p>"
    )


def _fingerprint(stamp: dict[str, Any]) -> str:
    rows = [("all", stamp["fingerprint"]), *stamp["components"].items()]
    return _table(("of", "fingerprint"), rows)


_COVERS = {
    "graph": "an op, an attribute, or an edge",
    "shapes": "a dtype or a shape of an input, an output, or a variable; a size of batch; a shape inside the graph",
    "constants": "the value of a constant or of a frozen variable",
    "config": "a name that C++ or a weight file sees, or which variables are written",
    "flags": "a flag of XLA, or a pass",
    "compiler": "the version of TensorFlow or of the rules",
    "isa": "a CPU level",
}
"""What changes each component of the fingerprint (docs/guide/rebuilds.md)."""


def _again(request: Request, manifest: Manifest, stamps: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """Says what would compile the model again, and what the code contains that could be outside of it."""
    if not stamps:
        return ""
    from tensorflow.core.framework import graph_pb2

    from tfaot.explain import specialized
    from tfaot.explain.build import Build

    path, stamp = stamps[0]
    graph = graph_pb2.GraphDef()
    with open(request.graph, "rb") as file:
        graph.ParseFromString(file.read())
    build = Build(
        request.name, manifest, graph, json.loads(_read(request.sources)), {}, Stamp.from_json(_read(path), path=path)
    )
    rows = [(name, value, _COVERS.get(name, "")) for name, value in stamp["components"].items()]
    fed = len(manifest.variables)
    frozen = len(manifest.frozen)
    lines = [
        f"New values of the {fed} variables that aren't frozen compile nothing again." if fed else "",
        f"New values of the {frozen} frozen variables compile the code again." if frozen else "",
        "Names of nodes, comments, lines, and files don't count.",
    ]
    items = "".join(f"<li>{escape(line)}</li>" for line in specialized.findings(build))
    return (
        _table(("component", "now", "what changes it, and so compiles the model again"), rows)
        + "".join(f"<p>{line}</p>" for line in lines if line)
        + (
            f"<p>The code is specialized to values that could be inputs or variables:</p><ul>{items}</ul>"
            if items
            else ""
        )
    )


class _Html(str):
    """Text that is HTML already."""


def _note(*sentences: str) -> str:
    text = " ".join(sentence for sentence in sentences if sentence)
    return f'<p class="note">{escape(text)}</p>' if text else ""


def _warn(text: str) -> str:
    return f'<p class="warn" role="note">{escape(text)}</p>'


def _details(title: str, text: str, *, opened: bool = False) -> str:
    return f"<details{' open' if opened else ''}><summary>{escape(title)}</summary>\n{text}</details>\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    def cell(value: object) -> str:
        if isinstance(value, _Html):
            return f'<td class="bars">{value}</td>'
        if isinstance(value, int):
            return f'<td class="number">{value:,}</td>'
        number = ' class="number"' if re.fullmatch(r"-?[\d,]+(\.\d+)?(e[+-]?\d+)?( ?%)?", str(value)) else ""
        return f"<td{number}>{escape(str(value))}</td>"

    rows = list(rows)
    body = "\n".join("<tr>" + "".join(map(cell, row)) + "</tr>" for row in rows[:ROWS])
    titles = "".join(f'<th scope="col">{escape(title)}</th>' for title in head)
    note = _note(f"The first {ROWS} of {len(rows):,} rows.") if len(rows) > ROWS else ""
    label = escape(next((title for title in head if title), "table"))
    return (
        f'{note}<div class="scroll" tabindex="0" role="group" aria-label="Table: {label}"><table>\n'
        f"<thead><tr>{titles}</tr></thead>\n<tbody>{body}</tbody>\n</table></div>\n"
    )


def _stem(path: str, end: str) -> str:
    return os.path.basename(path).removesuffix(end)


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
