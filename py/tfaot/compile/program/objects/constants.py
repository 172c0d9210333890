"""Merges the compiler's constants for all CPU levels into one object file, each value once, without padding.

tfcompile writes each constant as its size in eight bytes, padding up to 64 bytes, and the values. It pads and aligns
the whole to a power of two. A model's weights then take up to twice their size, and the section up to 8 MiB more. Only
the values matter, and they must start at a multiple of 64 bytes. They don't depend on the CPU level, except where the
compiler changes constants during optimization. Equal values are stored once, under the names for all levels.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping

from tfaot.compile.program.objects import files
from tfaot.compile.program.objects.files import ALIGNMENT


def values(data: bytes) -> dict[str, memoryview]:
    """Returns the values of the constants in an object file, by symbol, without the preceding sizes."""
    return {name.decode(): value[ALIGNMENT:] for name, value in _constants(data)}


def merged(
    objects: Iterable[bytes], replaced: Mapping[str, bytes] | None = None, added: Mapping[str, bytes] | None = None
) -> bytes:
    """Merges the constants of several object files into one. Each has the length that its own size gives, and is stored once.

    Args:
      objects: at least one object from tfcompile or from this function. Their symbols differ.
      replaced: values, by symbol, to store in place of the objects' own.
      added: more values, by symbol.
    """
    template = b""
    contents = bytearray()
    places: dict[bytes, int] = {}
    symbols = []

    def store(name: bytes, value: memoryview) -> None:
        nonlocal contents
        content = hashlib.sha256(value).digest()
        if content not in places:
            contents += b"\0" * (-len(contents) % ALIGNMENT)
            places[content] = len(contents)
            contents += value
        symbols.append(files.Symbol(name, places[content], len(value)))

    for data in objects:
        for name, value in _constants(data):
            other = replaced.get(name.decode()) if replaced else None
            store(name, value if other is None else _sized(other))
        template = template or data
    for symbol, values in (added or {}).items():
        store(symbol.encode(), _sized(values))
    return files.write(template, contents, symbols)


def _sized(values: bytes) -> memoryview:
    return memoryview(struct.pack(f"<Q{ALIGNMENT - 8}x", len(values)) + values)


def _constants(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Yields the names and values of the constants in an object file. The values include the preceding sizes."""
    contents, symbols = files.read(data)
    for symbol in symbols:
        size = ALIGNMENT + struct.unpack_from("<Q", contents, symbol.start)[0]
        if size > symbol.size:
            raise files.unknown(f"a constant of {size} bytes has room for {symbol.size}")
        yield symbol.name, contents[symbol.start : symbol.start + size]
