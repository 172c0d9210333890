"""Ends the command in order when a signal asks for it: no process and no file that isn't finished stays behind.

A handler cleans up and ends the process, whatever the command does at that time. An exception would have to find its way
through code that is cleaning up itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from tfaot.core import isolate

_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE_SECONDS = 2.0
"""How long processes get to remove their own temporary files, as compilers do."""

_cleanups: list[Callable[[], object]] = []
"""What is still to do, in reverse. Doing one twice does no harm."""
_held = 0
_waiting: list[int] = []
"""Signals that came while they were held back."""


@contextlib.contextmanager
def in_order() -> Iterator[None]:
    """Makes signals end the process in order during a block. Those that are ignored, as by nohup, stay so."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Holds signals back during a block, which must be short."""
    global _held
    _held += 1
    try:
        yield
    finally:
        _held -= 1
        if _waiting and not _held:
            _end(_waiting[0], None)


@contextlib.contextmanager
def then(cleanup: Callable[[], object]) -> Iterator[None]:
    """Calls a function after a block, and also if a signal ends the process within it."""
    _cleanups.append(cleanup)
    try:
        yield
    finally:
        cleanup()
        _cleanups.remove(cleanup)


@contextlib.contextmanager
def folder(*, beside: Path | None = None) -> Iterator[Path]:
    """Yields a new folder, which is removed after the block. It is in the folder `beside`, or where temporary files are."""
    with held():
        made = tempfile.TemporaryDirectory(
            prefix=".tfaot." if beside else "tfaot.", dir=beside, ignore_cleanup_errors=True
        )
        _cleanups.append(made.cleanup)
    try:
        yield Path(made.name)
    finally:
        made.cleanup()
        _cleanups.remove(made.cleanup)


def _end(number: int, _: FrameType | None) -> None:
    """Cleans up, and ends the process as the signal does by default."""
    if _held:
        _waiting.append(number)
        return
    for other in _SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    _end_descendants()
    for cleanup in reversed(_cleanups):
        with contextlib.suppress(OSError):
            cleanup()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # the first process of a container ignores the signal


def _end_descendants() -> None:
    """Ends all processes that this one started, and those that they started."""
    # A process whose parent ends becomes this one's child, and so isn't lost.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    start = time.monotonic()
    while len(processes := isolate.tree(os.getpid())) > 1 and (waited := time.monotonic() - start) < 10:
        for pid in processes[1:]:
            with contextlib.suppress(PermissionError, ProcessLookupError):
                os.kill(pid, signal.SIGTERM if waited < _PATIENCE_SECONDS else signal.SIGKILL)
        time.sleep(0.02)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
