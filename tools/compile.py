"""Runs the compile stage: `compile.py --manifest model.json … --out_object model.o …`, or `compile.py @params`."""

from __future__ import annotations

import argparse

from tfaot.compile.compile import Request, compile_graph
from tfaot.core import isolate


def main() -> None:
    """Parses the flags, which are the fields of `tfaot.compile.compile.Request`, and compiles the model."""
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    for source in ("manifest", "graph", "config", "sources"):
        parser.add_argument(f"--{source}", required=True, help="an output of the export stage")
    parser.add_argument("--entry_point", default="", help="its name in the manifest")
    parser.add_argument("--batch", type=int, default=0, help="one of its batch sizes, 0 if it has none")
    parser.add_argument(
        "--isa", action="append", required=True, help="level of the x86-64 psABI; may be repeated, lowest first"
    )
    parser.add_argument("--target_triple", default="", help="LLVM's name of a platform other than Linux")
    parser.add_argument("--xla_flags", action="append", default=[], help="a flag of XLA; may be repeated")
    parser.add_argument("--passes", action="append", default=[], help="a pattern of passes; may be repeated")
    parser.add_argument("--tolerant", action="store_true", help="go on without a pass that raises an exception")
    for output in ("constants", "fingerprint", "fingerprint_source", "header", "hlo", "passes", "program"):
        parser.add_argument(f"--out_{output}", required=output != "program", default="", help="output file")
    for output in ("objects", "sources"):
        parser.add_argument(
            f"--out_{output}", action="append", required=True, help="output file; one for each level, in order"
        )
    flags = vars(parser.parse_args())
    lists = {name: tuple(value) for name, value in flags.items() if isinstance(value, list)}
    compile_graph(Request(**{**flags, **lists}))


if __name__ == "__main__":
    isolate.main(main)
