"""Runs the link stage's choice of runtime parts: `link.py --header model.tfcompile.h --out_folder folder`."""

from __future__ import annotations

import argparse

from tfaot import isolate
from tfaot.link import Request, write_runtime


def main() -> None:
    """Parses the flags, which are the fields of `tfaot.link.Request`, and writes the folder."""
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    parser.add_argument("--header", required=True, help="tfcompile's header, from the compile stage")
    parser.add_argument("--out_folder", required=True, help="folder of C++ sources to write")
    write_runtime(Request(**vars(parser.parse_args())))


if __name__ == "__main__":
    isolate.main(main)
