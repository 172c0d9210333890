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
    """The C++ type of a value: a type of the language, `::std::complex`, or one of tfaot/half.h."""
    stored: str
    """Name of the dtype as which values cross the edge of a compiled model. The compiler refuses some there; those cross as
    their bits, or as `parts` reals each."""
    safetensors: str
    """The dtype's code in a safetensors header; `C128` is ours, the format names none."""
    bytes: int
    """Size of one value in bytes."""
    floating: bool
    """Whether results may differ from TensorFlow's by rounding."""

    @property
    def parts(self) -> int:
        """How many values of `stored` one value is; if it is more than one, they are a last dimension."""
        return self.bytes // BY_NAME[self.stored].bytes

    def numpy(self) -> np.dtype[Any]:
        """NumPy's dtype; ml_dtypes adds those that NumPy does not have itself."""
        import ml_dtypes  # noqa: F401  (imported to be registered)
        import numpy as np

        return np.dtype(self.name)


ALL: tuple[DType, ...] = (
    DType("float32", 1, "float", "float32", "F32", 4, True),
    DType("float64", 2, "double", "float64", "F64", 8, True),
    DType("int32", 3, "::std::int32_t", "int32", "I32", 4, False),
    DType("uint8", 4, "::std::uint8_t", "uint8", "U8", 1, False),
    DType("int16", 5, "::std::int16_t", "int16", "I16", 2, False),
    DType("int8", 6, "::std::int8_t", "int8", "I8", 1, False),
    DType("int64", 9, "::std::int64_t", "int64", "I64", 8, False),
    DType("complex64", 8, "::std::complex<float>", "float32", "C64", 8, True),
    DType("bool", 10, "bool", "bool", "BOOL", 1, False),
    DType("bfloat16", 14, "::tfaot::BFloat16", "uint16", "BF16", 2, True),
    DType("uint16", 17, "::std::uint16_t", "uint16", "U16", 2, False),
    DType("complex128", 18, "::std::complex<double>", "float64", "C128", 16, True),
    DType("float16", 19, "::tfaot::Float16", "uint16", "F16", 2, True),
    DType("uint32", 22, "::std::uint32_t", "uint32", "U32", 4, False),
    DType("uint64", 23, "::std::uint64_t", "uint64", "U64", 8, False),
)
"""The dtypes that XLA accepts for feeds, fetches, and variables (tried with TensorFlow 2.21)."""

EDGES = ("cpp", "hlo")
"""What a model's edge is met by: a C++ program, for which dtypes are stored as `DType.stored`, or another compiler, which
takes all as they are."""

BY_NAME = {dtype.name: dtype for dtype in ALL}
BY_ENUM = {dtype.enum: dtype for dtype in ALL}


def crossing(edge: str) -> dict[int, DType]:
    """The dtypes that may cross an edge of `EDGES`, by `DType.enum`: all that XLA takes may cross either."""
    return dict(BY_ENUM)
