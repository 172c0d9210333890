"""Merges the compiler's constants for all CPU levels into one object file, each value once, without padding.

tfcompile writes each constant as its size in eight bytes, padding up to 64 bytes, and the values. It pads and aligns
the whole to a power of two. A model's weights then take up to twice their size, and the section up to 8 MiB more. Only
the values matter, and they must start at a multiple of 64 bytes. They don't depend on the CPU level, except where the
compiler changes constants during optimization. Equal values are stored once, under the names for all levels.

Source of the file's structure: System V ABI, chapter 4 (ELF-64 object file format).
"""

from __future__ import annotations

import dataclasses
import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping

from tfaot.core.errors import TfaotError

ALIGNMENT = 64
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_IDENT = b"\x7fELF\x02\x01"
"""ELF, 64 bits, little endian."""
_RELOCATABLE, _PROGBITS, _SYMTAB, _STRTAB, _NOBITS, _ALLOC, _OBJECT, _GLOBAL = 1, 1, 2, 3, 8, 2, 1, 1


@dataclasses.dataclass(frozen=True)
class _Section:
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int


def values(data: bytes) -> dict[str, memoryview]:
    """Returns the values of the constants in an object file, by symbol, without the preceding sizes.

    Raises:
      TfaotError: the file is something else, or contains anything besides constants.
    """
    return {name.decode(): value[ALIGNMENT:] for name, value in _constants(data)}


def merged(objects: Iterable[bytes], replaced: Mapping[str, bytes] | None = None) -> bytes:
    """Merges the constants of several object files into one. Each has the length that its own size gives, and is stored once.

    Args:
      objects: at least one object from tfcompile or from this function. Their symbols differ.
      replaced: values, by symbol, to store in place of the objects' own.

    Raises:
      TfaotError: a file is something else, or contains anything besides constants.
    """
    header = b""
    contents = bytearray()
    places: dict[bytes, int] = {}
    symbols = [_SYMBOL.pack(0, 0, 0, 0, 0, 0)]
    names = bytearray(b"\0")
    for data in objects:
        for name, value in _constants(data):
            if replaced and (other := replaced.get(name.decode())) is not None:
                value = memoryview(struct.pack(f"<Q{ALIGNMENT - 8}x", len(other)) + other)
            content = hashlib.sha256(value).digest()
            if content not in places:
                contents += b"\0" * (-len(contents) % ALIGNMENT)
                places[content] = len(contents)
                contents += value
            symbols.append(_SYMBOL.pack(len(names), _GLOBAL << 4 | _OBJECT, 0, 1, places[content], len(value)))
            names += name + b"\0"
        header = header or data[: _HEADER.size]
    return _written(header, contents, b"".join(symbols), names)


def _constants(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Yields the names and values of the constants in an object file. The values include the preceding sizes."""
    sections = _sections(data)
    symtab = next((section for section in sections if section.kind == _SYMTAB), None)
    if symtab is None:
        raise _unknown("it isn't a 64-bit object file")
    symbols = [
        _SYMBOL.unpack_from(data, symtab.offset + index * _SYMBOL.size) for index in range(symtab.size // _SYMBOL.size)
    ]
    held = sorted((symbol for symbol in symbols if symbol[1] & 15 == _OBJECT), key=lambda symbol: symbol[4])
    filled = [i for i, s in enumerate(sections) if s.kind in (_PROGBITS, _NOBITS) and s.flags & _ALLOC and s.size]
    if filled != sorted({symbol[3] for symbol in held}) or any(sections[i].kind == _NOBITS for i in filled):
        raise _unknown("it has something in it besides constants")
    strings = sections[symtab.link].offset
    for name, _, _, section, address, space in held:
        begin = sections[section].offset + address
        size = ALIGNMENT + struct.unpack_from("<Q", data, begin)[0]
        if size > space:
            raise _unknown(f"a constant of {size} bytes has room for {space}")
        start = strings + name
        yield data[start : data.index(b"\0", start)], memoryview(data)[begin : begin + size]


def _unknown(what: str) -> TfaotError:
    return TfaotError(
        f"tfcompile's object file of constants isn't one that the rules know: {what}",
        do="use the TensorFlow that tools/python/requirements.lock names, or extend py/tfaot/compile/program/constants.py",
    )


def _sections(data: bytes) -> list[_Section]:
    """Returns the sections of a relocatable file; none if it is something else."""
    if len(data) < _HEADER.size or not data.startswith(_IDENT):
        return []
    header = _HEADER.unpack_from(data)
    kind, start, count = header[1], header[6], header[12]
    if kind != _RELOCATABLE or start + count * _SECTION.size > len(data):
        return []
    return [_Section(*_SECTION.unpack_from(data, start + index * _SECTION.size)) for index in range(count)]


def _written(template: bytes, contents: bytearray, symbols: bytes, names: bytearray) -> bytes:
    """Writes an object file with a header like that of `template`, and symbols in its first section."""
    parts = []
    for name, kind, flags, part, link, info, alignment, entry in (
        (b".rodata", _PROGBITS, _ALLOC, contents, 0, 0, ALIGNMENT, 0),
        (b".note.GNU-stack", _PROGBITS, 0, b"", 0, 0, 1, 0),
        (b".symtab", _SYMTAB, 0, symbols, 4, 1, 8, _SYMBOL.size),
        (b".strtab", _STRTAB, 0, names, 0, 0, 1, 0),
    ):
        parts.append((_Section(len(names), kind, flags, 0, 0, 0, link, info, alignment, entry), part))
        names += name + b"\0"
    out = bytearray(_HEADER.size)
    table = [_Section(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)]
    for section, part in parts:
        out += b"\0" * (-len(out) % section.alignment)
        table.append(dataclasses.replace(section, offset=len(out), size=len(part)))
        out += part
    out += b"\0" * (-len(out) % 8)
    header = list(_HEADER.unpack_from(template))
    header[6], header[12], header[13] = len(out), len(table), len(table) - 1
    out[: _HEADER.size] = _HEADER.pack(*header)
    for section in table:
        out += _SECTION.pack(*dataclasses.astuple(section))
    return bytes(out)
