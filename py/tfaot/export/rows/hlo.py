"""Reads HLO programs: instructions, literals, and comparisons of two instructions. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

SIZES = (2, 1009)
"""The batch sizes to compare. They are far apart, so a clipped or rounded row count differs between them."""

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Module:
    """An HLO program, indexed for the walk."""

    computations: Mapping[int, Any]
    instructions: Mapping[int, Mapping[int, Any]]
    """Instructions by computation, then by id."""
    entry: int

    @classmethod
    def of(cls, proto: Any) -> Module:
        """Reads an HloModuleProto."""
        computations = {computation.id: computation for computation in proto.computations}
        instructions = {
            number: {instruction.id: instruction for instruction in computation.instructions}
            for number, computation in computations.items()
        }
        return cls(computations, instructions, proto.entry_computation_id)


TUPLE = 13
"""The value of `TUPLE` in xla_data.proto."""


def batch_of(one: Any, other: Any) -> tuple[int, int] | bool | None:
    """Finds the batch dimension of two shapes, and the number of elements that a row has in it.

    Returns:
      None if the shapes are equal; False if they differ in another way.
    """
    differing = [i for i, (a, b) in enumerate(zip(one.dimensions, other.dimensions, strict=False)) if a != b]
    if len(one.dimensions) != len(other.dimensions) or len(differing) > 1:
        return False
    if not differing:
        return None
    a, b = one.dimensions[differing[0]], other.dimensions[differing[0]]
    if a % SIZES[0] or b % SIZES[1] or a // SIZES[0] != b // SIZES[1]:
        return False
    return differing[0], a // SIZES[0]


_LINKS = (
    "backend_config",
    "called_computation_ids",
    "control_predecessor_ids",
    "dynamic_slice_sizes",
    "frontend_attributes",
    "gather_slice_sizes",
    "id",
    "literal",
    "metadata",
    "name",
    "operand_ids",
    "shape",
    "slice_dimensions",
    "statistics_viz",
)
"""Fields in which equivalent instructions may differ. The rules compare sizes themselves."""


def same_attributes(one: Any, other: Any) -> bool:
    """Returns whether two instructions with the same opcode are equivalent except for sizes."""
    copies = []
    for instruction in (one, other):
        copy = type(instruction)()
        for field, content in instruction.ListFields():
            if field.name not in _LINKS:
                if field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED:
                    getattr(copy, field.name).extend(content)
                elif field.message_type:
                    getattr(copy, field.name).CopyFrom(content)
                else:
                    setattr(copy, field.name, content)
        copies.append(copy)
    return bool(copies[0] == copies[1])


_LITERALS: Mapping[int, tuple[str, str]] = {
    1: ("preds", "?"),
    2: ("s8s", "i1"),
    3: ("s16s", "<i2"),
    4: ("s32s", "<i4"),
    5: ("s64s", "<i8"),
    6: ("u8s", "u1"),
    7: ("u16s", "<u2"),
    8: ("u32s", "<u4"),
    9: ("u64s", "<u8"),
    10: ("f16s", "<u2"),
    11: ("f32s", "<f4"),
    12: ("f64s", "<f8"),
    15: ("c64s", "<c8"),
    16: ("bf16s", "<u2"),
    18: ("c128s", "<c16"),
}
"""By xla_data.proto element type: the literal's field with the values, and their dtype. Half floats are bits."""


def literal(instruction: Any) -> Array | None:
    """Returns a constant's values, or None if its element type isn't supported."""
    field, dtype = _LITERALS.get(instruction.shape.element_type, ("", ""))
    if not field:
        return None
    content = getattr(instruction.literal, field)
    if isinstance(content, bytes):
        values = np.frombuffer(content, dtype)
    elif "c" in dtype:
        values = np.asarray(content, f"<f{int(dtype[2:]) // 2}").view(dtype)
    else:
        values = np.asarray(content, dtype)
    shape = tuple(instruction.shape.dimensions)
    return values.reshape(shape) if values.size == math.prod(shape) else None
