"""Runs the StableHLO stage: `stablehlo.py --manifest model.json … --out_text m.mlir …`, or `stablehlo.py @params`."""

from __future__ import annotations

import argparse

from tfaot.core import isolate
from tfaot.hlo.stablehlo import Request, translate


def main() -> None:
    """Parses the flags, which are the fields of `tfaot.hlo.stablehlo.Request`, and translates the HLO."""
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    for source in ("manifest", "graph", "sources"):
        parser.add_argument(f"--{source}", required=True, help="an output of the export stage")
    parser.add_argument("--entry_point", default="", help="its name in the manifest")
    parser.add_argument("--name", required=True, help="the module's name")
    for output in ("text", "bytecode"):
        parser.add_argument(f"--out_{output}", required=True, help="output file")
    translate(Request(**vars(parser.parse_args())))


if __name__ == "__main__":
    isolate.main(main)
