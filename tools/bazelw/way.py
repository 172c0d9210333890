"""The result of each way to get Bazel, and how it is kept for the next call."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path

from . import cache

# Increment when a way's result changes. Earlier setups are then replaced.
RECIPE = 1


@dataclass(frozen=True)
class Bazel:
    """A Bazel that is ready to run."""

    # Absolute path of the executable.
    program: str
    # Startup options that this Bazel needs, before the user's own.
    startup: tuple[str, ...] = ()
    # Environment variables, NAME=VALUE, that this Bazel needs unless the user has set them.
    environ: tuple[str, ...] = ()


def remember(folder: Path, way: str, version: str, bazel: Bazel) -> None:
    """Keeps `bazel` for `recall`; to be called when all its files are in place."""
    cache.write_json(folder / "ready" / f"{way}.json", {"for": _key(folder, version), **asdict(bazel)})


def recall(folder: Path, way: str, version: str) -> Bazel | None:
    """Returns the Bazel that an earlier call remembered for the same version, cache folder and recipe, or None."""
    stamp = cache.read_json(folder / "ready" / f"{way}.json")
    # Programs in a cache folder that was moved contain paths to its old location.
    if stamp.get("for") != _key(folder, version):
        return None
    # A user could have removed files to free space.
    if not os.access(stamp["program"], os.X_OK):
        return None
    return Bazel(stamp["program"], tuple(stamp["startup"]), tuple(stamp["environ"]))


def _key(folder: Path, version: str) -> str:
    return f"{version} in {folder} by recipe {RECIPE}"
