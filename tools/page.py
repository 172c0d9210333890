"""Writes the report on a compiled model: `page.py --name fc --manifest fc.model.json … --out_page fc_report.html`."""

from __future__ import annotations

import argparse

from tfaot.core import isolate
from tfaot.page.page import Request, write

_LISTS = ("passes", "fingerprints", "sources", "objects", "hlo", "optimized", "pictures")


def main() -> None:
    """Parses the flags, which are the fields of `tfaot.page.page.Request`, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    parser.add_argument("--name", required=True, help="the model's name")
    parser.add_argument("--manifest", required=True, help="model.json")
    for name in _LISTS:
        parser.add_argument(f"--{name}", action="append", default=[], help="may be repeated")
    parser.add_argument("--out_page", required=True, help="output file")
    flags = parser.parse_args()
    write(
        Request(
            name=flags.name,
            manifest=flags.manifest,
            out_page=flags.out_page,
            **{name: tuple(getattr(flags, name)) for name in _LISTS},
        )
    )


if __name__ == "__main__":
    isolate.main(main)
