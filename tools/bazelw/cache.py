"""The folder that contains everything bazelw makes. Files appear in it whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import BazelwError

VARIABLE = "RULES_TFAOT_CACHE"


def location(environ: Mapping[str, str]) -> Path | None:
    """Returns the absolute path of the cache folder that the environment names, or None if it names none."""
    if environ.get(VARIABLE):
        return Path(environ[VARIABLE]).absolute()
    if environ.get("XDG_CACHE_HOME"):
        return Path(environ["XDG_CACHE_HOME"]).absolute() / "rules_tfaot"
    if environ.get("HOME"):
        return Path(environ["HOME"]).absolute() / ".cache" / "rules_tfaot"
    return None


def usable(environ: Mapping[str, str]) -> Path:
    """Returns the cache folder after checking that Bazel can work in it. Creates nothing.

    Raises BazelwError if the environment names none, or one under /tmp: Bazel's sandbox gives each action a fresh /tmp,
    where neither Bazel's own tools nor its outputs would be visible.
    """
    folder = location(environ)
    if folder is None:
        raise BazelwError(
            f"no cache folder: neither {VARIABLE}, XDG_CACHE_HOME nor HOME is set; "
            f"set {VARIABLE} to a folder outside /tmp"
        )
    real = Path(os.path.realpath(folder))
    if real == Path("/tmp") or Path("/tmp") in real.parents:
        raise BazelwError(
            f"the cache folder {folder} is under /tmp, which Bazel's sandbox hides from every action; "
            f"set {VARIABLE} to a folder outside /tmp"
        )
    return real


def write_text(path: Path, text: str) -> None:
    """Writes `text` to `path` atomically: a reader sees either the old content or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Like `write_text`, with `value` as JSON."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object in `path`, or an empty one if it is missing or unreadable. Each can be made again."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
