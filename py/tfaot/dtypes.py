"""The dtypes that may cross a compiled model's edge: one table, and everything else derives from it."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class DType:
    """One dtype, by its names in each of the languages that meet here."""

    name: str
    """NumPy's name, and TensorFlow's `DType.name`."""
    enum: int
    """`tensorflow.DataType` (tensorflow/core/framework/types.proto)."""
    cpp: str
    """The C++ type of a value."""
    safetensors: str
    """The dtype's code in a safetensors header."""
    bytes: int
    """Size of one value in bytes."""
    floating: bool
    """Whether results may differ from TensorFlow's by rounding."""


ALL: tuple[DType, ...] = (
    DType("float32", 1, "float", "F32", 4, True),
    DType("float64", 2, "double", "F64", 8, True),
    DType("int32", 3, "std::int32_t", "I32", 4, False),
    DType("uint8", 4, "std::uint8_t", "U8", 1, False),
    DType("int16", 5, "std::int16_t", "I16", 2, False),
    DType("int8", 6, "std::int8_t", "I8", 1, False),
    DType("int64", 9, "std::int64_t", "I64", 8, False),
    DType("bool", 10, "bool", "BOOL", 1, False),
    DType("uint16", 17, "std::uint16_t", "U16", 2, False),
    DType("uint32", 22, "std::uint32_t", "U32", 4, False),
    DType("uint64", 23, "std::uint64_t", "U64", 8, False),
)
"""The dtypes that tfcompile accepts for feeds, fetches, and variables (tried with TensorFlow 2.21)."""

BY_NAME = {dtype.name: dtype for dtype in ALL}
BY_ENUM = {dtype.enum: dtype for dtype in ALL}
