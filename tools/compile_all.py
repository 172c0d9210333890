"""Runs the compile stage for all functions of a model: `compile_all.py --manifest=model.json … --out_objects=folder …`."""

from __future__ import annotations

from tfaot.compile.all import Request, compile_all
from tfaot.core import isolate, requests


def main() -> None:
    """Compiles the model."""
    compile_all(requests.parse(Request, description=__doc__))


if __name__ == "__main__":
    isolate.main(main)
