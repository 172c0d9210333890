"""The boxes of a picture. Each is a run of instructions in one computation.

Not every instruction gets a box of its own:

- Instructions that only feed each other share a box, one line each.
- A scalar constant appears in the line that uses it, `multiply(·, 0.01)`, and so does a reducing operation: `reduce add`.
- A parameter appears in every box that uses it, above the line that does, under the user's name for it.
- Instructions that only pack and unpack tuples, as around loops, are left out.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence

from tfaot.xla.module import Computation, Instruction

_ROWS = 16
"""The most lines in a box."""


@dataclasses.dataclass
class Row:
    """A line of a box."""

    left: str
    right: str
    kind: str
    """The class in the style sheet, which determines the color of its stripe."""
    tooltip: str


@dataclasses.dataclass
class Box:
    """A box of the picture: a run of instructions, or a bend of an edge, which has no rows."""

    rows: list[Row] = dataclasses.field(default_factory=list)
    sources: list[int] = dataclasses.field(default_factory=list)
    """Numbers of the boxes that it uses."""
    layer: int = 0
    width: float = 0
    height: float = 0
    x: float = 0
    """The position of its center."""
    y: float = 0
    """The position of its top."""


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


class Reader:
    """Turns one computation into boxes."""

    def __init__(
        self,
        computation: Computation,
        count: int,
        parameters: Sequence[str],
        results: Sequence[str],
        inline: Mapping[str, str],
    ) -> None:
        all_ = [*computation.instructions.values()]
        numbers = {each.name: index for index, each in enumerate(all_)}
        self._instructions = all_[:count]
        self._parameters = parameters
        self._inline = inline
        self._results: dict[int, list[str]] = defaultdict(list)
        self._operands: list[tuple[int, ...]] = []
        """Each instruction's operands, past tuples that are packed only to be unpacked."""
        for instruction in self._instructions:
            self._operands.append(tuple(self._past_tuple(numbers[operand]) for operand in instruction.operands))
        root = numbers[computation.root.name]
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
        """Resolves an element of a tuple that this computation packs to the value itself."""
        instruction = self._instructions[index]
        if instruction.opcode == "get-tuple-element":
            source = self._operands[index][0]
            if self._instructions[source].opcode == "tuple":
                return self._operands[source][int(instruction.attributes.tuple_index)]
        return index

    def boxes(self) -> list[Box]:
        """Returns the boxes, sources before users."""
        boxes: list[Box] = []
        at: dict[int, int] = {}
        """The box of each instruction."""
        tails: dict[int, int] = {}
        """The last instruction of each box."""
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
                boxes.append(Box())
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
        return f"{self._input_name(self._operands[index][0])}.{_detail(instruction)}"

    def _literal(self, index: int) -> str | None:
        """Returns a constant's value, even if the constant is first broadcast or converted."""
        while self._instructions[index].opcode in ("broadcast", "reshape", "convert", "bitcast"):
            index = self._operands[index][0]
        return _value(self._instructions[index])

    def _rows(self, index: int) -> list[Row]:
        """Returns an instruction's lines: the parameters that it uses, the instruction, and the results that it provides."""
        instruction = self._instructions[index]
        rows = []
        if not self._is_input(index):
            for operand in dict.fromkeys(self._operands[index]):
                if self._is_input(operand):
                    source = self._instructions[operand]
                    rows.append(Row(self._input_name(operand), source.type.short, "input", source.name))
        literals = [self._literal(operand) for operand in self._operands[index]]
        arguments = ""
        if any(literal is not None for literal in literals):
            arguments = "(" + ", ".join("·" if literal is None else literal for literal in literals) + ")"
        detail = [text] if (text := _detail(instruction)) else []
        detail += dict.fromkeys(self._inline.get(name, name) for name in instruction.called)
        left = " ".join([instruction.opcode + arguments, *detail])
        kind = _KIND_OF.get(instruction.opcode, "elementwise")
        if self._is_input(index):
            left, kind = self._input_name(index), "input"
        tooltip = f"%{instruction.name} = {instruction.type.short} {instruction.opcode}"
        if origin := instruction.attributes.metadata.op_name:
            tooltip += f"\nfrom {origin}"
        rows.append(Row(left, instruction.type.short, kind, tooltip))
        rows += [Row(label, "", "output", tooltip) for label in self._results.get(index, ())]
        return rows


def _detail(instruction: Instruction) -> str:
    """Returns what distinguishes an instruction from others with its opcode, such as `LT` or `{1,0}`."""
    opcode, attributes = instruction.opcode, instruction.attributes
    if opcode in ("transpose", "broadcast", "reduce", "concatenate", "iota", "reverse", "sort"):
        return "{" + ",".join(map(str, instruction.dimensions)) + "}"
    if opcode == "compare":
        return str(attributes.comparison_direction)
    if opcode == "get-tuple-element":
        return str(attributes.tuple_index)
    if opcode == "custom-call":
        return str(attributes.custom_call_target)
    if opcode in ("dot", "ragged-dot"):
        dot = attributes.dot_dimension_numbers
        sides = (dot.lhs_contracting_dimensions, dot.rhs_contracting_dimensions)
        return "·".join("{" + ",".join(map(str, side)) + "}" for side in sides)
    if opcode in ("convolution", "reduce-window", "select-and-scatter"):
        return "×".join(str(dimension.size) for dimension in attributes.window.dimensions)
    if opcode == "slice":
        return "[" + ", ".join(f"{part.start}:{part.limit}" for part in attributes.slice_dimensions) + "]"
    return ""


def _value(instruction: Instruction) -> str | None:
    """Returns the text of a constant with one value."""
    if instruction.opcode != "constant" or instruction.type.arrays != (instruction.type,) or instruction.count != 1:
        return None
    value = instruction.value
    return "const" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _in_order(boxes: list[Box]) -> list[Box]:
    """Sorts boxes with sources first. This is necessary because the last line of a box may have added a later source."""
    position: dict[int, int] = {}
    ordered: list[Box] = []
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
