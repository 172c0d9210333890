"""Way 1: a Bazel or Bazelisk that is already on PATH."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from . import cache, versions
from .errors import WayFailed
from .progress import Progress
from .way import Bazel

_NAMES = ("bazel", "bazelisk")
# Set while asking a program for its version. Otherwise, a script on PATH that calls bazelw would do so forever.
PROBE_VARIABLE = "BAZELW_PROBE"
# In seconds. A Bazelisk can download Bazel before it answers.
_PROBE_TIMEOUT = 180.0
# How long to skip a program that doesn't fit, in seconds. If its file changes, bazelw asks it again at once.
_FORGET_AFTER = 24 * 3600.0


def programs(search_path: str, launcher: Path) -> Iterator[Path]:
    """Yields every `bazel` and `bazelisk` on PATH, in order, except bazelw itself under either name."""
    own = os.path.realpath(launcher)
    for folder in search_path.split(os.pathsep):
        for name in _NAMES:
            path = os.path.join(folder, name)
            # A relative entry would name a different program in each directory.
            if (
                os.path.isabs(path)
                and os.access(path, os.X_OK)
                and os.path.isfile(path)
                and os.path.realpath(path) != own
            ):
                yield Path(path)


def find(folder: Path, environ: Mapping[str, str], launcher: Path, wanted: str, progress: Progress) -> Bazel:
    """Returns the first program on PATH whose version fits `wanted`.

    Answers are cached until a program's file changes, so a call doesn't start Bazel twice. Raises WayFailed with what was
    found instead.
    """
    answers = cache.read_json(folder / "path.json")
    seen = []
    for path in programs(environ.get("PATH", ""), launcher):
        key = _identity(path, wanted)
        answer = answers.get(key)
        now = time.time()
        if not isinstance(answer, dict) or (not versions.fits(answer["version"], wanted) and now > answer["until"]):
            progress.say(f"asking {path} for its version")
            answer = {"version": ask(path, folder, environ, wanted), "until": now + _FORGET_AFTER}
            answers[key] = answer
            cache.write_json(folder / "path.json", answers)
        if versions.fits(answer["version"], wanted):
            return Bazel(str(path), environ=tuple("=".join(pair) for pair in bazelisk_environ(folder, wanted).items()))
        reason = answer["version"] or "it doesn't run"
        seen.append(f"{path} ({reason})")
    raise WayFailed(f"no Bazel on PATH fits {wanted}" + (f": {', '.join(seen)}" if seen else ""))


def ask(path: Path, folder: Path, environ: Mapping[str, str], wanted: str) -> str:
    """Returns the program's answer to `--version`, or nothing if it fails, like a Bazelisk without network access."""
    # Imported late: a call with cached answers doesn't need it.
    import subprocess

    probe = {**bazelisk_environ(folder, wanted), **environ, PROBE_VARIABLE: "1"}
    try:
        done = subprocess.run(
            [str(path), "--version"],
            env=probe,
            # Outside any workspace: the program counts, not the settings of the current directory.
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=_PROBE_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = done.stdout.strip().splitlines()
    return lines[-1].strip() if done.returncode == 0 and lines else ""


def bazelisk_environ(folder: Path, wanted: str) -> dict[str, str]:
    """Returns the environment that makes Bazelisk use the wanted version, anywhere, and keep it in the cache folder."""
    return {"USE_BAZEL_VERSION": wanted, "BAZELISK_HOME": str(folder / "bazelisk")}


def _identity(path: Path, wanted: str) -> str:
    status = path.stat()
    return f"{path} {status.st_size} {status.st_mtime_ns} {wanted}"
