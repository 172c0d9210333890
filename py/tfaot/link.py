"""The link stage: which parts of XLA's runtime a compiled model brings along, as sources that include them."""

from __future__ import annotations

import dataclasses
import os

from tfaot.runtime_parts import parts_for


@dataclasses.dataclass(frozen=True)
class Request:
    """What to read, and where to write."""

    header: str
    """What tfcompile wrote."""
    out_folder: str
    """Gets one C++ source for each part."""


def write_runtime(request: Request) -> None:
    """Writes `PART.cc` for every part that the header calls.

    Raises:
      TfaotError: the header calls something that no part offers.
    """
    with open(request.header, encoding="utf-8") as file:
        parts = parts_for(file.read())
    os.makedirs(request.out_folder, exist_ok=True)
    for part in parts:
        if stub := part.stub():
            with open(os.path.join(request.out_folder, part.name + ".cc"), "w", encoding="utf-8") as file:
                file.write(stub)
