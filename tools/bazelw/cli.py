"""Decides which way leads to Bazel, and becomes it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import cache, find, progress, way
from .errors import BazelwError, WayFailed
from .way import Bazel

WAYS_VARIABLE = "BAZELW_WAYS"
WAYS = ("path", "official", "debian")


def main(arguments: Sequence[str], environ: Mapping[str, str], root: str) -> int:
    """Runs Bazel with the user's arguments in place of this process; returns only when that is impossible.

    Args:
      arguments: What the user wrote after `bazelw`.
      environ: The process's environment.
      root: The folder that holds the launcher and .bazelversion.
    """
    # A service manager's polite signal is treated as Ctrl-C: commands under way are stopped, downloads are kept.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        folder = cache.usable(environ)
        bazel = get(folder, environ, Path(root))
    except BazelwError as failure:
        print(f"bazelw: {failure}", file=sys.stderr)
        return 1
    except OSError as failure:
        print(
            f"bazelw: {failure}; make room, or set {cache.VARIABLE} to another folder, then call bazelw again",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print("\nbazelw: interrupted; the next call goes on from here", file=sys.stderr)
        return 130
    command = [bazel.program, *bazel.startup, f"--output_user_root={folder / 'bazel'}", *arguments]
    # Python ignores this signal, and Bazel would inherit that. Exit code and all other signals are Bazel's from here.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execve(bazel.program, command, {**dict(pair.split("=", 1) for pair in bazel.environ), **environ})


def get(folder: Path, environ: Mapping[str, str], root: Path) -> Bazel:
    """Returns a Bazel that fits .bazelversion: one that is ready, else one that is set up now."""
    if find.PROBE_VARIABLE in environ:
        raise BazelwError("a program on PATH calls bazelw; it is passed over")
    ways = chosen_ways(environ)
    version = (root / ".bazelversion").read_text(encoding="utf-8").strip()
    tell = progress.Progress()
    reasons = []
    if "path" in ways:
        try:
            return find.find(folder, environ, root / "bazelw", version, tell)
        except WayFailed as failure:
            reasons.append(str(failure))
    found = _recall(folder, ways, version)
    if found:
        return found
    # Imported late: what sets Bazel up is not needed once it is.
    from . import debian, lock, official

    with lock.held(folder, tell):
        # Another bazelw may have made it while this one waited.
        found = _recall(folder, ways, version)
        if found:
            return found
        makers = {"official": official.set_up, "debian": debian.set_up}
        for name in ways:
            if name not in makers:
                continue
            try:
                found = makers[name](folder, version, tell)
                way.remember(folder, name, version, found)
                return found
            except WayFailed as failure:
                tell.say(str(failure))
                reasons.append(str(failure))
    raise BazelwError(
        f"no Bazel {version}: {'; '.join(reasons)}. Put a Bazel {version} or Bazelisk on PATH, or connect this machine "
        "to the official release's host or a Debian mirror, then call bazelw again"
    )


def _recall(folder: Path, ways: Sequence[str], version: str) -> Bazel | None:
    """Returns what an earlier call set up in the first of `ways` that has anything, without a look at the network."""
    for name in ways:
        found = way.recall(folder, name, version)
        if found:
            return found
    return None


def chosen_ways(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the ways to try, in the fixed order: all of them, or those that BAZELW_WAYS lists."""
    text = environ.get(WAYS_VARIABLE)
    if text is None:
        return WAYS
    words = [word.strip() for word in text.split(",")]
    unknown = [word for word in words if word not in WAYS]
    if unknown:
        raise BazelwError(f"{WAYS_VARIABLE} names {unknown[0]!r}; it takes a list of {', '.join(WAYS)}")
    return tuple(name for name in WAYS if name in words)
