"""Reads what object files add to a program. Pure."""

from __future__ import annotations

import struct
from collections import Counter


def sections(data: bytes) -> dict[str, int]:
    """Returns the bytes that an object file adds to a program, by kind of section; nothing if it isn't ELF with 64 bits.

    Source of the file's structure: System V ABI, chapter 4.
    """
    if data[:6] != b"\x7fELF\x02\x01":
        return {}
    (start,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    table = [struct.unpack_from("<IIQQQQ", data, start + index * size) for index in range(count)]
    bytes_of: Counter[str] = Counter()
    for name, kind, flags, _, _, length in table:
        if flags & 2 and length:  # it is in memory when the program runs
            at = table[names][4] + name
            full = data[at : data.index(b"\0", at)].decode()
            bytes_of[_kind(full, kind)] += length
    return dict(bytes_of)


def _kind(name: str, kind: int) -> str:
    for section in (".text", ".rodata", ".data.rel.ro", ".data", ".eh_frame"):
        if name == section or name.startswith((section + ".", section + "_")):
            return section
    return ".bss" if kind == 8 else ".rodata" if name.startswith((".lrodata", ".tfaot_constants")) else name
