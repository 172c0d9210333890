"""Reads safetensors files with only the standard library, and NumPy where a caller has it."""

from __future__ import annotations

import array
import dataclasses
import json
import math
import os
import random
from collections.abc import Sequence
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


def drawn(dtype: str, shape: Sequence[int], rng: random.Random) -> Tensor:
    """Draws normally distributed floats, or integers that are zero or one."""
    if dtype == "bfloat16":  # the upper half of a float32
        halves = array.array("H", drawn("float32", shape, rng).data)[1::2]
        return Tensor(dtype, tuple(shape), halves.tobytes())
    code = {"float32": "f", "float64": "d", "int32": "i", "int64": "q", "bool": "b", "uint32": "I", "uint8": "B"}[dtype]
    count = range(math.prod(shape))
    values = array.array(code, (rng.gauss(0, 1) if code in "fd" else rng.getrandbits(1) for _ in count))
    return Tensor(dtype, tuple(shape), values.tobytes())


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
