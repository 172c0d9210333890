"""The safetensors format: eight bytes of header length, a JSON header, then the tensors without gaps.

Source: the format's own description, https://github.com/huggingface/safetensors#format. Values are written one tensor
at a time, so files can be larger than memory.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import operator
import os
import struct
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from tfaot.core import dtypes
from tfaot.core.errors import TfaotError

ALIGNMENT = 64
"""The data starts at a multiple of this many bytes: a cache line, and the alignment that XLA expects of a buffer."""

HOLE = 1 << 20
"""Zeros are skipped in blocks of this many bytes. A hole reads as zeros and takes no space on most file systems, so
variables that programs load from elsewhere cost as little as optimizer slots, which start at zero."""

LARGEST_HEADER = 100_000_000
"""The longest header that the format allows, in bytes."""

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
    """Places tensors, given as (name, dtype, shape), one after another. The format allows no gaps.

    With `aligned`, tensors whose size is a multiple of `ALIGNMENT` come before all others, each group in the given order.
    As many as possible then start at a multiple of `ALIGNMENT`, and a mapped file's memory can be used directly. The
    entries are returned in the given order, wherever they are placed.
    """
    entries = list(tensors)
    sizes = [dtypes.BY_NAME[dtype].bytes * math.prod(shape) for _, dtype, shape in entries]
    order = list(range(len(entries)))
    if aligned:
        order.sort(key=lambda index: sizes[index] % ALIGNMENT != 0)
    offsets = [0] * len(entries)
    end = 0
    for index in order:
        offsets[index] = end
        end += sizes[index]
    return tuple(Entry(*tensor, offset, size) for tensor, offset, size in zip(entries, offsets, sizes, strict=True))


def write(file: BinaryIO, tensors: Mapping[str, npt.NDArray[Any]], *, aligned: bool = False) -> tuple[Entry, ...]:
    """Writes tensors, and returns where they are, in the mapping's order.

    The tensors are in that order, for sequential reading; with `aligned`, `layout` places them. C++ saves variables as the
    same bytes (`runtime/tfaot/safetensors.cc`). The file must be new and seekable.
    """
    entries = layout(((name, str(value.dtype), value.shape) for name, value in tensors.items()), aligned=aligned)
    # An empty tensor starts where its successor does.
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
            # Write the end of a tensor, or the file could end before it.
            if begin + HOLE < data.size and not block.any():
                file.seek(HOLE, os.SEEK_CUR)
            else:
                file.write(block.data)
    return entries


def read(path: str | os.PathLike[str]) -> dict[str, npt.NDArray[Any]]:
    """Maps a file and returns its tensors by name, without copying their values.

    The file can come from anyone: whatever the format doesn't allow is an error, as in `runtime/tfaot/safetensors.cc`.

    Raises:
      TfaotError: the file is truncated, isn't a safetensors file, contradicts itself, or has an unknown dtype.
    """
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else size
        if 8 + length > size:
            raise TfaotError(f"{os.fspath(path)} is truncated, or isn't a safetensors file", do="write it again")
        if length > LARGEST_HEADER:
            raise TfaotError(
                f"{os.fspath(path)} has a header of {length:,} bytes",
                exists=f"the safetensors format allows {LARGEST_HEADER:,}",
                do="write fewer tensors into one file",
            )
        try:
            header = _header(file.read(length).decode())
        except _Twice as twice:
            raise _contradiction(path, f"{_name(twice.key)} appears twice in its header") from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise TfaotError(f"{os.fspath(path)} isn't a safetensors file", do="write it again") from None
    tensors: dict[str, npt.NDArray[Any]] = {}
    for name, (code, shape, begin, end) in header.items():
        if code not in _BY_CODE:
            raise TfaotError(
                f"{os.fspath(path)}: {_name(name)} has dtype {_name(code)}",
                exists="the known dtypes are " + ", ".join(_BY_CODE),
                do="write it with one of these dtypes",
            )
        dtype = _BY_CODE[code]
        if 8 + length + end > size:
            raise TfaotError(f"{os.fspath(path)} is truncated: {_name(name)} is past its end", do="write it again")
        if min(begin, *shape, 0) < 0 or end - begin != dtype.bytes * math.prod(shape):
            raise _contradiction(
                path, f"{_name(name)} is at bytes {begin} to {end}, which isn't the size of {dtype.name}{list(shape)}"
            )
        try:
            if begin == end:
                tensors[name] = np.zeros(shape, dtype.numpy())
            else:
                tensors[name] = (
                    np.memmap(path, dtype.numpy(), "r", 8 + length + begin, shape)
                    if shape
                    else np.memmap(path, dtype.numpy(), "r", 8 + length + begin, (1,)).reshape(())
                )
        except (ValueError, OverflowError) as error:  # too many dimensions, or too large ones next to one of zero
            raise _contradiction(path, f"{_name(name)} has an impossible shape: {error}") from None
    placed = sorted((begin, end, name) for name, (_, _, begin, end) in header.items() if begin != end)
    for (_, end, first), (begin, _, second) in itertools.pairwise(placed):
        if begin < end:
            raise _contradiction(path, f"{_name(first)} and {_name(second)} overlap")
    return tensors


class _Twice(Exception):
    """An object in the header has a duplicate key. Readers could disagree about which value counts."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _header(text: str) -> dict[str, tuple[str, tuple[int, ...], int, int]]:
    """Returns dtype, shape, and offsets by name. Raises all kinds of errors for an invalid header."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in pairs:
            if key in result:
                raise _Twice(key)
            result[key] = value
        return result

    header = {}
    for name, entry in json.loads(text, object_pairs_hook=unique).items():
        name.encode()  # half of a surrogate pair isn't text
        if name != "__metadata__":
            shape = tuple(operator.index(size) for size in entry["shape"])
            begin, end = (operator.index(offset) for offset in entry["data_offsets"])
            header[name] = (str(entry["dtype"]), shape, begin, end)
    return header


def _name(text: str) -> str:
    """Prepares text from a file for a message: escapes what a terminal might interpret, and cuts what is too long."""
    shown = text if text.isprintable() else repr(text)
    return shown if len(shown) <= 200 else shown[:200] + "…"


def _contradiction(path: str | os.PathLike[str], what: str) -> TfaotError:
    return TfaotError(f"{os.fspath(path)} contradicts itself", exists=what, do="write it again")
