"""Writes the pages of docs/reference that are made from the sources.

    bazel run //tools/dev/reference

A page that is up to date isn't touched. //tests/tools/dev/reference compares all of them.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from tools.dev.reference import pages


def main() -> None:
    """Writes the pages that changed, and names them."""
    parser = argparse.ArgumentParser(
        prog="reference", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    root = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."))
    for name, text in pages.pages(root).items():
        page = root / name
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")
            print(f"reference: wrote {name}")


if __name__ == "__main__":
    main()
