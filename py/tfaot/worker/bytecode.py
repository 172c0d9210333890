"""Bytecode of the rules' own modules, which a warm process compiles once for all requests.

Bazel's inputs contain no `__pycache__`, so each child would compile the modules that it imports, for up to 0.2 s. Python
checks this bytecode as it checks its own: it compares a hash of the source, and compiles a source that differs.
"""

from __future__ import annotations

import contextlib
import os
import py_compile
import sys
from collections.abc import Iterable
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path
from typing import Any

_PACKAGE = "py/tfaot/"


class Bytecode:
    """Compiled modules, by path below the package."""

    def __init__(self, folder: Path) -> None:
        """Takes an existing folder of its own."""
        self._file = folder / "module.pyc"
        """Only there while a module is compiled."""
        self._compiled: dict[str, bytes] = {}
        self._states: dict[str, tuple[int, ...]] = {}

    def renew(self, root: Path, main: str, inputs: Iterable[str]) -> None:
        """Compiles modules that are new or have changed.

        Args:
          root: the folder that paths are relative to.
          main: the stage's Python file, whose repository has the package.
          inputs: paths of the request's inputs. Others than the package's modules don't matter.
        """
        package = _package_of(main)
        for path in inputs:
            if path.startswith(package) and path.endswith(".py"):
                with contextlib.suppress(OSError, ValueError, py_compile.PyCompileError):  # the import fails, too
                    self._renew(path.removeprefix(package), str(root / path))

    def _renew(self, name: str, path: str) -> None:
        status = os.stat(path)
        state = (status.st_ino, status.st_size, status.st_mtime_ns)
        if self._states.get(name) != state:
            checked = py_compile.PycInvalidationMode.CHECKED_HASH
            py_compile.compile(path, str(self._file), dfile=name, doraise=True, invalidation_mode=checked)
            self._compiled[name] = self._file.read_bytes()
            self._file.unlink()
            self._states[name] = state

    def use(self, main: str) -> None:
        """Makes this process import the package's modules with this bytecode, from below the current folder."""
        package = os.path.abspath(_package_of(main))
        compiled = self._compiled

        class Loader(SourceFileLoader):
            def get_data(self, path: str) -> bytes:
                if path.endswith(".pyc"):
                    try:
                        return compiled[os.path.relpath(self.path, package)]
                    except KeyError:
                        raise FileNotFoundError(path) from None
                return super().get_data(path)

        find = FileFinder.path_hook((Loader, SOURCE_SUFFIXES))

        def hook(folder: str) -> Any:
            if not f"{folder}/".startswith(f"{package}/"):
                raise ImportError(folder)
            return find(folder)

        sys.path_hooks.insert(0, hook)


def _package_of(main: str) -> str:
    """Returns the package's folder in the repository of `tools/STAGE.py`."""
    return os.path.join(os.path.dirname(os.path.dirname(main)), _PACKAGE)
