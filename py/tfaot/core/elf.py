"""Object files in ELF: which of their symbols a shared library exports.

The structures are those of the System V ABI, chapter 4 (ELF-64).
"""

from __future__ import annotations

import struct

START = b"\x7fELF\x02\x01"
"""ELF, 64 bits, little endian."""
HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB, _UNDEFINED = 2, 0
_GLOBAL, _WEAK, _UNIQUE = 1, 2, 10
_DEFAULT, _HIDDEN = 0, 2


def hidden(data: bytes) -> bytes:
    """Returns an object file whose symbols no program or library exports. Those that it uses don't change.

    Compilers' flags don't hide what the C++ library says is visible, and XLA has no such flag. Files of other formats are
    returned as they are.
    """
    if not data.startswith(START):
        return data
    header = HEADER.unpack_from(data)
    out = bytearray(data)
    # A file with too many sections has their number in the first one.
    count = header[12] or SECTION.unpack_from(data, header[6])[5]
    for index in range(count):
        section = SECTION.unpack_from(data, header[6] + index * header[11])
        if section[1] != _SYMTAB:
            continue
        for at in range(section[4], section[4] + section[5], SYMBOL.size):
            name, info, other, place, value, size = SYMBOL.unpack_from(data, at)
            binding = info >> 4
            if place == _UNDEFINED or binding not in (_GLOBAL, _WEAK, _UNIQUE) or other & 3 != _DEFAULT:
                continue
            if binding == _UNIQUE:
                info = _WEAK << 4 | info & 15
            SYMBOL.pack_into(out, at, name, info, other | _HIDDEN, place, value, size)
    return bytes(out)
