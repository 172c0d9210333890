"""Runs the HLO stage: `hlo.py --manifest=model.json … --out_hlo=model.hlo.pb …`, or `hlo.py @params`."""

from __future__ import annotations

from tfaot.core import isolate, requests
from tfaot.hlo.hlo import Request, extract


def main() -> None:
    """Extracts the HLO."""
    extract(requests.parse(Request, description=__doc__))


if __name__ == "__main__":
    isolate.main(main)
