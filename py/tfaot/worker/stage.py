"""One run of a stage: what an action's flags say about it, and how to run it in this process."""

from __future__ import annotations

import dataclasses
import functools
import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

_OURS = "--stage_"
_GIVEN = {*os.environ.get("PYTHONPATH", "").split(os.pathsep)}
_FOLDER = os.path.dirname(os.path.abspath(sys.argv[0]))
_STANDARD_LIBRARY = tuple(
    entry for entry in map(os.path.abspath, (entry for entry in sys.path if entry not in _GIVEN)) if entry != _FOLDER
)
"""Python's search path at the start, without PYTHONPATH, and without the script's folder that Python 3.10 puts first."""


_ENVIRONMENT = {**os.environ}
"""This process's environment at the start."""


@dataclasses.dataclass(frozen=True)
class Stage:
    """A run of a stage. Paths are relative to the execution root."""

    main: str
    """The stage's Python file, such as `tools/export.py`."""
    path: tuple[str, ...]
    """Where Python looks for modules before its standard library."""
    outputs: tuple[str, ...]
    """The files that the stage writes."""
    for_errors: tuple[str, ...]
    """The inputs that only messages depend on."""
    unused_inputs: str
    """A file in which Bazel looks, after success, for inputs that need not run the stage again. Empty if there are none."""
    flags: tuple[str, ...]
    """The flags of `main`."""

    @staticmethod
    def of(arguments: Sequence[str]) -> Stage:
        """Reads the lines that `run_stage` in `rules/private/stage.bzl` writes: flags of the main, and these fields."""
        ours: dict[str, list[str]] = {field.name: [] for field in dataclasses.fields(Stage)}
        for argument in arguments:
            name, _, value = argument.removeprefix(_OURS).partition("=")
            if argument.startswith(_OURS):
                ours[name].append(value)
            else:
                ours["flags"].append(argument)
        (main,) = ours.pop("main")
        unused_inputs = "".join(ours.pop("unused_inputs"))
        return Stage(main=main, unused_inputs=unused_inputs, **{name: tuple(values) for name, values in ours.items()})


def read_flag_file(path: str) -> list[str]:
    """Returns the lines of a flag file, as Bazel passes them to a worker."""
    with open(path, encoding="utf-8") as file:
        return file.read().splitlines()


_UNUSED: list[object] = []
"""What a stage's process no longer needs."""


@functools.cache
def own_modules() -> tuple[str, ...]:
    """Returns the names of this package's modules.

    A process that forks calls this once before: a child that looks at all modules' names copies the pages that they are on.
    """
    return tuple(name for name in sys.modules if name.split(".")[0] == "tfaot")


def run(stage: Stage) -> int:
    """Runs a stage in this process, from the current folder, and returns its exit status.

    The process can't be used for anything else afterwards.
    """
    for name in own_modules():
        del sys.modules[name]  # a stage imports its own files, which this package's path needn't contain
    path = [os.path.abspath(entry) for entry in stage.path]
    sys.path[:] = [*path, *_STANDARD_LIBRARY]
    # It contains the folder in which this process started. It isn't freed, for which a child would copy its pages.
    _UNUSED.append(sys.path_importer_cache)
    sys.path_importer_cache = {}
    os.environ["PYTHONPATH"] = os.pathsep.join(path)  # for Python programs that user code starts
    sys.argv = [stage.main, *stage.flags]
    status = 0
    try:
        runpy.run_path(stage.main, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, int):
            status = end.code
        elif end.code is not None:
            print(end.code, file=sys.stderr)
            status = 1
    except BaseException:
        traceback.print_exc()
        status = 1
    if status == 0 and stage.unused_inputs:
        with open(stage.unused_inputs, "w", encoding="utf-8") as file:
            file.writelines(f"{path}\n" for path in stage.for_errors)
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def restart(arguments: Sequence[str], flag_file: Path) -> NoReturn:
    """Turns this process into one that starts a stage without anything imported, as without a worker.

    Args:
      arguments: the lines of the action's flag file.
      flag_file: where to write them.
    """
    flag_file.write_text("".join(f"{argument}\n" for argument in arguments), encoding="utf-8")
    sys.stdout.flush()
    sys.stderr.flush()
    command = [sys.executable, "-s", "-S", "-B", sys.argv[0], f"@{flag_file}"]
    os.execve(sys.executable, command, _ENVIRONMENT)
