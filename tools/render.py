"""Runs the render stage: `render.py --manifest=model.json … --out_header=model.h …`, or `render.py @params`."""

from __future__ import annotations

from tfaot.core import isolate, requests
from tfaot.render.render import Request, render


def main() -> None:
    """Renders the sources."""
    render(requests.parse(Request, description=__doc__))


if __name__ == "__main__":
    isolate.main(main)
