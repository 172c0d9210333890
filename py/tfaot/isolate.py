"""Runs code that may crash, TensorFlow's compiler and user code, in a child process that takes nothing along."""

from __future__ import annotations

import faulthandler
import gc
import os
import pickle
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import TypeVar

from tfaot.errors import TfaotError

T = TypeVar("T")

_LOG_LINES = 25
"""How much of a dead child's output an error quotes."""


def run_isolated(function: Callable[[], T], *, what: str, crashed: Callable[[str, str], TfaotError] | None = None) -> T:
    """Calls `function` in a forked child and returns its result, which must be picklable.

    Whatever the child prints is kept back, and shown only if it fails: TensorFlow logs at every start.

    Args:
      function: called without arguments.
      what: names the work in the error, for instance "compiling examples::fc::Fc".
      crashed: makes the error of a child that died, from how (`was killed by SIGABRT`) and from what it printed.

    Raises:
      TfaotError: the child raised one, or died.
    """
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as log:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _child(function, answer.fileno(), log.fileno())
        _, status = os.waitpid(pid, 0)
        answer.seek(0)
        log.seek(0)
        printed = log.read().decode(errors="replace")
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            kind, value = pickle.load(answer)
            if kind == "result":
                return value  # type: ignore[no-any-return]
            if isinstance(value, TfaotError):
                raise value
            sys.stderr.write(printed)
            raise RuntimeError(f"{what}: unexpected error in rules_tfaot, please report it\n{value}")
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        if crashed is not None:
            raise crashed(how, printed)
        raise TfaotError(
            f"{what}: the process {how}",
            details="\n".join(_last_words(printed)),
            do="see its last words above; a model that leaves the process (sys.exit, os.abort, out of memory) "
            "cannot be exported",
        )


def _last_words(printed: str) -> list[str]:
    """The end of what a child printed; of the stack that Python prints when it crashes, the innermost calls."""
    lines = printed.splitlines()
    stack = next((index for index, line in enumerate(lines) if "(most recent call first)" in line), None)
    return lines[-_LOG_LINES:] if stack is None else lines[max(0, stack - 2) : stack + _LOG_LINES]


def _child(function: Callable[[], T], answer: int, log: int) -> None:
    """The child's whole life: never returns."""
    os.dup2(log, 1)
    os.dup2(log, 2)
    gc.disable()  # short-lived, and a graph of 100,000 nodes makes the collector quadratic
    faulthandler.enable()  # a crash in C++ still names the Python line that called it
    outcome: tuple[str, object]
    try:
        outcome = ("result", function())
    except TfaotError as error:
        outcome = ("error", error)
    except BaseException as error:
        if isinstance(error, SystemExit):
            traceback.print_exc()
            os._exit(error.code if isinstance(error.code, int) and error.code else 70)
        outcome = ("error", traceback.format_exc())
    with os.fdopen(answer, "wb", closefd=False) as file:
        try:
            pickle.dump(outcome, file)
        except Exception:
            file.seek(0)
            pickle.dump(("error", traceback.format_exc()), file)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # past TensorFlow's destructors, which have nothing to add


def main(body: Callable[[], None]) -> None:
    """Runs a stage's main: a `TfaotError` becomes one message and exit status 1."""
    try:
        body()
    except TfaotError as error:
        sys.exit(f"error: {error}")
