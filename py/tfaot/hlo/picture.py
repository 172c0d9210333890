"""Draws an HLO module as SVG.

To keep the picture legible, it doesn't draw one box for each instruction (`boxes`) and one line for each operand (`layout`).

Loop bodies, branches, and other called computations follow below the entry, each in its own frame. Beyond `LIMIT`
instructions, the picture says that it's cut.
"""

from __future__ import annotations

import html
import itertools
from collections.abc import Sequence

from tfaot.hlo.boxes import Box, Reader
from tfaot.hlo.layout import CHARACTER, LINE, PADDING, Drawing, cut, lay_out
from tfaot.xla.module import Computation, Module

LIMIT = 1500
"""The most instructions to draw."""

_MARGIN = 24

_LEGEND = {
    "input": "parameter",
    "product": "product, convolution",
    "reduction": "reduction",
    "elementwise": "elementwise",
    "movement": "data movement",
    "control": "call, loop, branch",
    "random": "random numbers",
    "output": "result",
}
_STYLE = """\
text { font: 11px 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: #1b1f24; }
.title { font-size: 16px; font-weight: bold; }
.note { font-size: 13px; font-weight: bold; fill: #b3261e; }
.shape, .number { fill: #6a737d; }
.number { font-size: 9px; }
.frame { fill: #fafbfc; stroke: #c5ccd3; }
.box { fill: #ffffff; stroke: #8a949e; }
.edge { fill: none; stroke: #7d8790; }
.link { fill: #0b57d0; }
.input { fill: #2f6fde; }
.product { fill: #8430ce; }
.reduction { fill: #c2571a; }
.elementwise { fill: #d9a400; }
.movement { fill: #93a1ad; }
.control { fill: #b3261e; }
.random { fill: #00838f; }
.output { fill: #188038; }
.reference { fill: none; }
"""


def draw(
    module: Module, *, title: str, parameters: Sequence[str] = (), results: Sequence[str] = (), when: str = "before"
) -> str:
    """Returns the text of an SVG file.

    Args:
      module: the module to draw.
      title: the picture's title.
      parameters: names of the entry computation's parameters.
      results: names of the entry computation's results.
      when: whether this is the module `before` or `after` optimization.
    """
    entry, *others = all_ = _in_order(module)
    inline = {computation.name: computation.root.opcode for computation in others if _in_line(computation)}
    shown = [computation for computation in all_ if computation.name not in inline]
    room = LIMIT
    parts: list[str] = []
    first = 1
    y, width = 96.0, 900.0
    unused: list[str] = []
    for computation in shown:
        count = min(len(computation.instructions), room)
        room -= count
        if count == 0:
            break
        is_entry = computation is entry
        reader = Reader(computation, count, parameters if is_entry else (), results if is_entry else (), inline)
        if is_entry:
            unused = reader.unused
        drawing = lay_out(reader.boxes(), first)
        role = "entry" if is_entry else "called"
        heading = f"{role}: {computation.name}, {len(computation.instructions)} instructions"
        parts += draw_computation(drawing, heading, y, first)
        first += len(drawing.boxes)
        y += drawing.height + 2 * _MARGIN + 24 + _MARGIN
        width = max(width, drawing.width + 4 * _MARGIN)
    head = _draw_head(all_, title, when, sum(len(computation.instructions) for computation in shown))
    if unused:
        y = _paragraph(head, "unused: " + ", ".join(unused[:20]) + (" …" if len(unused) > 20 else ""), y)
    size = f'width="{width:.0f}" height="{y:.0f}" viewBox="0 0 {width:.0f} {y:.0f}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
            f"<title>{_escape(title)}</title>",
            f"<style>\n{_STYLE}</style>",
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            *head,
            *parts,
            "</svg>\n",
        ]
    )


def _in_line(computation: Computation) -> bool:
    """Returns whether a computation is one operation on its parameters. Its name in the caller's line then says it all."""
    return len(computation.instructions) <= 4 and all(
        instruction.opcode == "parameter" or instruction is computation.root
        for instruction in computation.instructions.values()
    )


def _in_order(module: Module) -> list[Computation]:
    """Returns the entry computation, then the others in the order of their first call."""
    order: dict[str, Computation] = {}

    def visit(computation: Computation) -> None:
        if computation.name not in order:
            order[computation.name] = computation
            for instruction in computation.instructions.values():
                for called in instruction.called:
                    visit(module.computations[called])

    visit(module.entry)
    return [*order.values()]


def _draw_head(computations: Sequence[Computation], title: str, when: str, total: int) -> list[str]:
    """Draws what appears above all computations. `total` is how many instructions there are to draw."""
    head = [
        f'<text class="title" x="{_MARGIN}" y="34">{_escape(title)}</text>',
        f'<text x="{_MARGIN}" y="54">HLO {when} optimization: {sum(len(c.instructions) for c in computations)} '
        f"instructions in {len(computations)} computations</text>",
        *_draw_legend(72),
    ]
    if total > LIMIT:
        head.append(
            f'<text class="note" x="420" y="34">cut: {LIMIT} of {total} instructions are drawn; the text has them all'
            "</text>"
        )
    return head


def _paragraph(lines: list[str], text: str, y: float) -> float:
    lines.append(f'<text x="{_MARGIN}" y="{y:.0f}">{_escape(text)}</text>')
    return y + _MARGIN


def _draw_legend(y: float) -> list[str]:
    lines = []
    x = float(_MARGIN)
    for kind, meaning in _LEGEND.items():
        lines.append(f'<rect class="{kind}" x="{x:.0f}" y="{y:.0f}" width="10" height="10"/>')
        lines.append(f'<text x="{x + 15:.0f}" y="{y + 9:.0f}">{meaning}</text>')
        x += 15 + CHARACTER * len(meaning) + 18
    return lines


def draw_computation(drawing: Drawing, heading: str, top: float, first: int) -> list[str]:
    """Returns lines of SVG: a frame with a heading, and in it the boxes, numbered from `first`, and their edges."""
    x0, y0 = 2.0 * _MARGIN, top + _MARGIN + 24
    width = max(drawing.width, CHARACTER * len(heading)) + 2 * _MARGIN
    lines = [
        f'<rect class="frame" x="{_MARGIN}" y="{top:.0f}" width="{width:.0f}" '
        f'height="{drawing.height + 2 * _MARGIN + 24:.0f}" rx="6"/>',
        f'<text x="{2 * _MARGIN}" y="{top + 22:.0f}" font-weight="bold">{_escape(heading)}</text>',
    ]
    for path in drawing.paths:
        commands = [f"M{x0 + path[0].x:.0f},{y0 + path[0].y + path[0].height:.0f}"]
        y_from = y0 + path[0].y + path[0].height
        for upper, lower in itertools.pairwise(path):
            x_from, x_to, y_to = x0 + upper.x, x0 + lower.x, y0 + lower.y
            half = (y_from + y_to) / 2
            commands.append(f"C{x_from:.0f},{half:.0f} {x_to:.0f},{half:.0f} {x_to:.0f},{y_to:.0f}")
            y_from = y_to + (lower.height if lower is not path[-1] else 0)
            if lower is not path[-1]:
                commands.append(f"V{y_from:.0f}")
        lines.append(f'<path class="edge" d="{"".join(commands)}"/>')
    for index, box in enumerate(drawing.boxes):
        lines += _draw_box(box, x0, y0, first + index)
    return lines


def _draw_box(box: Box, x0: float, y0: float, number: int) -> list[str]:
    x, y = x0 + box.x - box.width / 2, y0 + box.y
    lines = [
        f'<g id="box{number}">',
        f'<rect class="box" x="{x:.0f}" y="{y:.0f}" width="{box.width:.0f}" height="{box.height:.0f}" rx="3"/>',
        f'<text class="number" x="{x + box.width - 4:.0f}" y="{y + 9:.0f}" text-anchor="end">#{number}</text>',
    ]
    for place, row in enumerate(box.rows):
        top = y + PADDING + 8 + LINE * place
        baseline = top + 11
        if row.kind == "reference":
            word, *numbers = row.left.split(" ")
            links = " ".join(f'<a href="#box{n[1:]}"><tspan class="link">{n}</tspan></a>' for n in numbers)
            lines.append(f'<text x="{x + PADDING + 8:.0f}" y="{baseline:.0f}">{word} {links}</text>')
            continue
        lines.append(f'<rect class="{row.kind}" x="{x + 4:.0f}" y="{top + 1:.0f}" width="5" height="13"/>')
        shape = f'  <tspan class="shape">{_escape(row.right)}</tspan>' if row.right else ""
        colour = f' class="{row.kind}"' if row.kind in ("input", "output") else ""
        lines.append(
            f'<text xml:space="preserve"{colour} x="{x + PADDING + 8:.0f}" y="{baseline:.0f}">'
            f"<title>{_escape(row.tooltip)}</title>{_escape(cut(row.left))}{shape}</text>"
        )
    lines.append("</g>")
    return lines


def _escape(text: str) -> str:
    """Escapes what XML reserves, and replaces what XML doesn't allow."""
    return html.escape("".join(c if c in "\t\n" or c >= " " else "\N{REPLACEMENT CHARACTER}" for c in text))
