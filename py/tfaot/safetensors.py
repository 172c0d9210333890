"""The safetensors format: eight bytes of header length, a JSON header, then the tensors without gaps.

Source: the format's own description, https://github.com/huggingface/safetensors#format. Values are written one tensor
at a time, so that files larger than memory work.
"""

from __future__ import annotations

import dataclasses
import json
import os
import struct
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from tfaot import dtypes
from tfaot.errors import TfaotError

ALIGNMENT = 64
"""The data starts at a multiple of this, in bytes: a cache line, and what XLA wants of a buffer."""

_BY_CODE = {dtype.safetensors: dtype for dtype in dtypes.ALL}


@dataclasses.dataclass(frozen=True)
class Entry:
    """One tensor of a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    """From the start of the data, in bytes."""
    bytes: int


def layout(tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> tuple[Entry, ...]:
    """Places tensors, given as (name, dtype, shape), one behind the other."""
    entries: list[Entry] = []
    offset = 0
    for name, dtype, shape in tensors:
        size = dtypes.BY_NAME[dtype].bytes * int(np.prod(shape, dtype=np.int64))
        entries.append(Entry(name, dtype, shape, offset, size))
        offset += size
    return tuple(entries)


def write(file: BinaryIO, tensors: Mapping[str, npt.NDArray[Any]]) -> tuple[Entry, ...]:
    """Writes tensors in the mapping's order and returns where they are."""
    entries = layout((name, str(value.dtype), value.shape) for name, value in tensors.items())
    header = json.dumps(
        {
            entry.name: {
                "dtype": dtypes.BY_NAME[entry.dtype].safetensors,
                "shape": list(entry.shape),
                "data_offsets": [entry.offset, entry.offset + entry.bytes],
            }
            for entry in entries
        },
        separators=(",", ":"),
    ).encode()
    header += b" " * (-(8 + len(header)) % ALIGNMENT)
    file.write(struct.pack("<Q", len(header)))
    file.write(header)
    for value in tensors.values():
        file.write(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data if value.size else b"")
    return entries


def read(path: str | os.PathLike[str]) -> dict[str, npt.NDArray[Any]]:
    """Maps a file and returns its tensors by name, without copying their values.

    Raises:
      TfaotError: the file is cut short, is none, or holds a dtype that the rules do not know.
    """
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else size
        if 8 + length > size:
            raise TfaotError(f"{os.fspath(path)} is cut short, or is no safetensors file", do="write it again")
        try:
            header = json.loads(file.read(length))
        except ValueError:
            raise TfaotError(f"{os.fspath(path)} is no safetensors file", do="write it again") from None
    tensors: dict[str, npt.NDArray[Any]] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in _BY_CODE:
            raise TfaotError(
                f"{os.fspath(path)}: {name} has dtype {entry['dtype']}",
                exists="known are " + ", ".join(_BY_CODE),
                do="write it with one of these dtypes",
            )
        dtype, shape = _BY_CODE[entry["dtype"]].numpy(), tuple(entry["shape"])
        begin, end = entry["data_offsets"]
        if 8 + length + end > size:
            raise TfaotError(f"{os.fspath(path)} is cut short: {name} lies past its end", do="write it again")
        if begin == end:
            tensors[name] = np.zeros(shape, dtype)
        else:
            tensors[name] = (
                np.memmap(path, dtype, "r", 8 + length + begin, shape)
                if shape
                else np.memmap(path, dtype, "r", 8 + length + begin, (1,)).reshape(())
            )
    return tensors
