"""Runs the verify stage: `verify.py --manifest model.json … --out_goldens goldens.safetensors`, or `verify.py @params`."""

from __future__ import annotations

import argparse

from tfaot import environment, isolate


def main() -> None:
    """Parses the flags, which are the fields of `tfaot.verify.goldens.Request`, and computes in a child process."""
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    for source in ("manifest", "graph", "variables", "golden_inputs"):
        parser.add_argument(f"--{source}", required=True, help="an output of the export stage")
    parser.add_argument("--out_goldens", required=True, help="output file")
    parser.add_argument(
        "--unseen", action="append", default=[], help="pattern of outputs and variables that no comparison needs to see"
    )
    flags = parser.parse_args()

    def work() -> None:
        environment.prepare()
        from tfaot.verify.goldens import Request, compute_goldens

        compute_goldens(Request(**vars(flags) | {"unseen": tuple(flags.unseen)}))

    isolate.run_isolated(work, what="computing the goldens in TensorFlow")


if __name__ == "__main__":
    isolate.main(main)
