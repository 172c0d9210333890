"""The dtypes that can cross a model's edge, in one table from which everything else derives."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@dataclasses.dataclass(frozen=True)
class DType:
    """One dtype, by its name in each language and file format involved."""

    name: str
    """NumPy's name, and TensorFlow's `DType.name`."""
    enum: int
    """`tensorflow.DataType` (tensorflow/core/framework/types.proto)."""
    cpp: str
    """The C++ type of a value: a type of the language, `::std::complex`, or one of tfaot/half.h."""
    stored: str
    """Name of the dtype in which values cross the edge of a compiled model. The compiler refuses some dtypes there. Their
    values cross as raw bits, or as `parts` reals each."""
    safetensors: str
    """The dtype's code in a safetensors header. `C128` is our own: the format has no code for it."""
    bytes: int
    """Size of one value in bytes."""
    floating: bool
    """Whether results may differ from TensorFlow's by rounding."""

    @property
    def parts(self) -> int:
        """How many values of `stored` make up one value. If more than one, they form an extra last dimension."""
        return self.bytes // BY_NAME[self.stored].bytes

    @property
    def xla(self) -> str:
        """XLA's name."""
        kind = self.name.rstrip("0123456789")
        return {"bool": "pred", "bfloat": "bf16"}.get(kind) or _XLA[kind] + self.name.removeprefix(kind)

    def numpy(self) -> np.dtype[Any]:
        """Returns NumPy's dtype. ml_dtypes registers those that NumPy itself lacks."""
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
"""The dtypes that XLA accepts for feeds, fetches, and variables (tested with TensorFlow 2.21)."""

EDGES = ("cpp", "hlo")
"""What is on the other side of a model's edge: a C++ program, for which dtypes are stored as `DType.stored`, or another
compiler, which accepts every dtype as it is."""

BY_NAME = {dtype.name: dtype for dtype in ALL}
BY_ENUM = {dtype.enum: dtype for dtype in ALL}
_XLA = {"float": "f", "int": "s", "uint": "u", "complex": "c"}
BY_XLA = {dtype.xla: dtype for dtype in ALL}
