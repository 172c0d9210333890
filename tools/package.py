"""Packs a compiled model: `package.py --name=fc --objects=fc.o=path … --out_archive=fc.package.tar.gz`, or `package.py @params`."""

from __future__ import annotations

from tfaot.core import isolate, requests
from tfaot.pack.package import Request, pack


def main() -> None:
    """Packs the model."""
    pack(requests.parse(Request, description=__doc__))


if __name__ == "__main__":
    isolate.main(main)
