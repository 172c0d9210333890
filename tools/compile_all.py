"""Runs the compile stage for all functions of a model: `compile_all.py --manifest model.json … --out_objects folder …`."""

from __future__ import annotations

import argparse

from tfaot.compile.all import Request, compile_all
from tfaot.core import isolate


def main() -> None:
    """Parses the flags, which are the fields of `tfaot.compile.all.Request`, and compiles the model."""
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    for source in ("manifest", "graph", "sources"):
        parser.add_argument(f"--{source}", required=True, help="an output of the cluster stage")
    parser.add_argument("--configs", required=True, help="its folder of configs")
    parser.add_argument(
        "--isa", action="append", required=True, help="level of the x86-64 psABI; may be repeated, lowest first"
    )
    parser.add_argument("--target_triple", default="", help="LLVM's name of a platform other than Linux")
    parser.add_argument("--xla_flags", action="append", default=[], help="a flag of XLA; may be repeated")
    parser.add_argument("--passes", action="append", default=[], help="a pattern of passes; may be repeated")
    parser.add_argument("--tolerant", action="store_true", help="go on without a pass that raises an exception")
    for output in ("objects", "headers", "descriptions"):
        parser.add_argument(f"--out_{output}", required=True, help="output folder")
    parser.add_argument(
        "--out_sources", action="append", required=True, help="output folder; one for each level, in order"
    )
    parser.add_argument("--out_fingerprint_source", required=True, help="output file")
    flags = vars(parser.parse_args())
    lists = {name: tuple(value) for name, value in flags.items() if isinstance(value, list)}
    compile_all(Request(**{**flags, **lists}))


if __name__ == "__main__":
    isolate.main(main)
