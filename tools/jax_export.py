"""Runs the stage that exports functions of JAX: `jax_export.py --model=model.py … --out_programs=model.jax`, or `… @params`."""

from __future__ import annotations

import os
import sys

from tfaot.core import isolate, requests


def main() -> None:
    """Exports in a process without TensorFlow, whose NumPy can be another one than JAX's."""
    if "tensorflow" in sys.modules:  # a worker's
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, "-s", "-S", "-B", os.path.abspath(__file__), *sys.argv[1:]])
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ.setdefault(
        "EQX_ON_ERROR", "nan"
    )  # Equinox's checks call Python otherwise, and Diffrax has some everywhere
    from tfaot.jax import file

    file.run(requests.parse(file.Request, description=__doc__))


if __name__ == "__main__":
    isolate.main(main)
