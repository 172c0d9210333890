"""Chooses a way to get Bazel, and replaces this process with it."""

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
    """Runs Bazel with the user's arguments in place of this process. Returns only if that is impossible.

    Args:
      arguments: The user's arguments to `bazelw`.
      environ: The process's environment.
      root: The folder that contains the launcher and .bazelversion.
    """
    # Treat a service manager's polite signal like Ctrl-C: stop running commands, keep downloads.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        folder = cache.usable(environ)
        bazel = get(folder, environ, Path(root))
    except BazelwError as failure:
        print(f"bazelw: {failure}", file=sys.stderr)
        return 1
    except OSError as failure:
        print(
            f"bazelw: {failure}; free disk space, or set {cache.VARIABLE} to another folder, then call bazelw again",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print("\nbazelw: interrupted; the next call continues from here", file=sys.stderr)
        return 130
    command = [bazel.program, *bazel.startup, f"--output_user_root={folder / 'bazel'}", *arguments]
    # Python ignores this signal, and Bazel would inherit that. From here, the exit code and all other signals are Bazel's.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execve(bazel.program, command, {**dict(pair.split("=", 1) for pair in bazel.environ), **environ})


def get(folder: Path, environ: Mapping[str, str], root: Path) -> Bazel:
    """Returns a Bazel that fits .bazelversion: one that is ready, or else one that it sets up now."""
    if find.PROBE_VARIABLE in environ:
        raise BazelwError("a program on PATH calls bazelw; skipping it")
    ways = chosen_ways(environ)
    version = (root / ".bazelversion").read_text(encoding="utf-8").strip()
    tell = progress.Progress()
    reasons = []
    if "path" in ways:
        try:
            return find.find(folder, environ, root / "bazelw", version, tell)
        except WayFailed as failure:
            reasons.append(str(failure))
    bazel = _recall(folder, ways, version)
    if bazel:
        return bazel
    # Imported late: the code that sets Bazel up isn't needed once Bazel is there.
    from . import debian, lock, official

    with lock.held(folder, tell):
        # Another bazelw may have set it up while this one waited.
        bazel = _recall(folder, ways, version)
        if bazel:
            return bazel
        makers = {"official": official.set_up, "debian": debian.set_up}
        for name in ways:
            if name not in makers:
                continue
            try:
                bazel = makers[name](folder, version, tell)
                way.remember(folder, name, version, bazel)
                return bazel
            except WayFailed as failure:
                tell.say(str(failure))
                reasons.append(str(failure))
    raise BazelwError(
        f"no Bazel {version}: {'; '.join(reasons)}. Put a Bazel {version} or Bazelisk on PATH, or connect this machine "
        "to the official release's host or a Debian mirror, then call bazelw again"
    )


def _recall(folder: Path, ways: Sequence[str], version: str) -> Bazel | None:
    """Returns what an earlier call set up in the first of `ways` that has anything, without using the network."""
    for name in ways:
        bazel = way.recall(folder, name, version)
        if bazel:
            return bazel
    return None


def chosen_ways(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the ways to try, in the fixed order: all of them, or those in BAZELW_WAYS."""
    text = environ.get(WAYS_VARIABLE)
    if text is None:
        return WAYS
    words = [word.strip() for word in text.split(",")]
    unknown = [word for word in words if word not in WAYS]
    if unknown:
        raise BazelwError(f"{WAYS_VARIABLE} names {unknown[0]!r}; it takes a list of {', '.join(WAYS)}")
    return tuple(name for name in WAYS if name in words)
