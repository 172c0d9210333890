"""An HLO module, as far as a picture shows it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorflow.compiler.xla.service import hlo_pb2


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One instruction."""

    name: str
    opcode: str
    detail: str
    """What distinguishes it from others with its opcode, such as `LT` or `{1,0}`."""
    shape: str
    operands: tuple[int, ...]
    """Indices of earlier instructions in the computation."""
    called: tuple[str, ...]
    """Names of the computations that it calls."""
    origin: str
    """The name of the TensorFlow op that it comes from, or empty."""
    number: int
    """For a parameter: its number."""
    value: str | None
    """For a scalar constant: its value."""


@dataclasses.dataclass(frozen=True)
class Computation:
    """Instructions, operands before users. `root` is the index of the result."""

    name: str
    instructions: tuple[Instruction, ...]
    root: int


@dataclasses.dataclass(frozen=True)
class Module:
    """The entry computation, then the others in order of their first call."""

    computations: tuple[Computation, ...]


def read(module: hlo_pb2.HloModuleProto) -> Module:
    """Reads a module from its proto."""
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
"""The literal's fields that each contain one kind of value. s8s, u8s, and narrower floats are bytes."""


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
