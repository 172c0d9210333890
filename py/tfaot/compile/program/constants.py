"""The compiler's constants, of all CPU levels in one object file, each value once, without padding.

tfcompile writes each constant as eight bytes of size, padding up to 64 bytes, and the values, and pads the whole to a
power of two, to which it aligns it as well: a model's weights take up to twice their size, and the section up to 8 MiB
more. Only the values matter, and that they start at a multiple of 64 bytes. They do not depend on the level that is
compiled for, but for what the compiler may make of constants as it optimizes; what is the same is stored once, under
the names of all levels.

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
    """Returns the values of the constants in an object file, by symbol, without the sizes before them.

    Raises:
      TfaotError: the file is something else, or holds anything besides constants.
    """
    return {name.decode(): value[ALIGNMENT:] for name, value in _constants(data)}


def merged(objects: Iterable[bytes], replaced: Mapping[str, bytes] | None = None) -> bytes:
    """Returns one object file with the constants of several, each as long as its own size says, and stored once.

    Args:
      objects: what tfcompile wrote, or this function, at least one; their symbols are different.
      replaced: values, by symbol, that are stored in place of the objects' own.

    Raises:
      TfaotError: a file is something else, or holds anything besides constants.
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
    """Names and values, sizes before them, of the constants in an object file."""
    sections = _sections(data)
    symtab = next((section for section in sections if section.kind == _SYMTAB), None)
    if symtab is None:
        raise _unknown("it isn't an object file for x86-64")
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
    """The sections of a relocatable file, none if it is something else."""
    if len(data) < _HEADER.size or not data.startswith(_IDENT):
        return []
    header = _HEADER.unpack_from(data)
    kind, start, count = header[1], header[6], header[12]
    if kind != _RELOCATABLE or start + count * _SECTION.size > len(data):
        return []
    return [_Section(*_SECTION.unpack_from(data, start + index * _SECTION.size)) for index in range(count)]


def _written(template: bytes, contents: bytearray, symbols: bytes, names: bytearray) -> bytes:
    """An object file with a header as of another, and symbols in its first section."""
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
