"""Runs the verify stage: `verify.py --manifest=model.json … --out_goldens=goldens.safetensors`, or `verify.py @params`."""

from __future__ import annotations

import sys

from tfaot.core import environment, isolate, requests
from tfaot.verify.request import Request


def main() -> None:
    """Computes goldens in a child process."""
    request = requests.parse(Request, description=__doc__)

    def work() -> str:
        environment.prepare()
        import tensorflow as tf

        from tfaot.verify import failed_run
        from tfaot.verify.goldens import compute_goldens

        try:
            return str(compute_goldens(request) or "")
        except tf.errors.OpError as error:
            raise failed_run.explained_in_files(error, request) from None

    if unverified := isolate.run_isolated(work, what="computing the goldens in TensorFlow"):
        print(f"warning: {unverified}", file=sys.stderr)


if __name__ == "__main__":
    isolate.main(main)
