"""A picture of an HLO module, as SVG: what there is to see in it, laid out by layers.

To be legible, it does not draw one box for each instruction and one line for each operand:

- Instructions that only feed each other share a box, one line each.
- A scalar constant stands in the line that uses it, `multiply(·, 0.01)`, and so does what reduces: `reduce add`.
- A parameter stands in every box that uses it, above the line that does, under the name that the user gave it.
- What only packs and unpacks tuples, as around loops, is left out.
- What is used far below is not connected by a line: both boxes name the other one's number, and link to it.

Loop bodies, branches, and other called computations follow below, each in a frame of its own. Beyond `LIMIT`
instructions the picture says that it is cut.
"""

from __future__ import annotations

import dataclasses
import html
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorflow.compiler.xla.service import hlo_pb2

LIMIT = 1500
"""How many instructions are drawn at most."""

_FAR = 6
"""An edge over more layers than this becomes a pair of references."""
_ROWS = 16
"""Lines that a box has at most."""
_NAME = 44
"""Characters of a name that are shown at most; all of it is in the tooltip."""

# Pixels.
_CHARACTER, _LINE, _PADDING = 6.65, 15, 6
_BETWEEN_BOXES, _BETWEEN_LAYERS, _MARGIN = 28, 34, 24


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One instruction."""

    name: str
    opcode: str
    detail: str
    """What distinguishes it from others of its opcode, such as `LT` or `{1,0}`."""
    shape: str
    operands: tuple[int, ...]
    """Indices of earlier instructions of the computation."""
    called: tuple[str, ...]
    """Names of computations."""
    origin: str
    """Name of the TensorFlow op it comes from, or empty."""
    number: int
    """Of a parameter: which one."""
    value: str | None
    """Of a scalar constant: its value."""


@dataclasses.dataclass(frozen=True)
class Computation:
    """Instructions, operands before users; `root` is the index of the result."""

    name: str
    instructions: tuple[Instruction, ...]
    root: int


@dataclasses.dataclass(frozen=True)
class Module:
    """The entry computation first, then the others in order of their first call."""

    computations: tuple[Computation, ...]


def read(module: hlo_pb2.HloModuleProto) -> Module:
    """Reads the message of a module."""
    by_id = {computation.id: computation for computation in module.computations}
    order: dict[int, None] = {}

    def visit(number: int) -> None:
        if number in order:
            return
        order[number] = None
        for instruction in by_id[number].instructions:
            for called in instruction.called_computation_ids:
                visit(called)

    visit(module.entry_computation_id)
    return Module(tuple(_computation(by_id[number], by_id) for number in order))


def _computation(computation: Any, by_id: Mapping[int, Any]) -> Computation:
    index = {instruction.id: position for position, instruction in enumerate(computation.instructions)}
    return Computation(
        name=computation.name,
        instructions=tuple(
            Instruction(
                name=instruction.name,
                opcode=instruction.opcode,
                detail=_detail(instruction),
                shape=_shape(instruction.shape),
                operands=tuple(index[operand] for operand in instruction.operand_ids),
                called=tuple(by_id[called].name for called in instruction.called_computation_ids),
                origin=instruction.metadata.op_name,
                number=instruction.parameter_number,
                value=_value(instruction),
            )
            for instruction in computation.instructions
        ),
        root=index[computation.root_id],
    )


def _shape(shape: Any) -> str:
    from tensorflow.compiler.xla import xla_data_pb2

    if shape.tuple_shapes:
        inner = [_shape(part) for part in shape.tuple_shapes]
        return "(" + ", ".join(inner[:3]) + (f", … {len(inner)}" if len(inner) > 3 else "") + ")"
    kind = xla_data_pb2.PrimitiveType.Name(shape.element_type).lower()
    bounded = list(shape.is_dynamic_dimension) or [False] * len(shape.dimensions)
    dims = [("<=" if dynamic else "") + str(size) for size, dynamic in zip(shape.dimensions, bounded, strict=False)]
    return f"{kind}[{','.join(dims)}]"


def _detail(instruction: Any) -> str:
    opcode = instruction.opcode
    if opcode in ("transpose", "broadcast", "reduce", "concatenate", "iota", "reverse", "sort"):
        return "{" + ",".join(map(str, instruction.dimensions)) + "}"
    if opcode == "compare":
        return str(instruction.comparison_direction)
    if opcode == "get-tuple-element":
        return str(instruction.tuple_index)
    if opcode == "custom-call":
        return str(instruction.custom_call_target)
    if opcode in ("dot", "ragged-dot"):
        dot = instruction.dot_dimension_numbers
        sides = (dot.lhs_contracting_dimensions, dot.rhs_contracting_dimensions)
        return "·".join("{" + ",".join(map(str, side)) + "}" for side in sides)
    if opcode in ("convolution", "reduce-window", "select-and-scatter"):
        return "×".join(str(dimension.size) for dimension in instruction.window.dimensions)
    if opcode == "slice":
        return "[" + ", ".join(f"{part.start}:{part.limit}" for part in instruction.slice_dimensions) + "]"
    return ""


_VALUES = ("preds", "s8s", "u8s", "s32s", "s64s", "u32s", "u64s", "f32s", "f64s", "c64s", "c128s")
"""Fields of a literal that hold one kind of value each; s8s, u8s, and narrower floats are bytes."""


def _value(instruction: Any) -> str | None:
    if instruction.opcode != "constant" or instruction.shape.tuple_shapes:
        return None
    if math.prod(instruction.shape.dimensions) != 1:
        return None
    for field in _VALUES:
        values = getattr(instruction.literal, field)
        if isinstance(values, bytes):
            if len(values) == 1:
                return str(int.from_bytes(values, "little", signed=field == "s8s"))
        elif len(values) == 1:
            return f"{values[0]:.6g}" if field in ("f32s", "f64s") else str(values[0])
    return "const"


@dataclasses.dataclass
class _Row:
    """A line of a box."""

    left: str
    right: str
    kind: str
    """Class in the style sheet: what colour its stripe has."""
    tooltip: str


@dataclasses.dataclass
class _Box:
    """A box of the picture: a run of instructions, or a bend of an edge, which has no rows."""

    rows: list[_Row] = dataclasses.field(default_factory=list)
    sources: list[int] = dataclasses.field(default_factory=list)
    """Numbers of the boxes that it uses."""
    layer: int = 0
    width: float = 0
    height: float = 0
    x: float = 0
    """Of its centre."""
    y: float = 0
    """Of its top."""


_KINDS = {
    "product": ("dot", "ragged-dot", "convolution", "triangular-solve", "cholesky", "fft"),
    "reduction": ("reduce", "reduce-window", "sort", "select-and-scatter", "scatter", "topk"),
    "movement": (
        "bitcast",
        "bitcast-convert",
        "broadcast",
        "concatenate",
        "constant",
        "copy",
        "dynamic-slice",
        "dynamic-update-slice",
        "gather",
        "get-tuple-element",
        "iota",
        "pad",
        "reshape",
        "reverse",
        "slice",
        "transpose",
        "tuple",
    ),
    "control": ("call", "conditional", "custom-call", "fusion", "while"),
    "random": ("rng", "rng-bit-generator", "rng-get-and-update-state"),
}
_KIND_OF = {opcode: kind for kind, opcodes in _KINDS.items() for opcode in opcodes}
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


class _Reader:
    """Turns one computation into boxes."""

    def __init__(
        self,
        computation: Computation,
        count: int,
        parameters: Sequence[str],
        results: Sequence[str],
        inline: Mapping[str, str],
    ) -> None:
        self._instructions = computation.instructions[:count]
        self._parameters = parameters
        self._inline = inline
        self._results: dict[int, list[str]] = defaultdict(list)
        self._operands: list[tuple[int, ...]] = []
        """Of each instruction, past tuples that are packed only to be unpacked."""
        for instruction in self._instructions:
            self._operands.append(tuple(self._past_tuple(operand) for operand in instruction.operands))
        root = computation.root
        self._hidden: set[int] = set()
        if root < count:
            if self._instructions[root].opcode == "tuple":
                self._hidden.add(root)
                for place, operand in enumerate(self._operands[root]):
                    label = results[place] if place < len(results) else ""
                    self._results[operand].append(f"result {place} {label}".rstrip())
            else:
                self._results[root].append(f"result 0 {results[0]}" if results else "result")
        self._users: list[list[int]] = [[] for _ in self._instructions]
        for index in reversed(range(count)):
            packs = self._instructions[index].opcode in ("tuple", "get-tuple-element")
            if packs and not self._users[index] and index not in self._results:
                self._hidden.add(index)
            if index not in self._hidden:
                for operand in self._operands[index]:
                    self._users[operand].append(index)
        self.unused = [
            self._input_name(index)
            for index, instruction in enumerate(self._instructions)
            if instruction.opcode == "parameter" and not self._users[index] and index not in self._results
        ]

    def _past_tuple(self, index: int) -> int:
        """What an operand really is: an element of a tuple that is packed in sight is the thing itself."""
        instruction = self._instructions[index]
        if instruction.opcode == "get-tuple-element":
            source = self._operands[index][0]
            if self._instructions[source].opcode == "tuple":
                return self._operands[source][int(instruction.detail)]
        return index

    def boxes(self) -> list[_Box]:
        """Returns the boxes, sources before users."""
        boxes: list[_Box] = []
        at: dict[int, int] = {}
        """Box of each instruction."""
        tails: dict[int, int] = {}
        """Last instruction of each box."""
        for index in range(len(self._instructions)):
            if index in self._hidden or self._literal(index) is not None:
                continue
            if self._is_input(index) and index not in self._results:
                continue
            place = None
            for operand in self._operands[index]:
                if operand in at and len(self._users[operand]) == 1 and operand not in self._results:
                    candidate = at[operand]
                    if tails[candidate] == operand and len(boxes[candidate].rows) < _ROWS:
                        place = candidate
                        break
            if place is None:
                place = len(boxes)
                boxes.append(_Box())
            at[index], tails[place] = place, index
            box = boxes[place]
            for operand in self._operands[index]:
                if operand in at and at[operand] != place and at[operand] not in box.sources:
                    box.sources.append(at[operand])
            box.rows += self._rows(index)
        return _in_order(boxes)

    def _is_input(self, index: int) -> bool:
        instruction = self._instructions[index]
        if instruction.opcode == "parameter":
            return True
        return instruction.opcode == "get-tuple-element" and self._is_input(self._operands[index][0])

    def _input_name(self, index: int) -> str:
        instruction = self._instructions[index]
        if instruction.opcode == "parameter":
            name = self._parameters[instruction.number] if instruction.number < len(self._parameters) else ""
            return f"parameter {instruction.number} {name}".rstrip()
        return f"{self._input_name(self._operands[index][0])}.{instruction.detail}"

    def _literal(self, index: int) -> str | None:
        """The value of a constant, also one that is only spread over a shape or converted."""
        while self._instructions[index].opcode in ("broadcast", "reshape", "convert", "bitcast"):
            index = self._operands[index][0]
        return self._instructions[index].value

    def _rows(self, index: int) -> list[_Row]:
        """An instruction's lines: the parameters that it uses, itself, and which results it is."""
        instruction = self._instructions[index]
        rows = []
        if not self._is_input(index):
            for operand in dict.fromkeys(self._operands[index]):
                if self._is_input(operand):
                    source = self._instructions[operand]
                    rows.append(_Row(self._input_name(operand), source.shape, "input", source.name))
        literals = [self._literal(operand) for operand in self._operands[index]]
        arguments = ""
        if any(literal is not None for literal in literals):
            arguments = "(" + ", ".join("·" if literal is None else literal for literal in literals) + ")"
        detail = [instruction.detail] if instruction.detail else []
        detail += dict.fromkeys(self._inline.get(name, name) for name in instruction.called)
        left = " ".join([instruction.opcode + arguments, *detail])
        kind = _KIND_OF.get(instruction.opcode, "elementwise")
        if self._is_input(index):
            left, kind = self._input_name(index), "input"
        tooltip = f"%{instruction.name} = {instruction.shape} {instruction.opcode}"
        if instruction.origin:
            tooltip += f"\nfrom {instruction.origin}"
        rows.append(_Row(left, instruction.shape, kind, tooltip))
        rows += [_Row(label, "", "output", tooltip) for label in self._results.get(index, ())]
        return rows


def _in_order(boxes: list[_Box]) -> list[_Box]:
    """Sorts boxes so that sources come first: a box may have got a later source with its last line."""
    position: dict[int, int] = {}
    ordered: list[_Box] = []
    for start in range(len(boxes)):
        stack = [(start, iter(boxes[start].sources))]
        while stack:
            number, sources = stack[-1]
            if number in position:
                stack.pop()
                continue
            following = next((source for source in sources if source not in position), None)
            if following is not None:
                stack.append((following, iter(boxes[following].sources)))
                continue
            position[number] = len(ordered)
            ordered.append(boxes[number])
            stack.pop()
    for box in ordered:
        box.sources = sorted(position[source] for source in box.sources)
    return ordered


@dataclasses.dataclass
class _Drawing:
    """A computation's boxes with their places."""

    boxes: list[_Box]
    paths: list[list[_Box]]
    """Each edge, from its source over its bends to its user."""
    width: float
    height: float


def _lay_out(boxes: list[_Box], first: int) -> _Drawing:
    """Places boxes in layers.

    Args:
      boxes: sources before users.
      first: number of the first box in the picture, for references.
    """
    users: list[list[int]] = [[] for _ in boxes]
    for number, box in enumerate(boxes):
        box.layer = 1 + max((boxes[source].layer for source in box.sources), default=-1)
        for source in box.sources:
            users[source].append(number)
    for number in reversed(range(len(boxes))):  # what nothing holds up moves down to its users
        if not boxes[number].sources and users[number]:
            boxes[number].layer = min(boxes[user].layer for user in users[number]) - 1

    near: list[tuple[int, int]] = []
    to: dict[int, list[int]] = defaultdict(list)
    since: dict[int, list[int]] = defaultdict(list)
    """Users and sources that are too far away for a line."""
    for number, box in enumerate(boxes):
        for source in box.sources:
            if box.layer - boxes[source].layer > _FAR:
                to[source].append(number)
                since[number].append(source)
            else:
                near.append((source, number))
    for number, box in enumerate(boxes):
        if number in since:
            box.rows.insert(0, _Row("from " + _references(since[number], first), "", "reference", ""))
        if number in to:
            box.rows.append(_Row("to " + _references(to[number], first), "", "reference", ""))
        longest = max(len(_cut(row.left)) + (2 + len(row.right) if row.right else 0) for row in box.rows)
        box.width = 2 * _PADDING + 8 + _CHARACTER * longest
        box.height = 2 * _PADDING + _LINE * len(box.rows) + 10

    layers: list[list[_Box]] = [[] for _ in range(1 + max((box.layer for box in boxes), default=0))]
    above: dict[int, list[_Box]] = defaultdict(list)
    below: dict[int, list[_Box]] = defaultdict(list)
    """Neighbours in the layers next to a box's, by its identity."""
    paths = []
    for box in boxes:
        layers[box.layer].append(box)
    for source, user in near:
        path = [boxes[source]]
        for level in range(boxes[source].layer + 1, boxes[user].layer):
            bend = _Box(layer=level, width=8)
            layers[level].append(bend)
            path.append(bend)
        path.append(boxes[user])
        for upper, lower in itertools.pairwise(path):
            above[id(lower)].append(upper)
            below[id(upper)].append(lower)
        paths.append(path)

    _arrange(layers, above, below)
    left = min((box.x - box.width / 2 for layer in layers for box in layer), default=0)
    y = 0.0
    for layer in layers:
        height = max((box.height for box in layer), default=0)
        for box in layer:
            box.x -= left
            box.y = y
            if not box.rows:
                box.height = height
        y += height + _BETWEEN_LAYERS
    width = max((box.x + box.width / 2 for layer in layers for box in layer), default=0)
    return _Drawing(boxes, paths, width, max(y - _BETWEEN_LAYERS, 0))


def _references(numbers: Iterable[int], first: int) -> str:
    return " ".join(f"#{first + number}" for number in numbers)


def _cut(text: str) -> str:
    return text if len(text) <= _NAME else text[: _NAME // 2] + "…" + text[-(_NAME // 2 - 1) :]


def _arrange(layers: list[list[_Box]], above: Mapping[int, list[_Box]], below: Mapping[int, list[_Box]]) -> None:
    """Orders each layer to have few crossings, and places its boxes near those that they are connected to."""
    for layer in layers:
        for index, box in enumerate(layer):
            box.x = float(index)
    for sweep in range(8):
        down = sweep % 2 == 0
        neighbours = above if down else below
        for layer in layers if down else reversed(layers):
            keys = {id(box): _middle(neighbours.get(id(box), ()), box.x) for box in layer}
            layer.sort(key=lambda box: (keys[id(box)], box.x))
            for index, box in enumerate(layer):
                box.x = float(index)
    for layer in layers:
        _spread(layer, [0.0] * len(layer))
    for sweep in range(16):
        down = sweep % 2 == 0
        neighbours = above if down else below
        for layer in layers if down else reversed(layers):
            _spread(layer, [_middle(neighbours.get(id(box), ()), box.x) for box in layer])


def _middle(boxes: Sequence[_Box], otherwise: float) -> float:
    return sum(box.x for box in boxes) / len(boxes) if boxes else otherwise


def _spread(layer: list[_Box], wanted: Sequence[float]) -> None:
    """Places boxes in their order as near as possible (in least squares) to where they want to be, without overlap.

    With the boxes' widths taken off, this is isotonic regression: neighbours that are in the wrong order get their
    common mean.
    """
    offsets = [0.0]
    for one, other in itertools.pairwise(layer):
        gap = _BETWEEN_BOXES if one.rows and other.rows else _BETWEEN_BOXES / 2
        offsets.append(offsets[-1] + (one.width + other.width) / 2 + gap)
    pools: list[tuple[float, int]] = []
    """Sum, and how many."""
    for place, offset in zip(wanted, offsets, strict=False):
        total, count = place - offset, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            more, many = pools.pop()
            total, count = total + more, count + many
        pools.append((total, count))
    places = [total / count for total, count in pools for _ in range(count)]
    for box, place, offset in zip(layer, places, offsets, strict=False):
        box.x = place + offset


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


def draw(module: Module, *, title: str, parameters: Sequence[str] = (), results: Sequence[str] = ()) -> str:
    """Returns the text of an SVG file.

    Args:
      module: what to draw.
      title: of the picture.
      parameters: names of the entry computation's parameters.
      results: names of what it returns.
    """
    entry, *others = module.computations
    inline = {
        computation.name: computation.instructions[computation.root].opcode
        for computation in others
        if len(computation.instructions) <= 4
        and all(
            instruction.opcode == "parameter" or index == computation.root
            for index, instruction in enumerate(computation.instructions)
        )
    }
    shown = [computation for computation in module.computations if computation.name not in inline]
    total = sum(len(computation.instructions) for computation in shown)
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
        reader = _Reader(computation, count, parameters if is_entry else (), results if is_entry else (), inline)
        if is_entry:
            unused = reader.unused
        drawing = _lay_out(reader.boxes(), first)
        role = "entry" if is_entry else "called"
        heading = f"{role}: {computation.name}, {len(computation.instructions)} instructions"
        parts += _draw_computation(drawing, heading, y, first)
        first += len(drawing.boxes)
        y += drawing.height + 2 * _MARGIN + 24 + _MARGIN
        width = max(width, drawing.width + 4 * _MARGIN)
    head = [
        f'<text class="title" x="{_MARGIN}" y="34">{_escape(title)}</text>',
        f'<text x="{_MARGIN}" y="54">HLO before optimization: {sum(len(c.instructions) for c in module.computations)} '
        f"instructions in {len(module.computations)} computations</text>",
        *_draw_legend(72),
    ]
    if unused:
        y = _paragraph(head, "unused: " + ", ".join(unused[:20]) + (" …" if len(unused) > 20 else ""), y)
    if total > LIMIT:
        head.append(
            f'<text class="note" x="420" y="34">cut: {LIMIT} of {total} instructions are drawn; the text has them all'
            "</text>"
        )
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


def _paragraph(lines: list[str], text: str, y: float) -> float:
    lines.append(f'<text x="{_MARGIN}" y="{y:.0f}">{_escape(text)}</text>')
    return y + _MARGIN


def _draw_legend(y: float) -> list[str]:
    lines = []
    x = float(_MARGIN)
    for kind, meaning in _LEGEND.items():
        lines.append(f'<rect class="{kind}" x="{x:.0f}" y="{y:.0f}" width="10" height="10"/>')
        lines.append(f'<text x="{x + 15:.0f}" y="{y + 9:.0f}">{meaning}</text>')
        x += 15 + _CHARACTER * len(meaning) + 18
    return lines


def _draw_computation(drawing: _Drawing, heading: str, top: float, first: int) -> list[str]:
    x0, y0 = 2.0 * _MARGIN, top + _MARGIN + 24
    width = max(drawing.width, _CHARACTER * len(heading)) + 2 * _MARGIN
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


def _draw_box(box: _Box, x0: float, y0: float, number: int) -> list[str]:
    x, y = x0 + box.x - box.width / 2, y0 + box.y
    lines = [
        f'<g id="box{number}">',
        f'<rect class="box" x="{x:.0f}" y="{y:.0f}" width="{box.width:.0f}" height="{box.height:.0f}" rx="3"/>',
        f'<text class="number" x="{x + box.width - 4:.0f}" y="{y + 9:.0f}" text-anchor="end">#{number}</text>',
    ]
    for place, row in enumerate(box.rows):
        top = y + _PADDING + 8 + _LINE * place
        baseline = top + 11
        if row.kind == "reference":
            word, *numbers = row.left.split(" ")
            links = " ".join(f'<a href="#box{n[1:]}"><tspan class="link">{n}</tspan></a>' for n in numbers)
            lines.append(f'<text x="{x + _PADDING + 8:.0f}" y="{baseline:.0f}">{word} {links}</text>')
            continue
        lines.append(f'<rect class="{row.kind}" x="{x + 4:.0f}" y="{top + 1:.0f}" width="5" height="13"/>')
        shape = f'  <tspan class="shape">{_escape(row.right)}</tspan>' if row.right else ""
        colour = f' class="{row.kind}"' if row.kind in ("input", "output") else ""
        lines.append(
            f'<text xml:space="preserve"{colour} x="{x + _PADDING + 8:.0f}" y="{baseline:.0f}">'
            f"<title>{_escape(row.tooltip)}</title>{_escape(_cut(row.left))}{shape}</text>"
        )
    lines.append("</g>")
    return lines


def _escape(text: str) -> str:
    """Escapes what XML reserves, and replaces what it does not allow."""
    return html.escape("".join(c if c in "\t\n" or c >= " " else "\N{REPLACEMENT CHARACTER}" for c in text))
