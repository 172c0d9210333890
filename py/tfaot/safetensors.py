"""The safetensors format: eight bytes of header length, a JSON header, then the tensors without gaps.

Source: the format's own description, https://github.com/huggingface/safetensors#format. Values are written one tensor
at a time, so that files larger than memory work.
"""

from __future__ import annotations

import dataclasses
import json
import math
import operator
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

HOLE = 1 << 20
"""Bytes of zeros that are left out of a file. What is not written reads as zeros and takes no space on most file
systems: variables that programs load from elsewhere cost as little as optimizers' slots, which start at zero."""

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


def layout(tensors: Iterable[tuple[str, str, tuple[int, ...]]], *, aligned: bool = False) -> tuple[Entry, ...]:
    """Places tensors, given as (name, dtype, shape), one behind the other; the format allows no gaps.

    With `aligned`, those whose size is a multiple of `ALIGNMENT` lie before all others, each group in the given order:
    as many as possible start at a multiple of it, and are used where a mapped file has them. The entries come back in
    the given order, wherever they lie.
    """
    given = list(tensors)
    sizes = [dtypes.BY_NAME[dtype].bytes * math.prod(shape) for _, dtype, shape in given]
    order = list(range(len(given)))
    if aligned:
        order.sort(key=lambda index: sizes[index] % ALIGNMENT != 0)
    offsets = [0] * len(given)
    end = 0
    for index in order:
        offsets[index] = end
        end += sizes[index]
    return tuple(Entry(*tensor, offset, size) for tensor, offset, size in zip(given, offsets, sizes, strict=True))


def write(file: BinaryIO, tensors: Mapping[str, npt.NDArray[Any]], *, aligned: bool = False) -> tuple[Entry, ...]:
    """Writes tensors, and returns where they are, in the mapping's order.

    They lie in that order, and can be read in a row; with `aligned`, where `layout` places them. C++ saves variables as
    the same bytes (`tools/runtime/tfaot/variables.cc`). The file must be new, and seekable.
    """
    entries = layout(((name, str(value.dtype), value.shape) for name, value in tensors.items()), aligned=aligned)
    # A tensor of no bytes starts where its successor does.
    in_file = sorted(entries, key=lambda entry: (entry.offset, entry.bytes))
    header = json.dumps(
        {
            entry.name: {
                "dtype": dtypes.BY_NAME[entry.dtype].safetensors,
                "shape": list(entry.shape),
                "data_offsets": [entry.offset, entry.offset + entry.bytes],
            }
            for entry in in_file
        },
        separators=(",", ":"),
    ).encode()
    header += b" " * (-(8 + len(header)) % ALIGNMENT)
    file.write(struct.pack("<Q", len(header)))
    file.write(header)
    for entry in in_file:
        data = np.ascontiguousarray(tensors[entry.name]).reshape(-1).view(np.uint8)
        for begin in range(0, data.size, HOLE):
            block = data[begin : begin + HOLE]
            # A tensor's end is written, or the file could end before it.
            if begin + HOLE < data.size and not block.any():
                file.seek(HOLE, os.SEEK_CUR)
            else:
                file.write(block.data)
    return entries


def read(path: str | os.PathLike[str]) -> dict[str, npt.NDArray[Any]]:
    """Maps a file and returns its tensors by name, without copying their values.

    Raises:
      TfaotError: the file is cut short, is none, contradicts itself, or holds a dtype that the rules do not know.
    """
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else size
        if 8 + length > size:
            raise TfaotError(f"{os.fspath(path)} is cut short, or is no safetensors file", do="write it again")
        try:
            header: dict[str, tuple[str, tuple[int, ...], int, int]] = {}
            for name, entry in json.loads(file.read(length)).items():
                if name != "__metadata__":
                    shape = tuple(operator.index(size) for size in entry["shape"])
                    begin, end = (operator.index(offset) for offset in entry["data_offsets"])
                    header[name] = (str(entry["dtype"]), shape, begin, end)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise TfaotError(f"{os.fspath(path)} is no safetensors file", do="write it again") from None
    tensors: dict[str, npt.NDArray[Any]] = {}
    for name, (code, shape, begin, end) in header.items():
        if code not in _BY_CODE:
            raise TfaotError(
                f"{os.fspath(path)}: {name} has dtype {code}",
                exists="known are " + ", ".join(_BY_CODE),
                do="write it with one of these dtypes",
            )
        dtype = _BY_CODE[code]
        if 8 + length + end > size:
            raise TfaotError(f"{os.fspath(path)} is cut short: {name} lies past its end", do="write it again")
        if min(begin, *shape, 0) < 0 or end - begin != dtype.bytes * math.prod(shape):
            raise TfaotError(
                f"{os.fspath(path)} contradicts itself",
                exists=f"{name} is at bytes {begin} to {end}, which is not the size of {dtype.name}{list(shape)}",
                do="write it again",
            )
        if begin == end:
            tensors[name] = np.zeros(shape, dtype.numpy())
        else:
            tensors[name] = (
                np.memmap(path, dtype.numpy(), "r", 8 + length + begin, shape)
                if shape
                else np.memmap(path, dtype.numpy(), "r", 8 + length + begin, (1,)).reshape(())
            )
    return tensors
