"""Where the rules' own files are: beside this package in a wheel, and in the workspace otherwise."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]

RULES = next(folder for folder in (_PACKAGE / "_rules", _PACKAGE.parents[1]) if (folder / "runtime").is_dir())
"""A folder with the rules' `runtime`, `tools`, and `rules/private`."""
