"""All pages that are made from the sources."""

from __future__ import annotations

from pathlib import Path

from tools.dev.reference import c_api, class_, command, errors, passes, rules, schema


def pages(root: Path) -> dict[str, str]:
    """Returns the text of each page by its path.

    Args:
      root: the repository's root
    """
    return {
        **rules.pages(root),
        **schema.pages(),
        **class_.pages(),
        **c_api.pages(root),
        **command.pages(),
        **errors.pages(root),
        **passes.pages(root),
    }
