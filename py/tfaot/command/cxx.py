"""Compiles C++ with the user's compiler, with the flags of `runtime/package.bzl`."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tfaot.core.errors import TfaotError, listed

_COMPILERS = ("c++", "g++", "clang++")


@dataclasses.dataclass(frozen=True)
class Source:
    """A source to compile."""

    path: str
    out: str
    """The object."""
    flags: tuple[str, ...]


def compiler() -> list[str]:
    """Returns the command of the C++ compiler: $CXX, or the first that PATH has.

    Raises:
      TfaotError: there is none.
    """
    named = shlex.split(os.environ.get("CXX", ""))
    if named and shutil.which(named[0]) is None:
        raise TfaotError(
            f"there is no C++ compiler {named[0]!r}, which the environment variable CXX names",
            do="set CXX to a compiler with C++17, or unset it to use " + listed(_COMPILERS),
        )
    found = named or [name for name in _COMPILERS if shutil.which(name)][:1]
    if not found:
        raise TfaotError(
            "there is no C++ compiler",
            exists=f"PATH has none of {listed(_COMPILERS)}, and CXX isn't set",
            do="install gcc or clang with C++17, or set CXX to a compiler",
        )
    return found


def archiver() -> str:
    """Returns the archiver: $AR, or `ar`."""
    return os.environ.get("AR") or "ar"


def compile_all(sources: Sequence[Source]) -> None:
    """Compiles sources, as many at a time as there are cores.

    Raises:
      TfaotError: the compiler fails.
    """
    command = compiler()

    def one(source: Source) -> None:
        run([*command, *source.flags, "-c", source.path, "-o", source.out], what=f"compiling {Path(source.path).name}")

    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        waiting = [pool.submit(one, source) for source in sources]
        try:
            for each in concurrent.futures.as_completed(waiting):
                each.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def link(objects: Sequence[str], *, out: str, flags: Sequence[str] = ()) -> None:
    """Links a program.

    Raises:
      TfaotError: the compiler fails.
    """
    run([*compiler(), *objects, *flags, "-pthread", "-o", out], what=f"linking {Path(out).name}")


def run(command: Sequence[str], *, what: str) -> None:
    """Runs a compiler.

    Raises:
      TfaotError: it fails.
    """
    done = subprocess.run(command, check=False, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise TfaotError(
            f"{what}: {command[0]} exited with status {done.returncode}",
            details="\n".join(done.stderr.splitlines()[:30]),
            do="see its message above; models need gcc 11, clang 14, or a newer version of these, on x86-64",
        )
