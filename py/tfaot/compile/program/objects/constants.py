"""Merges the compiler's constants for all CPU levels into one object file, each value once, without padding.

tfcompile writes each constant as its size in eight bytes, padding up to 64 bytes, and the values. It pads and aligns
the whole to a power of two. A model's weights then take up to twice their size, and the section up to 8 MiB more. Only
the values matter, and they must start at a multiple of 64 bytes. They don't depend on the CPU level, except where the
compiler changes constants during optimization. Equal values are stored once, under the names for all levels.
"""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections.abc import Iterator, Mapping, Sequence

from tfaot.compile.program.objects import files
from tfaot.compile.program.objects.files import ALIGNMENT


def values(data: bytes) -> dict[str, memoryview]:
    """Returns the values of the constants in an object file, by symbol, without the preceding sizes."""
    return {name: value[ALIGNMENT:] for name, value in _constants(data)}


def merged(
    objects: Sequence[bytes], replaced: Mapping[str, bytes] | None = None, added: Mapping[str, bytes] | None = None
) -> bytes:
    """Merges the constants of several object files into one. Each has the length that its own size gives, and is stored once.

    Args:
      objects: at least one object from tfcompile or from this function. Their symbols differ.
      replaced: values, by symbol, to store in place of the objects' own.
      added: more values, by symbol.
    """
    new = replaced or {}
    stored = ((name, _sized(new[name]) if name in new else own) for data in objects for name, own in _constants(data))
    contents = bytearray()
    places: dict[bytes, int] = {}
    symbols = []
    for name, value in itertools.chain(stored, ((name, _sized(value)) for name, value in (added or {}).items())):
        content = hashlib.sha256(value).digest()
        if content not in places:
            contents += b"\0" * (-len(contents) % ALIGNMENT)
            places[content] = len(contents)
            contents += value
        symbols.append(files.Symbol(name.encode(), places[content], len(value)))
    return files.write(objects[0], contents, symbols)


def _sized(values: bytes) -> memoryview:
    return memoryview(struct.pack(f"<Q{ALIGNMENT - 8}x", len(values)) + values)


def _constants(data: bytes) -> Iterator[tuple[str, memoryview]]:
    """Yields the names and values of the constants in an object file. The values include the preceding sizes."""
    contents, symbols = files.read(data)
    for symbol in symbols:
        size = ALIGNMENT + struct.unpack_from("<Q", contents, symbol.start)[0]
        if size > symbol.size:
            raise files.unknown(f"a constant of {size} bytes has room for {symbol.size}")
        yield symbol.name.decode(), contents[symbol.start : symbol.start + size]
