"""Runs the StableHLO stage: `stablehlo.py --manifest=model.json … --out_text=m.mlir …`, or `stablehlo.py @params`."""

from __future__ import annotations

from tfaot.core import isolate, requests
from tfaot.hlo.stablehlo import Request, translate


def main() -> None:
    """Translates the HLO."""
    translate(requests.parse(Request, description=__doc__))


if __name__ == "__main__":
    isolate.main(main)
