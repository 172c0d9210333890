"""Compares a cut model with the model as it was, in TensorFlow: `whole.py libNAME.so SAVED_MODEL PLAN INPUTS UNCUT`."""

from __future__ import annotations

import argparse
import sys

from tfaot.core import environment


def main() -> None:
    """Runs both for all steps, and compares outputs and variables after each. Exits with 1 if any differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, text in (
        ("library", "the clusters' library of ops"),
        ("saved_model", "the cut model's folder"),
        ("plan", "the plan, JSON"),
        ("inputs", "the inputs of each step, safetensors"),
        ("uncut", "the model's own graph"),
    ):
        parser.add_argument(name, help=text)
    flags = parser.parse_args()
    environment.prepare()
    # Later, because it imports TensorFlow.
    from tfaot.cluster import compare

    report = compare.compare(compare.Files(flags.library, flags.saved_model, flags.plan, flags.inputs, flags.uncut))
    print("\n".join(report.lines))
    if report.differs:
        sys.exit(1)


if __name__ == "__main__":
    main()
