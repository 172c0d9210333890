"""Names the class of an exported model: `name.py --manifest=export.json --cpp_class=a::B …`, or `name.py @params`."""

from __future__ import annotations

from tfaot.core import isolate, requests
from tfaot.core.naming import Request, name


def main() -> None:
    """Names the class."""
    name(requests.parse(Request, description=__doc__))


if __name__ == "__main__":
    isolate.main(main)
