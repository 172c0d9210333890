"""Writes the report on a compiled model: `page.py --name fc --manifest fc.model.json … --out_page fc_report.html`."""

from __future__ import annotations

import argparse
from typing import Any

from tfaot.core import isolate
from tfaot.page.page import Request, write

_LISTS = (
    "passes",
    "fingerprints",
    "programs",
    "objects",
    "hlo",
    "optimized",
    "drawings",
    "optimized_drawings",
)


def main() -> None:
    """Parses the flags, which are the fields of `tfaot.page.page.Request`, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    for name in ("name", "manifest", "graph", "report", "sources"):
        parser.add_argument(f"--{name}", required=True, help="the field of the same name")
    for name in ("measured", "clusters", "label"):
        parser.add_argument(f"--{name}", default="", help="the field of the same name")
    for name in _LISTS:
        parser.add_argument(f"--{name}", action="append", default=[], help="may be repeated")
    parser.add_argument("--out_page", required=True, help="output file")
    flags: dict[str, Any] = vars(parser.parse_args())
    write(Request(**{**flags, **{name: tuple(flags[name]) for name in _LISTS}}))


if __name__ == "__main__":
    isolate.main(main)
