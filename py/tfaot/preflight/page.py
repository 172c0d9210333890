"""The report as a page: one HTML file that needs no network and no scripts. Pure."""

from __future__ import annotations

from html import escape

from tfaot.preflight.report import BLOCKER, KINDS, SEVERITIES, EntryPoint, Finding, Place, Report

_STYLE = """
:root { color-scheme: light dark; --line: #8886; --soft: #8882; --blocker: #c62828; --needed: #9a6700; --hazard: #5b5bd6; }
@media (prefers-color-scheme: dark) { :root { --blocker: #ff8a80; --needed: #ffd54f; --hazard: #b3b3ff; } }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 70rem; padding: 1rem; }
h1 { font-size: 1.5rem; margin: 0.5rem 0; } h2 { font-size: 1.2rem; margin: 2rem 0 0.5rem; }
code, td { overflow-wrap: anywhere; } code { font: 0.9em ui-monospace, monospace; }
.verdict { border-left: 0.4rem solid var(--hazard); padding: 0.3rem 0.8rem; background: var(--soft); }
.verdict.blocker { border-color: var(--blocker); }
details { border: 1px solid var(--line); border-radius: 0.4rem; margin: 0.6rem 0; padding: 0.3rem 0.8rem; }
summary { cursor: pointer; padding: 0.3rem 0; } summary:focus-visible { outline: 3px solid var(--hazard); }
.tag { font-weight: 700; text-transform: uppercase; font-size: 0.8rem; margin-right: 0.5rem; }
.blocker .tag { color: var(--blocker); } .needed .tag { color: var(--needed); } .hazard .tag { color: var(--hazard); }
.count { float: right; opacity: 0.8; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
th, td { text-align: left; vertical-align: top; border-top: 1px solid var(--line); padding: 0.3rem 0.6rem 0.3rem 0; }
.scroll { overflow-x: auto; }
@media print { details { break-inside: avoid; } details > * { display: revert; } }
"""


def html(report: Report) -> str:
    """Returns the page."""
    kind = "" if report.compiles else " blocker"
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Preflight: {escape(report.model)}</title>",
        f"<style>{_STYLE}</style>",
        "</head>",
        "<body>",
        "<main>",
        "<h1>Preflight</h1>",
        f'<p class="verdict{kind}">{escape(report.summary)}</p>',
        f"<p>Checked against the compiler of TensorFlow {escape(report.tensorflow)}.</p>",
        *(_entry_point(entry) for entry in report.entry_points),
        "<h2>What the words mean</h2>",
        "<ul>",
        *(f"<li><b>{escape(name)}</b>: {escape(meaning)}.</li>" for name, meaning in SEVERITIES.items()),
        "</ul>",
        "</main>",
        "</body>",
        "</html>",
    ]
    return "\n".join(parts) + "\n"


def _entry_point(entry: EntryPoint) -> str:
    counts = ", ".join(f"{len(entry.of(severity))} {severity}" for severity in SEVERITIES)
    name = escape(entry.name or "The model")
    lines = [
        "<section>",
        f"<h2>{name}</h2>",
        f"<p>{entry.nodes:,} nodes in the graph and {entry.functions:,} functions: {counts}.</p>",
        *(_finding(finding) for finding in entry.findings),
        "</section>",
    ]
    return "\n".join(lines)


def _finding(finding: Finding) -> str:
    is_open = " open" if finding.severity == BLOCKER else ""
    return "\n".join(
        [
            f'<details class="{finding.severity}"{is_open}>',
            f'<summary><span class="tag">{finding.severity}</span>{escape(finding.what)}'
            f'<span class="count">{finding.count:,} ×</span></summary>',
            f"<p><b>To do:</b> {escape(finding.rewrite)}.</p>",
            '<div class="scroll"><table>',
            "<thead><tr><th>node</th><th>line</th><th>in</th><th>times</th><th>why</th></tr></thead>",
            "<tbody>",
            *(_place(place) for place in finding.places),
            "</tbody></table></div>",
            f"<p><small>{escape(finding.kind)}: {escape(KINDS[finding.kind])}.</small></p>",
            "</details>",
        ]
    )


def _place(place: Place) -> str:
    cells = [
        f"<code>{escape(place.node)}</code>",
        f"<code>{escape(place.source)}</code>" if place.source else "",
        escape(" › ".join(place.nesting)),
        f"{place.count:,}",
        escape(place.because),
    ]
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
