"""Reads safetensors files with only the standard library, and NumPy where a caller has it."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

_DTYPES = {
    "F32": "float32",
    "F64": "float64",
    "I32": "int32",
    "I64": "int64",
    "BOOL": "bool",
    "U32": "uint32",
    "U8": "uint8",
}


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A value: its bytes, row-major."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def numpy(self) -> Any:
        """Returns a NumPy array."""
        import numpy as np

        return np.frombuffer(self.data, self.dtype).reshape(self.shape)


def read(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Returns all tensors of a file, by name.

    Raises:
      KeyError: a tensor has a dtype that no model in the benchmark has.
    """
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        body = file.read()
    return {
        name: Tensor(_DTYPES[entry["dtype"]], tuple(entry["shape"]), body[slice(*entry["data_offsets"])])
        for name, entry in header.items()
        if name != "__metadata__"
    }
