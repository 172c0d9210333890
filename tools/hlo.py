"""Runs the HLO stage: `hlo.py --manifest model.json … --out_hlo model.hlo.pb …`, or `hlo.py @params`."""

from __future__ import annotations

import argparse

from tfaot.core import isolate
from tfaot.hlo.hlo import Request, extract


def main() -> None:
    """Parses the flags, which are the fields of `tfaot.hlo.hlo.Request`, and extracts the HLO."""
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    for source in ("manifest", "graph", "config", "sources"):
        parser.add_argument(f"--{source}", required=True, help="an output of the export stage")
    parser.add_argument("--entry_point", default="", help="its name in the manifest")
    parser.add_argument("--name", required=True, help="the HLO module's name")
    parser.add_argument("--cpu", required=True, help="level of the x86-64 psABI to optimize for, for example x86-64-v3")
    parser.add_argument("--xla_flags", action="append", default=[], help="a flag of XLA; may be repeated")
    for output in ("hlo", "hlo_text", "optimized_hlo", "drawing", "optimized_drawing"):
        parser.add_argument(f"--out_{output}", required=True, help="output file")
    flags = vars(parser.parse_args())
    extract(Request(**{**flags, "xla_flags": tuple(flags["xla_flags"])}))


if __name__ == "__main__":
    isolate.main(main)
