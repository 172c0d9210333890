"""Constants of booleans in programs that JAX writes as text."""

from __future__ import annotations

import math
import re

import numpy as np

_BYTES_FOR_BITS = re.compile(r'dense<"0x([0-9A-Fa-f]+)"> : tensor<((?:\d+x)*)i1>')


def with_packed_bits(text: bytes) -> bytes:
    """Packs constants that have a byte for each boolean. JAX's MLIR writes them so, and that of TensorFlow reads only bits.

    Args:
      text: a program in StableHLO. A portable artifact stays as it is.
    """

    def packed(match: re.Match[str]) -> str:
        values = np.frombuffer(bytes.fromhex(match[1]), np.uint8)
        if len(values) == 1 or len(values) != math.prod(int(size) for size in match[2].split("x")[:-1]):
            return match[0]
        bits = np.packbits(values != 0, bitorder="little").tobytes().hex().upper()
        return f'dense<"0x{bits}"> : tensor<{match[2]}i1>'

    if b"i1>" not in text or text.startswith(b"ML\xefR"):
        return text
    return _BYTES_FOR_BITS.sub(packed, text.decode(errors="surrogateescape")).encode(errors="surrogateescape")
