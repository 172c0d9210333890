"""Object files of constants, in the formats of all platforms: ELF, Mach-O, and COFF.

Sources of the files' structures: System V ABI, chapter 4 (ELF-64); Apple's mach-o/loader.h and mach-o/nlist.h; and Microsoft's
PE Format.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from typing import Any

from tfaot.core import elf
from tfaot.core.errors import TfaotError

ALIGNMENT = 64
HUGE_PAGE = 1 << 21


def _elf_section(size: int) -> tuple[bytes, int]:
    """Returns the name and the alignment of a section of constants in an ELF file.

    From 32 MiB on, the alignment is that of a huge page. Linux then maps each of these at one fault instead of 32, where its page
    cache has them. Smaller sections gain nothing. A linker pads by up to a huge page, which is less than a sixteenth. With a name
    of its own, it comes after all other constants of the program, so that there is only one such gap.
    """
    return (b".tfaot_constants", HUGE_PAGE) if size >= 16 * HUGE_PAGE else (b".rodata", ALIGNMENT)


@dataclasses.dataclass(frozen=True)
class Symbol:
    """A name in an object file, as C has it, and where it is in the one section with contents."""

    name: bytes
    start: int
    size: int


_Parts = tuple[dict[int, tuple[int, int]], list[tuple[int, Symbol]]]
"""What a format's reader finds: where sections are in the file, by their number, and symbols with the number of their section.

In formats that don't have a symbol's size, it is 0."""


def read(data: bytes) -> tuple[memoryview, list[Symbol]]:
    """Returns the contents of an object file's one section that isn't empty, and its symbols by address.

    Where a format doesn't have a symbol's size, it reaches to the next one.

    Raises:
      TfaotError: the file is something else, or contains anything besides constants.
    """
    try:
        sections, symbols = next(reader for start, reader in _READERS.items() if data.startswith(start))(data)
    except (StopIteration, struct.error, IndexError, ValueError):
        raise _NOT_ONE from None
    filled = [index for index, (_, size) in sections.items() if size]
    if len(filled) > 1 or filled != sorted({section for section, _ in symbols}):
        raise _MORE
    if not filled:
        return memoryview(b""), []
    offset, size = sections[filled[0]]
    if offset + size > len(data):
        raise _NOT_ONE
    starts = sorted({symbol.start for _, symbol in symbols})
    ends = dict(zip(starts, [*starts[1:], size], strict=True))
    sized = (dataclasses.replace(one, size=one.size or ends[one.start] - one.start) for _, one in symbols)
    return memoryview(data)[offset : offset + size], sorted(sized, key=lambda symbol: (symbol.start, symbol.name))


def write(template: bytes, contents: bytes | bytearray, symbols: Sequence[Symbol]) -> bytes:
    """Returns an object file for the same machine as `template`, whose one section has `contents` and these global symbols."""
    for start, writer in _WRITERS.items():
        if template.startswith(start):
            return writer(template, bytes(contents), symbols)
    raise _NOT_ONE


def unknown(what: str) -> TfaotError:
    """Returns the error about a file that isn't as expected."""
    return TfaotError(
        f"tfcompile's object file of constants isn't one that the rules know: {what}",
        do="use the TensorFlow that tools/python/requirements.lock names, or extend py/tfaot/compile/program/objects/files.py",
    )


_NOT_ONE = unknown("it isn't a 64-bit object file")
_MORE = unknown("it has something in it besides constants")


def _padded(data: bytes, to: int) -> bytes:
    return data + b"\0" * (-len(data) % to)


def _records(kind: struct.Struct, data: bytes, at: int, count: int) -> list[tuple[Any, ...]]:
    return [kind.unpack_from(data, at + index * kind.size) for index in range(count)]


def _string(data: bytes, at: int) -> bytes:
    return data[at : data.index(b"\0", at)]


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


def _read_elf(data: bytes) -> _Parts:
    header = elf.HEADER.unpack_from(data)
    kind, start, count = header[1], header[6], header[12]
    sections = [_Section(*fields) for fields in _records(elf.SECTION, data, start, count)]
    symtab = next(section for section in sections if section.kind == _SYMTAB)
    if kind != _RELOCATABLE:
        raise _NOT_ONE
    if any(section.kind == _NOBITS and section.flags & _ALLOC and section.size for section in sections):
        raise _MORE
    strings = sections[symtab.link].offset
    symbols = []
    records = _records(elf.SYMBOL, data, symtab.offset, symtab.size // elf.SYMBOL.size)
    for name, info, _, at, value, size in records:
        if info & 15 == _OBJECT:
            symbols.append((at, Symbol(_string(data, strings + name), value, size)))
    held = {i: (s.offset, s.size) for i, s in enumerate(sections) if s.kind == _PROGBITS and s.flags & _ALLOC}
    return held, symbols


def _write_elf(template: bytes, contents: bytes, symbols: Sequence[Symbol]) -> bytes:
    names = bytearray(b"\0")
    table = elf.SYMBOL.pack(0, 0, 0, 0, 0, 0)
    for symbol in symbols:
        table += elf.SYMBOL.pack(len(names), _GLOBAL << 4 | _OBJECT, 0, 1, symbol.start, symbol.size)
        names += symbol.name + b"\0"
    parts: list[tuple[_Section, bytes | bytearray]] = []
    section_name, section_alignment = _elf_section(len(contents))
    for name, kind, flags, part, link, info, alignment, entry in (
        (section_name, _PROGBITS, _ALLOC, contents, 0, 0, section_alignment, 0),
        (b".note.GNU-stack", _PROGBITS, 0, b"", 0, 0, 1, 0),
        (b".symtab", _SYMTAB, 0, table, 4, 1, 8, elf.SYMBOL.size),
        (b".strtab", _STRTAB, 0, names, 0, 0, 1, 0),
    ):
        parts.append((_Section(len(names), kind, flags, 0, 0, 0, link, info, alignment, entry), part))
        names += name + b"\0"
    out = bytearray(elf.HEADER.size)
    sections = [_Section(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)]
    for section, part in parts:
        # Only linked programs need the section at a multiple of its own alignment in the file.
        out += b"\0" * (-len(out) % min(section.alignment, ALIGNMENT))
        sections.append(dataclasses.replace(section, offset=len(out), size=len(part)))
        out += part
    out += b"\0" * (-len(out) % 8)
    header = list(elf.HEADER.unpack_from(template))
    header[6], header[12], header[13] = len(out), len(sections), len(sections) - 1
    out[: elf.HEADER.size] = elf.HEADER.pack(*header)
    for section in sections:
        out += elf.SECTION.pack(*dataclasses.astuple(section))
    return bytes(out)


_MACHO = b"\xcf\xfa\xed\xfe"
"""Mach-O, 64 bits, little endian."""
_MACHO_HEADER = struct.Struct("<8I")
_MACHO_SEGMENT = struct.Struct("<II16sQQQQIIII")
_MACHO_SECTION = struct.Struct("<16s16sQQ8I")
_MACHO_SYMTAB = struct.Struct("<6I")
_MACHO_SYMBOL = struct.Struct("<IBBHQ")
_MH_OBJECT, _LC_SYMTAB, _LC_SEGMENT, _LC_BUILD_VERSION, _LC_VERSION_MIN = 1, 2, 0x19, 0x32, 0x24
_N_SECTION, _N_EXTERNAL, _N_STAB = 0xE, 1, 0xE0


def _macho_commands(data: bytes) -> list[tuple[int, int, int]]:
    """Returns the kind, offset, and size of each load command."""
    header = _MACHO_HEADER.unpack_from(data)
    if header[3] != _MH_OBJECT:
        raise _NOT_ONE
    commands = []
    at = _MACHO_HEADER.size
    for _ in range(header[4]):
        kind, size = struct.unpack_from("<II", data, at)
        commands.append((kind, at, size))
        at += size
    return commands


def _read_macho(data: bytes) -> _Parts:
    sections, symbols = [], []
    for kind, at, _ in _macho_commands(data):
        if kind == _LC_SEGMENT:
            first, count = at + _MACHO_SEGMENT.size, _MACHO_SEGMENT.unpack_from(data, at)[9]
            sections += _records(_MACHO_SECTION, data, first, count)
        elif kind == _LC_SYMTAB:
            _, _, table, count, strings, _ = _MACHO_SYMTAB.unpack_from(data, at)
            for name, tag, section, _, value in _records(_MACHO_SYMBOL, data, table, count):
                if not tag & _N_STAB and tag & _N_EXTERNAL:
                    symbols.append((section, value, _c_name(_string(data, strings + name))))
    moved = [(index, Symbol(name, value - sections[index - 1][2], 0)) for index, value, name in symbols]
    return {index: (section[4], section[3]) for index, section in enumerate(sections, 1)}, moved


def _c_name(symbol: bytes) -> bytes:
    """Returns the name in C. tfcompile's constants, `__tfcompile_…`, lack the underscore that Mach-O's symbols start with."""
    return symbol.removeprefix(b"_") if symbol.startswith(b"___") or not symbol.startswith(b"__") else symbol


def _write_macho(template: bytes, contents: bytes, symbols: Sequence[Symbol]) -> bytes:
    # The system and version that the compiler's object is for.
    version = b"".join(
        template[at : at + size]
        for kind, at, size in _macho_commands(template)
        if kind in (_LC_BUILD_VERSION, _LC_VERSION_MIN)
    )
    segment = _MACHO_SEGMENT.size + _MACHO_SECTION.size
    commands = segment + len(version) + _MACHO_SYMTAB.size
    start = -(-(_MACHO_HEADER.size + commands) // ALIGNMENT) * ALIGNMENT
    held = _padded(contents, 8)
    table, names = b"", b"\0"
    # Linkers expect them by name.
    for symbol in sorted(symbols, key=lambda symbol: symbol.name):
        table += _MACHO_SYMBOL.pack(len(names), _N_SECTION | _N_EXTERNAL, 1, 0, symbol.start)
        names += b"_" + symbol.name + b"\0"
    header = list(_MACHO_HEADER.unpack_from(template))
    # No flags: symbols can share an address, so linkers must not divide the section at symbols.
    header[4], header[5], header[6] = 2 + bool(version), commands, 0
    shift = ALIGNMENT.bit_length() - 1
    return b"".join(
        (
            _padded(
                _MACHO_HEADER.pack(*header)
                + _MACHO_SEGMENT.pack(_LC_SEGMENT, segment, b"", 0, len(contents), start, len(contents), 7, 7, 1, 0)
                + _MACHO_SECTION.pack(b"__const", b"__TEXT", 0, len(contents), start, shift, 0, 0, 0, 0, 0, 0)
                + version
                + _MACHO_SYMTAB.pack(
                    _LC_SYMTAB,
                    _MACHO_SYMTAB.size,
                    start + len(held),
                    len(symbols),
                    start + len(held) + len(table),
                    len(names),
                ),
                ALIGNMENT,
            ),
            held,
            table,
            names,
        )
    )


_COFF = b"\x64\x86"
"""COFF for x86-64."""
_COFF_HEADER = struct.Struct("<HHIIIHH")
_COFF_SECTION = struct.Struct("<8sIIIIIIHHI")
_COFF_SYMBOL = struct.Struct("<8sIhHBB")
_COFF_EXTERNAL = 2
_COFF_READ_ONLY = 0x40000040
"""Initialized data, which can be read."""


def _read_coff(data: bytes) -> _Parts:
    header = _COFF_HEADER.unpack_from(data)
    count, table, entries, optional = header[1], header[3], header[4], header[5]
    sections = _records(_COFF_SECTION, data, _COFF_HEADER.size + optional, count)
    strings = table + entries * _COFF_SYMBOL.size
    symbols = []
    index = 0
    while index < entries:
        name, value, section, _, storage, auxiliary = _COFF_SYMBOL.unpack_from(data, table + index * _COFF_SYMBOL.size)
        index += 1 + auxiliary
        if storage != _COFF_EXTERNAL:
            continue
        inside = not name.startswith(b"\0\0\0\0")
        text = name.rstrip(b"\0") if inside else _string(data, strings + struct.unpack_from("<I", name, 4)[0])
        symbols.append((section, Symbol(text, value, 0)))
    return {index: (section[4], section[3]) for index, section in enumerate(sections, 1)}, symbols


def _write_coff(template: bytes, contents: bytes, symbols: Sequence[Symbol]) -> bytes:
    start = _COFF_HEADER.size + _COFF_SECTION.size
    held = _padded(contents, 4)
    machine = _COFF_HEADER.unpack_from(template)[0]
    alignment = ALIGNMENT.bit_length() << 20
    table, names = b"", b""
    for symbol in symbols:
        name = symbol.name.ljust(8, b"\0")
        if len(name) > 8:
            name = struct.pack("<II", 0, 4 + len(names))
            names += symbol.name + b"\0"
        table += _COFF_SYMBOL.pack(name, symbol.start, 1, 0, _COFF_EXTERNAL, 0)
    return b"".join(
        (
            _COFF_HEADER.pack(machine, 1, 0, start + len(held), len(symbols), 0, 0),
            _COFF_SECTION.pack(b".rdata", 0, 0, len(contents), start, 0, 0, 0, 0, _COFF_READ_ONLY | alignment),
            held,
            table,
            struct.pack("<I", 4 + len(names)),
            names,
        )
    )


_READERS = {elf.START: _read_elf, _MACHO: _read_macho, _COFF: _read_coff}
_WRITERS = {elf.START: _write_elf, _MACHO: _write_macho, _COFF: _write_coff}
