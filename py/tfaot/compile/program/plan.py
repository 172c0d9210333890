"""What the compiler planned for a run: its instructions in order, their arithmetic and traffic, and the memory of each value. Pure.

XLA says it in two texts: the optimized HLO, and the buffer assignment. Only the report on a model reads the result.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping

_COMPUTATION = re.compile(r"^(ENTRY )?%?(\S+) \(.*\{$")
_SHAPE = r"\((?:[^()]|\([^()]*\))*\)|\S+"
_INSTRUCTION = re.compile(rf"^  (?:ROOT )?%?(\S+) = ({_SHAPE}) ([\w-]+)\((.*)$")
_ARRAY = re.compile(r"\b([a-z]+\d*(?:e\d+m\d+\w*)?)\[([\d,<=]*)\]")
_OPERAND = re.compile(r"%([^\s,()]+)")
_CALLED = re.compile(r"(?:calls|to_apply|body|condition)=%?([^\s,)}]+)|branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_ORIGIN = re.compile(r'op_name="([^"]*)"')

_ALLOCATION = re.compile(r"^allocation \d+: size (\d+), (.*)$")
_VALUE = re.compile(r"^ value: <\d+ (\S+) @\d+> \(size=(\d+),offset=(\d+)\): (\S+)")
_ORDER = re.compile(r"^    (\d+):(\S+)$")
_RANGE = re.compile(r"^    (\S+?)\{([\d, ]*)\}:(\d+)-(\d+)$")

_FREE = frozenset(
    [
        "parameter",
        "constant",
        "tuple",
        "get-tuple-element",
        "bitcast",
        "bitcast-convert",
        "reshape",
        "broadcast",
        "iota",
        "copy",
        "slice",
        "dynamic-slice",
        "dynamic-update-slice",
        "transpose",
        "concatenate",
        "pad",
        "reverse",
        "gather",
        "convert",
        "after-all",
        "domain",
        "rng-get-and-update-state",
    ]
)
"""Instructions without arithmetic."""


@dataclasses.dataclass(frozen=True)
class _Instruction:
    name: str
    opcode: str
    shape: str
    rest: str
    """Operands and attributes."""

    @property
    def operands(self) -> list[str]:
        """Names of the operands, which come before the closing parenthesis."""
        depth = 1
        for at, character in enumerate(self.rest):
            depth += (character == "(") - (character == ")")
            if not depth:
                return _OPERAND.findall(self.rest[:at])
        return _OPERAND.findall(self.rest)

    @property
    def called(self) -> list[str]:
        """Names of the computations that it calls."""
        found = []
        for one, many in _CALLED.findall(self.rest):
            found += [one] if one else [each.strip().lstrip("%") for each in many.split(",")]
        return found


_Computation = dict[str, _Instruction]


def plan(hlo: str, buffers: str) -> str:
    """Returns JSON: the steps of the entry computation, and the working memory's values with their places and lives.

    Args:
      hlo: the optimized module's text.
      buffers: XLA's text of its buffer assignment; empty if there is none.
    """
    computations, entry = _computations(hlo)
    steps = [
        {
            "name": instruction.name,
            "opcode": instruction.opcode,
            "flops": _flops(instruction, computations[entry], computations),
            "bytes": sum(
                _bytes(computations[entry][name].shape) for name in instruction.operands if name in computations[entry]
            )
            + _bytes(instruction.shape),
            "origin": "".join(_ORIGIN.findall(instruction.rest)[:1]),
        }
        for instruction in computations.get(entry, {}).values()
        if instruction.opcode not in ("parameter", "constant", "tuple", "get-tuple-element", "bitcast")
    ]
    return json.dumps({"steps": steps, **_memory(buffers)}, indent=1) + "\n"


def _computations(hlo: str) -> tuple[dict[str, _Computation], str]:
    found: dict[str, _Computation] = {}
    entry, current = "", ""
    for line in hlo.splitlines():
        if match := _COMPUTATION.match(line):
            current = match[2]
            found[current] = {}
            entry = current if match[1] else entry
        elif current and (parsed := _INSTRUCTION.match(line)):
            found[current][parsed[1]] = _Instruction(parsed[1], parsed[3], parsed[2], parsed[4])
    return found, entry


def _arrays(shape: str) -> list[tuple[str, list[int]]]:
    return [
        (kind, [int(size.lstrip("<=")) for size in sizes.split(",") if size]) for kind, sizes in _ARRAY.findall(shape)
    ]


def _elements(shape: str) -> int:
    return sum(math.prod(sizes) for _, sizes in _arrays(shape))


def _bytes(shape: str) -> int:
    return sum(math.prod(sizes) * _width(kind) for kind, sizes in _arrays(shape))


def _width(kind: str) -> int:
    bits = re.search(r"\d+", kind)
    return max(1, int(bits[0]) // 8) if bits else 1


def _flops(instruction: _Instruction, computation: _Computation, all_: Mapping[str, _Computation]) -> int:
    """Returns the arithmetic operations of an instruction. A loop whose number of steps isn't known counts as one step."""
    out = _elements(instruction.shape)
    shapes = [computation[name].shape for name in instruction.operands if name in computation]
    if instruction.opcode in ("dot", "ragged-dot") and shapes:
        axes = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", instruction.rest)
        sizes = (_arrays(shapes[0]) or [("", [])])[0][1]
        return 2 * out * math.prod(sizes[int(axis)] for axis in (axes[1] if axes else "").split(",") if axis)
    if instruction.opcode == "convolution" and len(shapes) > 1:
        labels = re.search(r"dim_labels=\w+_(\w+)->", instruction.rest)
        sizes = (_arrays(shapes[1]) or [("", [1])])[0][1]
        features = sizes[labels[1].index("o")] if labels and "o" in labels[1] else 1
        return 2 * out * math.prod(sizes) // max(1, features)
    if instruction.opcode in ("reduce", "reduce-window", "scatter", "select-and-scatter", "sort"):
        return max(_elements(shapes[0]) if shapes else 0, out)
    inner = sum(
        _flops(each, all_[name], all_) for name in instruction.called if name in all_ for each in all_[name].values()
    )
    if instruction.opcode == "while":
        trips = _TRIPS.search(instruction.rest)
        return inner * (int(trips[1]) if trips else 1)
    if instruction.called and instruction.opcode != "map":
        return inner
    return 0 if instruction.opcode in _FREE else out


def _memory(buffers: str) -> dict[str, object]:
    """Returns the size of the working memory, the number of instructions, and the values in memory."""
    size = last = 0
    working = False
    values: list[tuple[str, int, int, str]] = []
    lives: dict[str, tuple[int, int]] = {}
    for line in buffers.splitlines():
        if allocation := _ALLOCATION.match(line):
            working = "preallocated-temp" in allocation[2]
            size = int(allocation[1]) if working else size
        elif working and (value := _VALUE.match(line)):
            values.append((value[1], int(value[2]), int(value[3]), value[4]))
        elif order := _ORDER.match(line):
            last = max(last, int(order[1]))
        elif life := _RANGE.match(line):
            lives[life[1] + (f"{{{life[2]}}}" if life[2] else "")] = int(life[3]), int(life[4])
    placed = [
        {
            "name": name,
            "shape": shape,
            "bytes": bytes_,
            "offset": offset,
            "first": lives[name][0],
            "last": lives[name][1],
        }
        for name, bytes_, offset, shape in values
        if name in lives
    ]
    return {"memory": size, "length": last + 1 if buffers else 0, "values": placed}
