"""Replaces one constant in a graph, layer1's gain, 1.2345678: `alter.py IN OUT`."""

import struct
import sys

source, target = sys.argv[1:]
with open(source, "rb") as file:
    data = file.read()
before, after = (struct.pack("<f", value) for value in (1.2345678, 1.2345))
assert data.count(before) == 1, data.count(before)
with open(target, "wb") as file:
    file.write(data.replace(before, after))
