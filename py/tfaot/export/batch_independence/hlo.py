"""Compares the shapes and attributes of two instructions. Pure."""

from __future__ import annotations

from typing import Any

from tfaot.xla.module import Shape

SIZES = (2, 1009)
"""The batch sizes to compare. They are far apart, so a clipped or rounded row count differs between them."""


def batch_of(one: Shape, other: Shape) -> tuple[int, int] | bool | None:
    """Finds the batch dimension of two shapes, and the number of elements that a row has in it.

    Returns:
      None if the shapes are equal; False if they differ in another way.
    """
    differing = [i for i, (a, b) in enumerate(zip(one.dims, other.dims, strict=False)) if a != b]
    if len(one.dims) != len(other.dims) or len(differing) > 1:
        return False
    if not differing:
        return None
    a, b = one.dims[differing[0]], other.dims[differing[0]]
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
    """Returns whether the attributes of two instructions with the same opcode are equivalent except for sizes."""
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
