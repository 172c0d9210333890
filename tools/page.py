"""Writes the report on a compiled model: `page.py --name=fc --manifest=fc.model.json … --out_page=fc_report.html`."""

from __future__ import annotations

from tfaot.core import isolate, requests
from tfaot.page.page import Request, write


def main() -> None:
    """Writes the page."""
    write(requests.parse(Request, description=__doc__))


if __name__ == "__main__":
    isolate.main(main)
