"""The dtypes that may cross a model's edge: one table, and everything else derives from it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@dataclasses.dataclass(frozen=True)
class DType:
    """One dtype, by its names in each of the languages that meet here."""

    name: str
    """NumPy's name, and TensorFlow's `DType.name`."""
    enum: int
    """`tensorflow.DataType` (tensorflow/core/framework/types.proto)."""
    cpp: str
    """The C++ type of a value; empty if C++ has none: then only models that stop at HLO may have it at the edge."""
    safetensors: str
    """The dtype's code in a safetensors header; `C128` is ours, the format names none."""
    bytes: int
    """Size of one value in bytes."""
    floating: bool
    """Whether results may differ from TensorFlow's by rounding."""

    def numpy(self) -> np.dtype[Any]:
        """NumPy's dtype; ml_dtypes adds those that NumPy does not have itself."""
        import ml_dtypes  # noqa: F401  (imported to be registered)
        import numpy as np

        return np.dtype(self.name)


ALL: tuple[DType, ...] = (
    DType("float32", 1, "float", "F32", 4, True),
    DType("float64", 2, "double", "F64", 8, True),
    DType("int32", 3, "std::int32_t", "I32", 4, False),
    DType("uint8", 4, "std::uint8_t", "U8", 1, False),
    DType("int16", 5, "std::int16_t", "I16", 2, False),
    DType("int8", 6, "std::int8_t", "I8", 1, False),
    DType("int64", 9, "std::int64_t", "I64", 8, False),
    DType("complex64", 8, "", "C64", 8, True),
    DType("bool", 10, "bool", "BOOL", 1, False),
    DType("bfloat16", 14, "", "BF16", 2, True),
    DType("uint16", 17, "std::uint16_t", "U16", 2, False),
    DType("complex128", 18, "", "C128", 16, True),
    DType("float16", 19, "", "F16", 2, True),
    DType("uint32", 22, "std::uint32_t", "U32", 4, False),
    DType("uint64", 23, "std::uint64_t", "U64", 8, False),
)
"""The dtypes that XLA accepts for feeds, fetches, and variables (tried with TensorFlow 2.21)."""

EDGES = ("cpp", "hlo")
"""What a model's edge is met by: a C++ program, or another compiler, which takes more dtypes."""

BY_NAME = {dtype.name: dtype for dtype in ALL}
BY_ENUM = {dtype.enum: dtype for dtype in ALL}


def crossing(edge: str) -> dict[int, DType]:
    """The dtypes that may cross an edge of `EDGES`, by `DType.enum`."""
    return {dtype.enum: dtype for dtype in ALL if dtype.cpp or edge == "hlo"}
