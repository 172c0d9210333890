"""Objects of the runtime that an earlier call has compiled: they depend on no model, so each is compiled once.

An object is found by the compiler, its flags, and the runtime's sources, and used if the system's headers that it was made from
are as they were. Any number of calls may use the folder at once: what one writes is whole or absent.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tfaot.command import ending
from tfaot.command.cxx import Source

_RECIPE = 1
"""Increment when the same key gives other bytes."""
LIMIT = 256 << 20
"""The bytes that stay. A call writes 3 to 8 MB, for each compiler and each CPU level."""
_VARIABLES = (
    "COMPILER_PATH",
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "C_INCLUDE_PATH",
    "GCC_EXEC_PREFIX",
    "CCC_OVERRIDE_OPTIONS",
)
"""Of the environment, what changes what a compiler makes."""


def kept_in(environ: Mapping[str, str]) -> Path | None:
    """Returns where objects are, in the cache folder of bazelw and the rules; None if the environment names none."""
    for variable, below in (
        ("RULES_TFAOT_CACHE", ""),
        ("XDG_CACHE_HOME", "rules_tfaot"),
        ("HOME", ".cache/rules_tfaot"),
    ):
        if value := environ.get(variable):
            return Path(value).absolute() / below / "objects"
    return None


class Objects:
    """The objects of a compiler."""

    def __init__(self, where: Path | None, compiler: Sequence[str], runtime: Path) -> None:
        """Looks at nothing yet.

        Args:
          where: from `kept_in`. Without it, or if it can't be written to, nothing is kept.
          compiler: the compiler's command.
          runtime: the folder of the sources.
        """
        self._where = where
        self._compiler = tuple(compiler)
        self._runtime = runtime

    def recall(self, source: Source) -> bool:
        """Copies an object that an earlier call has made to where the source's belongs, and returns whether there is one."""
        if self._where is None or not source.shared:
            return False
        key = self._key(source)
        with contextlib.suppress(OSError, ValueError, KeyError):
            made = json.loads((self._where / f"{key}.json").read_bytes())
            if all(_stamp(path) == stamp for path, stamp in made["headers"].items()):
                shutil.copyfile(self._where / f"{key}.o", source.out)
                if hashlib.sha256(Path(source.out).read_bytes()).hexdigest() == made["sha256"]:
                    os.utime(self._where / f"{key}.json")  # used now
                    return True
        return False

    def keep(self, sources: Sequence[Source]) -> None:
        """Keeps objects that were just compiled, and removes those not used for longest."""
        kept = [source for source in sources if source.shared]
        if self._where is None or not kept:
            return
        with contextlib.suppress(OSError):  # a folder that can't be written to, or no space
            self._where.mkdir(parents=True, exist_ok=True)
            for source in kept:
                key, content = self._key(source), Path(source.out).read_bytes()
                headers = {path: _stamp(path) for path in _named(Path(source.dependencies).read_text(encoding="utf-8"))}
                made = {"sha256": hashlib.sha256(content).hexdigest(), "headers": headers}
                self._write(f"{key}.o", content)
                self._write(f"{key}.json", json.dumps(made).encode())
            self._prune()

    def _write(self, name: str, content: bytes) -> None:
        assert self._where is not None
        with ending.folder(beside=self._where) as made:
            (made / name).write_bytes(content)
            os.replace(made / name, self._where / name)

    def _prune(self) -> None:
        assert self._where is not None
        for killed in self._where.glob(".tfaot.*"):  # while it wrote
            if killed.stat().st_mtime < time.time() - 86400:
                shutil.rmtree(killed)
        left = LIMIT
        entries = [(path.stat().st_mtime, path) for path in self._where.glob("*.json")]
        for _, path in sorted(entries, reverse=True):
            files = (path, path.with_suffix(".o"))
            left -= sum(file.stat().st_size for file in files if file.exists())
            if left < 0:
                for file in files:
                    file.unlink(missing_ok=True)

    def _key(self, source: Source) -> str:
        path = Path(source.path).relative_to(self._runtime).as_posix()
        flags = [flag.replace(str(self._runtime), "RUNTIME") for flag in source.flags]
        text = json.dumps([_RECIPE, self._made_by, path, flags])
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @functools.cached_property
    def _made_by(self) -> list[object]:
        """The compiler, and the runtime's sources."""
        digest = hashlib.sha256()
        for path in sorted(self._runtime.glob("tfaot/**/*")):
            if path.suffix in (".cc", ".h", ".inc", ".S"):
                content = path.read_bytes()
                digest.update(f"{path.relative_to(self._runtime)} {len(content)}\n".encode() + content)
        program = os.path.realpath(shutil.which(self._compiler[0]) or self._compiler[0])
        said = subprocess.run([*self._compiler, "--version"], check=False, capture_output=True, text=True).stdout
        variables = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
        return [digest.hexdigest(), self._compiler, program, _stamp(program), said, variables]


def _named(rule: str) -> list[str]:
    """Returns the files that a rule of make names after its target."""
    words = re.findall(r"(?:\\.|[^\\\s])+", rule.partition(":")[2].replace("\\\n", " "))
    return [re.sub(r"\\(.)", r"\1", word) for word in words]


def _stamp(path: str) -> list[int]:
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns]
