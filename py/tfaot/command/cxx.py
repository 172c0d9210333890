"""Compiles C++ with the user's compiler, with the flags of `runtime/package.bzl`, for this machine or another."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import platform as machine
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tfaot.core.errors import TfaotError, listed

_COMPILERS = ("c++", "g++", "clang++")
HERE = f"linux_{machine.machine()}"
"""The platform of this machine, by its name in `runtime/copts.bzl` if it has one."""


@dataclasses.dataclass(frozen=True)
class Source:
    """A source to compile."""

    path: str
    out: str
    """The object."""
    flags: tuple[str, ...]
    shared: bool = False
    """Whether all models have the same object."""

    @property
    def dependencies(self) -> str:
        """The file with what a shared source includes, as a rule of make."""
        return self.out + ".d"


@dataclasses.dataclass(frozen=True)
class Tools:
    """The user's programs for C++."""

    compiler: tuple[str, ...]
    """A command that compiles and links."""
    archiver: str


def tools(platform: str) -> Tools:
    """Returns the programs for a platform: $CXX and $AR, or what PATH has. Another platform's have its name in theirs.

    Raises:
      TfaotError: there is no compiler, or it compiles for another machine.
    """
    prefix = "" if platform == HERE or not platform.startswith("linux_") else f"{_machine(platform)}-linux-gnu-"
    command = _compiler([prefix + name for name in _COMPILERS])
    try:
        done = subprocess.run([*command, "-dumpmachine"], check=False, capture_output=True, text=True)
        target = done.stdout.strip()
    except OSError as error:
        target = str(error.strerror)
    if target.partition("-")[0].replace("arm64", "aarch64") != _machine(platform):
        raise TfaotError(
            f"{command[0]} doesn't compile for {platform}",
            exists=f"`{shlex.join([*command, '-dumpmachine'])}` says {target!r}",
            do=f"set CXX to a compiler for it, such as {_machine(platform)}-linux-gnu-g++, and AR to an archiver; or give "
            "--platform",
        )
    return Tools(tuple(command), os.environ.get("AR") or f"{prefix}ar")


def _machine(platform: str) -> str:
    return platform.partition("_")[2]


def _compiler(names: Sequence[str]) -> list[str]:
    """Returns the command of the C++ compiler: $CXX, or the first of some names that PATH has."""
    named = shlex.split(os.environ.get("CXX", ""))
    if named and shutil.which(named[0]) is None:
        raise TfaotError(
            f"there is no C++ compiler {named[0]!r}, which the environment variable CXX names",
            do="set CXX to a compiler with C++17, or unset it to use " + listed(names),
        )
    compilers = named or [name for name in names if shutil.which(name)][:1]
    if not compilers:
        raise TfaotError(
            "there is no C++ compiler",
            exists=f"PATH has none of {listed(names)}, and CXX isn't set",
            do="install gcc or clang with C++17, or set CXX to a compiler",
        )
    return compilers


def compile_all(compiler: Sequence[str], sources: Sequence[Source]) -> None:
    """Compiles sources, as many at a time as there are cores.

    Raises:
      TfaotError: the compiler fails.
    """

    def one(source: Source) -> None:
        noted = ["-MD", "-MF", source.dependencies] if source.shared else []
        run(
            [*compiler, *source.flags, *noted, "-c", source.path, "-o", source.out],
            what=f"compiling {Path(source.path).name}",
        )

    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        waiting = [pool.submit(one, source) for source in sources]
        try:
            for future in concurrent.futures.as_completed(waiting):
                future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def link(compiler: Sequence[str], objects: Sequence[str], *, out: str, flags: Sequence[str] = ()) -> None:
    """Links a program.

    Raises:
      TfaotError: the compiler fails.
    """
    run([*compiler, *objects, *flags, "-pthread", "-o", out], what=f"linking {Path(out).name}")


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
            do="see its message above; models need gcc 11, clang 14, or a newer version of these",
        )
