"""Writes one file for each part of the runtime: NAME_stub.cc in the folder that is named."""

import sys
from pathlib import Path

from tfaot import runtime_parts

for part in runtime_parts.PARTS:
    if part.sources:
        Path(sys.argv[1], f"{part.name}_stub.cc").write_text(part.stub(), encoding="utf-8")
