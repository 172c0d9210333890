"""Packs a bundle: `bundle.py --name fc --file module.hlo.pb=path … --out_archive fc.bundle.tar.gz`."""

from __future__ import annotations

import argparse

from tfaot.core import isolate
from tfaot.hlo.bundle import Request, pack


def main() -> None:
    """Parses the flags, which are the fields of `tfaot.hlo.bundle.Request`, and packs the bundle."""
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    parser.add_argument("--name", required=True, help="the name of the model and of the folder in the archive")
    parser.add_argument("--file", action="append", default=[], help="NAME=PATH: the name in the archive, and the file")
    parser.add_argument("--out_archive", required=True, help="output file")
    flags = parser.parse_args()
    files = tuple((name, path) for name, _, path in (entry.partition("=") for entry in flags.file))
    pack(Request(name=flags.name, files=files, out_archive=flags.out_archive))


if __name__ == "__main__":
    isolate.main(main)
