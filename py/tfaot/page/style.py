"""The style sheet of reports: for light and dark, phones, and print."""

STYLE = """
:root {
  color-scheme: light dark; --line: #8886; --accent: #4b4bc8; --quiet: #5d6670; --ground: #ffffff; --text: #1b1f24;
  --input: #2f6fde; --product: #8430ce; --elementwise: #b98c00; --over: #b3261e; --output: #188038; --warn: #fff3cd;
}
@media screen and (prefers-color-scheme: dark) { :root {
  --accent: #b3b3ff; --quiet: #a7b0ba; --ground: #15181c; --text: #e4e7eb;
  --input: #7aa7ff; --product: #c58af9; --elementwise: #f2c94c; --over: #ff8a80; --output: #6fd388; --warn: #4a3d10;
} .drawing svg { filter: invert(0.9) hue-rotate(180deg); } }
* { box-sizing: border-box; }
html { background: var(--ground); color: var(--text); }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 75rem; padding: 1rem; }
h1 { font-size: 1.5rem; margin: 0.5rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2rem 0 0.5rem; } h3 { font-size: 1rem; margin: 1.2rem 0 0.3rem; overflow-wrap: anywhere; }
p, li { overflow-wrap: anywhere; max-width: 60rem; }
code, pre, td { font: 0.9em ui-monospace, monospace; } code { overflow-wrap: anywhere; } td { overflow-wrap: break-word; }
pre, .scroll { overflow: auto; max-height: 36rem; max-width: 100%; } pre { margin: 0.5rem 0; }
nav { display: flex; flex-wrap: wrap; gap: 0.3rem 1rem; } nav a { padding: 0.2rem 0; } a { color: var(--accent); }
a:focus-visible, summary:focus-visible, .scroll:focus-visible, pre:focus-visible, input:focus-visible {
  outline: 3px solid var(--accent); outline-offset: 2px; }
details { border: 1px solid var(--line); border-radius: 0.4rem; margin: 0.6rem 0; padding: 0.3rem 0.8rem; }
summary { cursor: pointer; padding: 0.3rem 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; border-top: 1px solid var(--line); min-width: 3rem; }
th, td { padding: 0.3rem 0.8rem 0.3rem 0; }
th { font-size: 0.9rem; } td.number { text-align: right; white-space: nowrap; } td.bars { width: 20%; min-width: 5rem; }
.note { color: var(--quiet); font-size: 0.9rem; } .warn { background: var(--warn); border-radius: 0.4rem; padding: 0.5rem 0.8rem; }
fieldset { border: 0; margin: 0.4rem 0; padding: 0; display: flex; flex-wrap: wrap; gap: 0.2rem 1rem; font-size: 0.9rem; }
legend { float: left; padding: 0; margin-right: 1rem; color: var(--quiet); }
.drawing { border: 1px solid var(--line); border-radius: 0.4rem; }
.drawing svg { display: block; height: auto; width: min(var(--w), 100%); }
.zoom:has([value="50"]:checked) svg { width: calc(var(--w) * 0.5); max-width: none; }
.zoom:has([value="100"]:checked) svg { width: var(--w); max-width: none; }
.zoom:has([value="200"]:checked) svg { width: calc(var(--w) * 2); max-width: none; }
.drawing svg { font: 14px Helvetica, Arial, sans-serif; }
.plot { display: block; height: 18rem; width: 100%; border: solid var(--quiet); border-width: 0 0 1px 1px; margin: 0.5rem 0; }
.plot .roof { fill: none; stroke: var(--quiet); stroke-width: 2; vector-effect: non-scaling-stroke; }
.plot .value0 { fill: var(--input); } .plot .value1 { fill: var(--output); } .plot .value2 { fill: var(--elementwise); }
.plot .value3 { fill: var(--product); }
.plot .point { stroke: var(--accent); stroke-linecap: round; stroke-opacity: 0.5; vector-effect: non-scaling-stroke; }
.inline { display: block; width: 100%; height: 0.7em; margin-top: 0.35em; }
.inline .bar { fill: var(--accent); } .inline .over { fill: var(--over); }
@media (max-width: 40rem) { body { padding: 0.6rem; } h1 { font-size: 1.25rem; } th, td { padding-right: 0.5rem; } }
@media print {
  html { font-size: 12px; } nav, fieldset { display: none; } pre, .scroll { max-height: none; overflow: visible; }
  pre { white-space: pre-wrap; overflow-wrap: anywhere; } .drawing svg { width: 100% !important; }
  h2, h3, summary { break-after: avoid; } tr { break-inside: avoid; }
}
"""
