"""An HLO module, read from its proto."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from tensorflow.compiler.xla.service import hlo_pb2

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Shape:
    """The shape of a value: an array, or a tuple."""

    dtype: str
    """As HLO has it, such as `f32`, or `tuple`."""
    dims: tuple[int, ...]
    layout: tuple[int, ...]
    """Dimensions, the one that is adjacent in memory first."""
    dynamic: tuple[bool, ...]
    """For each dimension, whether its size is known only at run time. `dims` then has the largest size."""
    parts: tuple[Shape, ...]
    """Of a tuple."""

    @classmethod
    def of(cls, proto: Any) -> Shape:
        """Reads an `xla.ShapeProto`."""
        dims = tuple(proto.dimensions)
        return cls(
            _dtypes()[proto.element_type],
            dims,
            tuple(proto.layout.minor_to_major),
            (*proto.is_dynamic_dimension, *[False] * len(dims))[: len(dims)],
            tuple(map(cls.of, proto.tuple_shapes)),
        )

    @property
    def arrays(self) -> tuple[Shape, ...]:
        """All arrays in it."""
        if self.dtype in ("tuple", "token"):
            return tuple(array for part in self.parts for array in part.arrays)
        return (self,)

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(math.prod(array.dims) for array in self.arrays)

    @property
    def bytes(self) -> int:
        """The bytes of all values."""
        return sum(math.prod(array.dims) * _width(array.dtype) for array in self.arrays)

    @property
    def plain(self) -> bool:
        """Whether it is one array whose size is known."""
        return self.arrays == (self,) and not any(self.dynamic)

    def __str__(self) -> str:
        """Returns HLO's text, with the layout."""
        if self.dtype == "tuple":
            return f"({', '.join(map(str, self.parts))})"
        sizes = ("<=" * dynamic + str(size) for size, dynamic in zip(self.dims, self.dynamic, strict=True))
        layout = f"{{{','.join(map(str, self.layout))}}}" if self.layout else ""
        return f"{self.dtype}[{','.join(sizes)}]{layout}"


@dataclasses.dataclass(frozen=True, eq=False)
class Instruction:
    """An instruction. Operands and computations are given by their names."""

    name: str
    opcode: str
    type: Shape
    operands: tuple[str, ...]
    called: tuple[str, ...]
    """The computations that it calls."""
    attributes: hlo_pb2.HloInstructionProto
    """Everything else."""

    @property
    def dtype(self) -> str:
        """The result's dtype, as HLO has it."""
        return self.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The result's dimensions."""
        return self.type.dims

    @property
    def layout(self) -> tuple[int, ...]:
        """The result's dimensions, the one that is adjacent in memory first."""
        return self.type.layout

    @property
    def count(self) -> int:
        """The number of values."""
        return self.type.count

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The dimensions that a reduction, a broadcast, or a transposition is about."""
        return tuple(self.attributes.dimensions)

    @property
    def number(self) -> int:
        """A parameter's number."""
        return int(self.attributes.parameter_number)

    @property
    def literal(self) -> Array | None:
        """A constant's values; half floats are bits. None if they weren't kept, or for a dtype that has no array."""
        field, dtype = _LITERALS.get(self.dtype, ("", ""))
        content = getattr(self.attributes.literal, field) if field else b""
        if isinstance(content, bytes):
            values = np.frombuffer(content, dtype or "u1")
        elif "c" in dtype:
            values = np.asarray(content, f"<f{int(dtype[2:]) // 2}").view(dtype)
        else:
            values = np.asarray(content, dtype)
        return values.reshape(self.shape) if values.size == self.count else None

    @functools.cached_property
    def value(self) -> float | None:
        """The only value of a constant, unless it is complex or a half float.

        A float32 is the shortest of 6 or 9 decimal digits, as in HLO's text, so that generated code is short.
        """
        if self.opcode != "constant" or self.dtype in ("bf16", "f16") or self.type.count != 1:
            return None
        literal = self.literal
        if literal is None or literal.dtype.kind == "c":
            return None
        return short(literal.item(), self.dtype)


@dataclasses.dataclass(frozen=True, eq=False)
class Computation:
    """A computation: the module itself, what a kernel runs, or what an instruction calls for each value."""

    name: str
    instructions: Mapping[str, Instruction]
    """By name, in the order in which they run."""
    root: Instruction
    parameters: tuple[Shape, ...]
    fused: bool
    """Whether it is inside a fusion's kernel."""


@dataclasses.dataclass(frozen=True, eq=False)
class Module:
    """A program."""

    name: str
    computations: Mapping[str, Computation]
    entry: Computation
    parameters: tuple[Shape, ...]
    result: Shape
    """What the host sees, like the parameters."""


def read(proto: hlo_pb2.HloModuleProto) -> Module:
    """Reads a module."""
    names = {computation.id: computation.name for computation in proto.computations}
    computations = {
        computation.name: _computation(computation, names, proto.schedule.sequences)
        for computation in proto.computations
    }
    program = proto.host_program_shape
    return Module(
        proto.name,
        computations,
        computations[names[proto.entry_computation_id]],
        tuple(map(Shape.of, program.parameters)),
        Shape.of(program.result),
    )


def short(number: float, dtype: str) -> float:
    """Returns a value of some dtype as the shortest of 6 or 9 decimal digits if it is a float32, as in HLO's text."""
    if dtype == "f32":
        digits = float(f"{number:.6g}")
        return digits if np.float32(digits) == number else float(f"{number:.9g}")
    return number


def number(content: memoryview, dtype: str) -> float | None:
    """Returns the single value that some bytes are, as `Instruction.value` has it."""
    _, code = _LITERALS.get(dtype, ("", ""))
    if dtype in ("bf16", "f16") or not code or "c" in code or len(content) != np.dtype(code).itemsize:
        return None
    return short(np.frombuffer(content, code).item(), dtype)


def without_arrays(data: bytes) -> bytes:
    """Returns an `xla.HloProto` without the values of constants that have more than one: a model's weights can be many."""
    from tensorflow.compiler.xla.service import hlo_pb2

    proto = hlo_pb2.HloProto.FromString(data)
    for computation in proto.hlo_module.computations:
        for instruction in computation.instructions:
            if instruction.HasField("literal") and math.prod(instruction.shape.dimensions) != 1:
                instruction.ClearField("literal")
    return bytes(proto.SerializeToString())


def _computation(proto: Any, names: Mapping[int, str], schedule: Mapping[int, Any]) -> Computation:
    by_id = {_own(instruction.id): instruction for instruction in proto.instructions}
    order = map(_own, schedule[proto.id].instruction_ids) if proto.id in schedule else by_id
    instructions = {
        by_id[number].name: Instruction(
            by_id[number].name,
            by_id[number].opcode,
            Shape.of(by_id[number].shape),
            tuple(by_id[_own(operand)].name for operand in by_id[number].operand_ids),
            tuple(names[called] for called in by_id[number].called_computation_ids),
            by_id[number],
        )
        for number in order
    }
    return Computation(
        proto.name,
        instructions,
        instructions[by_id[_own(proto.root_id)].name],
        tuple(map(Shape.of, proto.program_shape.parameters)),
        proto.is_fusion_computation,
    )


def _own(number: int) -> int:
    """Returns the part of an instruction's number that is its own. Above it is the computation's, which operands may lack."""
    return number & 0xFFFFFFFF


@functools.cache
def _dtypes() -> Mapping[int, str]:
    from tensorflow.compiler.xla import xla_data_pb2

    return {number: name.lower() for name, number in xla_data_pb2.PrimitiveType.items()}


def _width(dtype: str) -> int:
    bits = "".join(character if character.isdigit() else " " for character in dtype).split()
    return max(1, int(bits[0]) // 8) if bits else 1


_LITERALS: Mapping[str, tuple[str, str]] = {
    "pred": ("preds", "?"),
    "s8": ("s8s", "i1"),
    "s16": ("s16s", "<i2"),
    "s32": ("s32s", "<i4"),
    "s64": ("s64s", "<i8"),
    "u8": ("u8s", "u1"),
    "u16": ("u16s", "<u2"),
    "u32": ("u32s", "<u4"),
    "u64": ("u64s", "<u8"),
    "f16": ("f16s", "<u2"),
    "bf16": ("bf16s", "<u2"),
    "f32": ("f32s", "<f4"),
    "f64": ("f64s", "<f8"),
    "c64": ("c64s", "<c8"),
    "c128": ("c128s", "<c16"),
}
"""By dtype: the literal's field with the values, and their dtype in NumPy."""
