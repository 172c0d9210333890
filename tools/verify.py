"""Runs the verify stage: `verify.py --manifest model.json … --out_goldens goldens.safetensors`, or `verify.py @params`."""

from __future__ import annotations

import argparse
import sys

from tfaot.core import environment, isolate


def main() -> None:
    """Parses the flags, which are the fields of `tfaot.verify.goldens.Request`, and computes goldens in a child process."""
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    for source in ("manifest", "graph", "variables", "golden_inputs"):
        parser.add_argument(f"--{source}", required=True, help="an output of the export stage")
    parser.add_argument("--sources", help="an output of the export stage; only errors read it")
    parser.add_argument("--program", help="the program that the graph was converted from, StableHLO")
    parser.add_argument("--out_goldens", required=True, help="output file")
    parser.add_argument(
        "--unseen", action="append", default=[], help="pattern of outputs and variables that no comparison needs to see"
    )
    parser.add_argument(
        "--strict", action="store_true", help="make it an error that no comparison sees an output or a variable"
    )
    flags = vars(parser.parse_args())
    sources = flags.pop("sources")
    flags["unseen"] = tuple(flags["unseen"])

    def work() -> str:
        environment.prepare()
        import tensorflow as tf

        from tfaot.verify import failed_run
        from tfaot.verify.goldens import Request, compute_goldens

        try:
            return str(compute_goldens(Request(**flags)) or "")
        except tf.errors.OpError as error:
            raise failed_run.explained_in_files(
                error, manifest=flags["manifest"], golden_inputs=flags["golden_inputs"], sources=sources
            ) from None

    if unverified := isolate.run_isolated(work, what="computing the goldens in TensorFlow"):
        print(f"warning: {unverified}", file=sys.stderr)


if __name__ == "__main__":
    isolate.main(main)
