"""The compiler's object file of constants, without its padding.

tfcompile writes each constant as eight bytes of size, padding up to 64 bytes, and the values, and pads the whole to a
power of two, to which it aligns it as well: a model's weights take up to twice their size, and the section up to 8 MiB
more. Only the values matter, and that they start at a multiple of 64 bytes.

Source of the file's structure: System V ABI, chapter 4 (ELF-64 object file format).
"""

from __future__ import annotations

import dataclasses
import struct

ALIGNMENT = 64
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_IDENT = b"\x7fELF\x02\x01"
"""ELF, 64 bits, little endian."""
_RELOCATABLE, _PROGBITS, _SYMTAB, _NOBITS, _ALLOC, _OBJECT = 1, 1, 2, 8, 2, 1


@dataclasses.dataclass
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


def compacted(data: bytes) -> bytes:
    """Returns an object file with the same symbols and values, each constant as long as its own size says.

    An object of another format, or with anything in it besides constants, is returned as it is.
    """
    sections = _sections(data)
    symtab = next((section for section in sections if section.kind == _SYMTAB), None)
    if symtab is None:
        return data
    symbols = [
        list(_SYMBOL.unpack_from(data, symtab.offset + index * _SYMBOL.size))
        for index in range(symtab.size // _SYMBOL.size)
    ]
    held = [symbol for symbol in symbols if symbol[1] & 15 == _OBJECT]
    indices = {symbol[3] for symbol in held}
    filled = [i for i, s in enumerate(sections) if s.kind == _PROGBITS and s.flags & _ALLOC and s.size]
    if len(indices) != 1 or filled != sorted(indices) or any(section.kind == _NOBITS for section in sections):
        return data
    section = sections[filled[0]]
    contents = bytearray()
    for symbol in sorted(held, key=lambda symbol: symbol[4]):
        begin, space = section.offset + symbol[4], symbol[5]
        size = ALIGNMENT + struct.unpack_from("<Q", data, begin)[0]
        if size > space:
            return data
        contents += b"\0" * (-len(contents) % ALIGNMENT)
        symbol[4], symbol[5] = len(contents), size
        contents += data[begin : begin + size]
    section.alignment = ALIGNMENT
    parts = {
        index: data[other.offset : other.offset + other.size] for index, other in enumerate(sections) if other.kind
    }
    parts[filled[0]] = bytes(contents)
    parts[sections.index(symtab)] = b"".join(_SYMBOL.pack(*symbol) for symbol in symbols)
    return _written(data, sections, parts)


def _sections(data: bytes) -> list[_Section]:
    """The sections of a relocatable file, none if it is something else."""
    if len(data) < _HEADER.size or not data.startswith(_IDENT):
        return []
    header = _HEADER.unpack_from(data)
    kind, start, count = header[1], header[6], header[12]
    if kind != _RELOCATABLE or start + count * _SECTION.size > len(data):
        return []
    return [_Section(*_SECTION.unpack_from(data, start + index * _SECTION.size)) for index in range(count)]


def _written(data: bytes, sections: list[_Section], parts: dict[int, bytes]) -> bytes:
    out = bytearray(data[: _HEADER.size])
    for index, part in parts.items():
        section = sections[index]
        out += b"\0" * (-len(out) % max(1, section.alignment))
        section.offset, section.size = len(out), len(part)
        out += part
    out += b"\0" * (-len(out) % 8)
    start = len(out)
    for section in sections:
        out += _SECTION.pack(*dataclasses.astuple(section))
    header = list(_HEADER.unpack_from(data))
    header[6] = start
    out[: _HEADER.size] = _HEADER.pack(*header)
    return bytes(out)
