"""Packs a bundle: `bundle.py --name=fc --hlo=fc.hlo.pb … --out_archive=fc.bundle.tar.gz`, or `bundle.py @params`."""

from __future__ import annotations

from tfaot.core import isolate, requests
from tfaot.hlo.bundle import Request, pack


def main() -> None:
    """Packs the bundle."""
    pack(requests.parse(Request, description=__doc__))


if __name__ == "__main__":
    isolate.main(main)
