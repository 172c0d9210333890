"""Runs the compile stage: `compile.py --manifest=model.json … --out_objects=model.o …`, or `compile.py @params`."""

from __future__ import annotations

from tfaot.compile.compile import Request, compile_graph
from tfaot.core import isolate, requests


def main() -> None:
    """Compiles a function of the model."""
    compile_graph(requests.parse(Request, description=__doc__))


if __name__ == "__main__":
    isolate.main(main)
