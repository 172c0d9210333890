"""The report on a compiled model: one HTML file that needs no network and no scripts."""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from tfaot.core.manifest import EntryPoint, Manifest, Tensor
from tfaot.page.program import Program, program, sections

_STYLE = """
:root { color-scheme: light dark; --line: #8886; --accent: #5b5bd6; }
@media (prefers-color-scheme: dark) { :root { --accent: #b3b3ff; } }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 75rem; padding: 1rem; }
h1 { font-size: 1.5rem; margin: 0.5rem 0; } h2 { font-size: 1.2rem; margin: 2rem 0 0.5rem; }
code, pre, td { font: 0.9em ui-monospace, monospace; } code, td { overflow-wrap: anywhere; }
pre, .scroll { overflow: auto; max-height: 32rem; }
nav a { margin-right: 1rem; } a { color: var(--accent); }
a:focus-visible, summary:focus-visible, .scroll:focus-visible, pre:focus-visible { outline: 3px solid var(--accent); }
details { border: 1px solid var(--line); border-radius: 0.4rem; margin: 0.6rem 0; padding: 0.3rem 0.8rem; }
summary { cursor: pointer; padding: 0.3rem 0; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; border-top: 1px solid var(--line); padding: 0.3rem 0.6rem 0.3rem 0; }
th { font-size: 0.9rem; } td.number { text-align: right; }
@media print { pre, .scroll { max-height: none; } details { break-inside: avoid; } nav { display: none; } }
"""


@dataclasses.dataclass(frozen=True)
class Request:
    """What to show, and where to write it. Files of functions are in the same order."""

    name: str
    manifest: str
    passes: tuple[str, ...]
    fingerprints: tuple[str, ...]
    sources: tuple[str, ...]
    """Executors' sources, for one CPU level."""
    objects: tuple[str, ...]
    hlo: tuple[str, ...]
    """HLO before optimization, as text."""
    optimized: tuple[str, ...]
    """The same after it."""
    pictures: tuple[str, ...]
    """SVG drawings of the HLO before optimization."""
    out_page: str


def write(request: Request) -> None:
    """Writes the page.

    Raises:
      TfaotError: a file isn't what the compile stage writes.
    """
    manifest = Manifest.from_json(_read(request.manifest), path=request.manifest)
    programs = [(_stem(path, ".executor.cc"), program(_read(path), path)) for path in request.sources]
    sizes: Counter[str] = Counter()
    for path in request.objects:
        with open(path, "rb") as file:
            sizes.update(sections(file.read()))
    parts = {
        "Compiled": _compiled(manifest, [json.loads(_read(path)) for path in request.fingerprints]),
        "Names": "".join(_entry(entry) for entry in manifest.entry_points)
        + _tensors("Variables", manifest.variables, "variable"),
        "Kernels and memory": "".join(_program(name, each) for name, each in programs),
        "Passes": "".join(_passes(_stem(path, ".passes.json"), json.loads(_read(path))) for path in request.passes),
        "HLO": "".join(
            _hlo(*map(_read, each)) for each in zip(request.hlo, request.optimized, request.pictures, strict=True)
        ),
        "Sizes": _table(("section", "bytes"), [(name, size) for name, size in sizes.most_common()])
        + "<p>Of the object files with kernels and constants. The linker drops what nothing calls.</p>",
        "Fingerprints": "".join(_fingerprint(json.loads(_read(path))) for path in request.fingerprints),
    }
    with open(request.out_page, "w", encoding="utf-8") as file_:
        file_.write(_html(request.name, manifest, parts))


def _html(name: str, manifest: Manifest, parts: dict[str, str]) -> str:
    anchors = {title: title.lower().replace(" ", "-") for title in parts}
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(name)}</title>",
            f"<style>{_STYLE}</style>",
            "</head>",
            "<body>",
            f"<h1>{escape(name)}: <code>{escape(manifest.cpp_class)}</code></h1>",
            "<nav>" + "".join(f'<a href="#{anchor}">{title}</a>' for title, anchor in anchors.items()) + "</nav>",
            "<main>",
            *(f'<section><h2 id="{anchors[title]}">{title}</h2>\n{text}</section>' for title, text in parts.items()),
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _compiled(manifest: Manifest, fingerprints: Sequence[dict[str, Any]]) -> str:
    rows: list[tuple[object, ...]] = [("TensorFlow", manifest.tensorflow)]
    rows += [("rules_tfaot", each["rules"]) for each in fingerprints[:1]]
    rows += [("CPU levels", ", ".join(each["isa"])) for each in fingerprints[:1]]
    rows += [
        ("entry points", ", ".join(entry.cpp_name for entry in manifest.entry_points)),
        ("variables", f"{len(manifest.variables)}, {sum(each.bytes for each in manifest.variables):,} bytes"),
        ("written by a run", ", ".join(each.name for each in manifest.written) or "none"),
        ("frozen into the code", ", ".join(each.name for each in manifest.frozen) or "none"),
    ]
    return _table(("what", "value"), rows)


def _entry(entry: EntryPoint) -> str:
    inputs = _tensors(f"Inputs of {entry.cpp_name}", entry.inputs, "input")
    return inputs + _tensors(f"Outputs of {entry.cpp_name}", entry.outputs, "output")


def _tensors(title: str, tensors: Sequence[Tensor], kind: str) -> str:
    if not tensors:
        return ""
    rows = [
        (each.name, f"{each.cpp_name}()", f"{each.dtype}[{', '.join(map(str, each.shape))}]", each.bytes)
        for each in tensors
    ]
    return _details(f"{title} ({len(tensors)})", _table((f"TensorFlow's {kind}", "C++", "type", "bytes"), rows))


def _program(name: str, made: Program) -> str:
    rows = []
    for number, step in enumerate(made.steps):
        touched = [
            f"{each.buffer} at {each.offset:,}" + (f", {each.bytes:,} bytes" if each.bytes is not None else "")
            for each in step.touched
        ]
        rows.append((number, step.kernel, "; ".join(touched)))
    title = f"{name}: {len(made.steps)} kernel calls, {made.memory:,} bytes of working memory"
    return _details(title, _table(("step", "kernel", "memory"), rows))


def _passes(name: str, passes: dict[str, Any]) -> str:
    changed = [(each, count) for each, count in passes.items() if isinstance(count, int) and count]
    return _details(f"{name}: {len(changed)} passes changed it", _table(("pass", "places"), changed))


def _hlo(before: str, after: str, picture: str) -> str:
    name = before.partition("\n")[0].removeprefix("HloModule ").partition(",")[0]
    drawing = picture[picture.find("<svg") :]
    return "".join(
        [
            _details(f"{name}: before fusion", f'<pre tabindex="0">{escape(before)}</pre>'),
            _details(f"{name}: after fusion", f'<pre tabindex="0">{escape(after)}</pre>'),
            _details(f"{name}: drawing, before fusion", f'<div class="scroll" tabindex="0">{drawing}</div>'),
        ]
    )


def _fingerprint(stamp: dict[str, Any]) -> str:
    rows = [("all", stamp["fingerprint"]), *stamp["components"].items()]
    return _table(("of", "fingerprint"), rows)


def _details(title: str, text: str) -> str:
    return f"<details><summary>{escape(title)}</summary>\n{text}</details>\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    def cell(value: object) -> str:
        if isinstance(value, int):
            return f'<td class="number">{value:,}</td>'
        return f"<td>{escape(str(value))}</td>"

    body = "\n".join("<tr>" + "".join(map(cell, row)) + "</tr>" for row in rows)
    titles = "".join(f"<th>{escape(each)}</th>" for each in head)
    return f'<div class="scroll" tabindex="0"><table>\n<tr>{titles}</tr>\n{body}\n</table></div>\n'


def _stem(path: str, end: str) -> str:
    return os.path.basename(path).removesuffix(end)


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
