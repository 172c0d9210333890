"""Runs code that can crash or hang, such as TensorFlow's compiler and user code, in a child process."""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import gc
import os
import pickle
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import NoReturn, TypeVar

from tfaot.core.errors import TfaotError, listed

T = TypeVar("T")

IDLE_SECONDS = 60.0
"""How long a child and its descendants can use no CPU time at all before we consider them stuck."""

_LOG_LINES = 25
"""How many lines of a dead child's output an error quotes."""

_POLL_SECONDS = 0.002

_stacks: int | None = None
"""In a child, the file descriptor to which it writes its stack on request. The outermost parent watches the whole tree."""


_warnings: list[str] = []
"""In a child, what it warns of."""


def warn(text: str) -> None:
    """Prints a warning, one line. The output of a child is held back, but not its warnings if it succeeds."""
    if _stacks is None:
        sys.stderr.write(f"warning: {text}\n")
    else:
        _warnings.append(text)


@dataclasses.dataclass(frozen=True)
class _Ended:
    """What remains of a child."""

    status: int
    """Its exit status, negative for a signal."""
    outcome: tuple[str, object]
    """Its answer: what it is, and its value. What it is is empty if the child ended without one, even with status 0."""
    warnings: tuple[str, ...]
    printed: str
    stacks: str
    """Stacks of the child and its descendants if we ended it because it hung; otherwise empty."""


def run_isolated(
    function: Callable[[], T],
    *,
    what: str,
    crashed: Callable[[str, str], TfaotError] | None = None,
    idle_seconds: float = IDLE_SECONDS,
) -> T:
    """Calls `function` in a forked child and returns its result, which must be picklable.

    The child's output is held back and shown only if the child fails, because TensorFlow logs at every start. A child that
    hangs is ended and tried once more. The calling process must not run other threads: the child would inherit the locks
    that they hold, and wait for them forever.

    Args:
      function: called without arguments, and called a second time if the first child hung.
      what: names the work in the error, for example "compiling examples::fc::Fc".
      crashed: makes the error for a child that died, from how it died (`was killed by SIGABRT`) and from its output.
      idle_seconds: how long the child can use no CPU time. A call within a child leaves watching to the outermost parent.

    Raises:
      TfaotError: the child raised one, died, or hung twice.
    """
    ended = _attempt(function, what, idle_seconds)
    if ended.stacks:
        sys.stderr.write(f"warning: {what}: used no CPU time for {idle_seconds:g} s; trying again\n{ended.stacks}")
        ended = _attempt(function, what, idle_seconds)
    if ended.stacks:
        raise TfaotError(
            f"{what}: the process hung twice: it used no CPU time for {idle_seconds:g} s",
            details=ended.stacks,
            do="if the stack above ends in your code, don't wait there; otherwise, report it to rules_tfaot",
        )
    kind, value = ended.outcome
    if kind:
        for text in ended.warnings:
            warn(text)
        if kind == "result":
            return value  # type: ignore[return-value]
        if isinstance(value, TfaotError):
            raise value
        sys.stderr.write(ended.printed)
        raise RuntimeError(f"{what}: unexpected error in rules_tfaot, please report it\n{value}")
    how = (
        f"was killed by {signal.Signals(-ended.status).name}"
        if ended.status < 0
        else f"exited with status {ended.status}"
    )
    if crashed is not None:
        raise crashed(how, ended.printed)
    raise TfaotError(
        f"{what}: the process {how}",
        details="\n".join(last_words(ended.printed)),
        do="see the end of its output above; a model that ends the process (sys.exit, os._exit, os.abort, out of memory) "
        "can't be exported",
    )


def _attempt(function: Callable[[], T], what: str, idle_seconds: float) -> _Ended:
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as log, tempfile.TemporaryFile() as stacks:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _child(function, answer.fileno(), log.fileno(), stacks.fileno())
        _refuse_threads(pid, what)
        # Only the outermost parent asks for stacks, and they go to its file.
        still = _stacks is None and _stands_still(pid, idle_seconds)
        if still:
            _end(pid, stacks.fileno())
        _, status = os.waitpid(pid, 0)
        answer.seek(0)
        log.seek(0)
        stacks.seek(0)
        code = os.waitstatus_to_exitcode(status)
        answered = code == 0 and os.fstat(answer.fileno()).st_size > 0
        outcome, warnings = pickle.load(answer) if answered else (("", None), ())
        return _Ended(
            code,
            outcome,
            warnings,
            log.read().decode(errors="replace"),
            (stacks.read().decode(errors="replace") or "(no stack)\n") if still and code != 0 else "",
        )


def _refuse_threads(pid: int, what: str) -> None:
    """Ends a child that was forked while other threads were running.

    This check comes after the fork, because libraries that handle forks, such as OpenBLAS, end their threads for it.

    Raises:
      RuntimeError: this process runs other threads.
    """
    for _ in range(100):
        threads = [task for task in os.listdir("/proc/self/task") if task != str(os.getpid())]
        if not threads:
            return
        time.sleep(0.01)  # the kernel still lists a thread for a moment after it is joined
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    names = sorted(_read(f"/proc/self/task/{task}/comm").strip() for task in threads)
    raise RuntimeError(
        f"{what}: this process forks while it runs other threads ({listed(names)}), and the child could wait forever "
        "for a lock that one of them held; build graphs and run sessions in a child of their own"
    )


def _stands_still(pid: int, idle_seconds: float) -> bool:
    """Waits for a child. Returns True if it is still alive, but its process tree has used no CPU time for so long."""
    used, since, looked = -1, time.monotonic(), 0.0
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        now = time.monotonic()
        if now - looked > idle_seconds / 10:
            looked = now
            active = _activity(pid)
            if active is None or active != used:
                used, since = -1 if active is None else active, now
        if now - since > idle_seconds:
            return True
        time.sleep(_POLL_SECONDS)
    return False


def _activity(pid: int) -> int | None:
    """Returns a process tree's CPU time in ticks, or None if a thread is running, waiting for a disk, or stopped."""
    ticks = 0
    for process in tree(pid):
        for task in _listing(f"/proc/{process}/task"):
            if fields := _stat(f"/proc/{process}/task/{task}/stat"):
                if fields[0] in "RDTt":
                    return None
                ticks += int(fields[11]) + int(fields[12])
        if fields := _stat(f"/proc/{process}/stat"):
            ticks += int(fields[13]) + int(fields[14])  # CPU time of children that have ended
    return ticks


def tree(pid: int) -> list[int]:
    """Returns a process and its descendants, parents first."""
    children: dict[int, list[int]] = {}
    for name in _listing("/proc"):
        if name.isdigit() and (fields := _stat(f"/proc/{name}/stat")):
            children.setdefault(int(fields[1]), []).append(int(name))
    processes = [pid]
    for process in processes:
        processes += children.get(process, [])
    return processes


def _stat(path: str) -> list[str]:
    """Returns the fields of a `stat` file from the state on, since the name can contain anything. Empty if the task ended."""
    return _read(path).rpartition(")")[2].split()


def _listing(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:  # the process has ended
        return []


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:  # the process has ended
        return ""


def _end(pid: int, stacks: int) -> None:
    """Ends a process and its descendants. Those that run our code write their stacks first."""
    processes = tree(pid)
    for process in processes:
        caught = re.search(r"^SigCgt:\s*(\w+)", _read(f"/proc/{process}/status"), re.MULTILINE)
        if caught is None or not int(caught[1], 16) >> (signal.SIGUSR1 - 1) & 1:
            continue  # another program, started by the user's code
        threads = [f"/proc/{process}/task/{task}" for task in _listing(f"/proc/{process}/task")]
        waits = [f"{_read(thread + '/comm').strip()} in {_read(thread + '/wchan') or '?'}" for thread in threads]
        os.write(stacks, f"process {process}, threads: {listed(waits)}\n".encode())
        start = size = os.fstat(stacks).st_size
        os.kill(process, signal.SIGUSR1)
        for _ in range(20):
            time.sleep(0.1)
            before, size = size, os.fstat(stacks).st_size
            if start < size == before:
                break
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


_FRAME = re.compile(r"\s*@\s+0x[0-9a-f]+\s|\*\*\* Check failure stack trace: \*\*\*")
"""A line of a stack in C++, which says nothing to anyone but XLA's developers."""

_NAMES_FAULT = re.compile(
    r"F\d{4} |Check failed|LLVM ERROR|terminate called|\s*what\(\):|ERROR: \w+Sanitizer"
    r"|.*Assertion .* failed|\*\*\* .* \*\*\*|(malloc|free|realloc|munmap_chunk|corrupted)\b.*(\)|corrupt|invalid)"
)
"""A line with which C++ ends a process."""


def last_words(printed: str) -> list[str]:
    """Returns the end of a child's output, or the lines around the stack that Python prints when it crashes.

    Lines that name the fault are always among them, and come first.
    """
    lines = [line for line in printed.splitlines() if not _FRAME.match(line)]
    faults = [line for line in lines if _NAMES_FAULT.match(line)][-3:]
    stack = next((index for index, line in enumerate(lines) if "(most recent call first)" in line), None)
    end = lines[-_LOG_LINES:] if stack is None else lines[max(0, stack - 8) : stack + _LOG_LINES]
    return [*(line for line in faults if line not in end), *end]


def _child(function: Callable[[], T], answer: int, log: int, stacks: int) -> NoReturn:
    """Runs the child from start to exit."""
    global _stacks
    _warnings.clear()
    os.dup2(log, 1)
    os.dup2(log, 2)
    if _stacks is None:
        _stacks = stacks
    gc.disable()  # the process is short-lived, and a graph of 100,000 nodes makes the collector quadratic
    faulthandler.enable(2)  # after a crash in C++, names the Python line that called it
    faulthandler.register(signal.SIGUSR1, file=_stacks)
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
        file.seek(0)  # user code can have written to any descriptor
        file.truncate()
        try:
            pickle.dump((outcome, tuple(_warnings)), file)
        except Exception:
            file.seek(0)
            file.truncate()
            pickle.dump((("error", traceback.format_exc()), ()), file)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # skips TensorFlow's destructors, which do nothing useful


def main(body: Callable[[], None]) -> None:
    """Runs a stage's main. A `TfaotError` becomes one message and exit status 1."""
    try:
        body()
    except TfaotError as error:
        sys.exit(f"error: {error}")
