"""Flips one bit of a safetensors file, the lowest of the first value's mantissa: `flip_bit.py IN OUT`."""

import struct
import sys

source, target = sys.argv[1:]
with open(source, "rb") as file:
    data = bytearray(file.read())
(header,) = struct.unpack("<Q", data[:8])
data[8 + header] ^= 1
with open(target, "wb") as file:
    file.write(data)
