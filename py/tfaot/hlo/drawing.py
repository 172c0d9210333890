"""XLA's own drawing of an HLO module, in Graphviz's language. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

_DROPPED = re.compile(
    # A style sheet that loads a font from a server, comments, places in source files, and attributes that say nothing here.
    r'^stylesheet=<.*?^>\n|^ *//.*?\n|(?<=}) +//.*?$|\nsource: [^\n"]*'
    r"|(?:parameter_replication|frontend_attributes)=\{[^\n]*?\}<br/>",
    re.DOTALL | re.MULTILINE,
)
_BOUND = re.compile(r"(?:<|&lt;)=(?=\d)")
"""What XLA writes before the bound of a size, in some labels without the escape that they need."""
_TITLE = re.compile(r"^label = <<b>.*?>;$", re.MULTILINE)
_DECLARED = re.compile(r"^(?:subgraph )?((?:cluster_)?\d+) (?:\[|\{)", re.MULTILINE)
_ADDRESS = re.compile(r"\b(?:cluster_)?\d{6,}\b")
_PARAMETER = re.compile(r"<b>Parameter (\d+)</b>")


def clean(dot: str, title: str, parameters: Sequence[str], results: Sequence[str]) -> str:
    """Returns a drawing that is the same in each run, and has the user's names.

    Args:
      dot: what XLA wrote for `--xla_dump_hlo_as_dot`.
      title: the drawing's title.
      parameters: names of the entry computation's parameters.
      results: names of its results.
    """
    dot = _BOUND.sub("≤", _DROPPED.sub("", dot))
    # XLA names nodes by their addresses.
    numbers = {
        name: f"{'cluster_' if name[0] == 'c' else 'n'}{number}"
        for number, name in enumerate(dict.fromkeys(_DECLARED.findall(dot)))
    }
    dot = _ADDRESS.sub(lambda match: numbers.get(match[0], match[0]), dot)

    def named(match: re.Match[str]) -> str:
        number = int(match[1])
        return f"{match[0]}<br/>{_text(parameters[number])}" if number < len(parameters) else match[0]

    lines, depth = [], 0
    for line in dot.splitlines():
        depth += line.startswith("subgraph ") - line.startswith("}")
        lines.append(line if depth else _PARAMETER.sub(named, line))  # others are parameters of called computations
    heading = [f"<b>{_text(title)}</b>", *(f"result {number}: {_text(name)}" for number, name in enumerate(results))]
    font = 'fontname="Helvetica";\nnode [fontname="Helvetica"];\nedge [fontname="Helvetica"];'
    label = f"label = <{'<br/>'.join(heading)}>;\n{font}"
    return _TITLE.sub(lambda _: label, "\n".join(lines), count=1) + "\n"


def _text(text: str) -> str:
    return escape("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text))
