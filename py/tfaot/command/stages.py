"""Runs stages in processes of their own. No crash of a model or of the compiler reaches the command."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tfaot.command.files import RULES
from tfaot.core import environment, requests
from tfaot.core.errors import TfaotError

_RUNNER = Path(__file__).parent / "process/runner.py"


class StageFailed(Exception):
    """A stage failed. Its text is the stage's own message, which starts with `error: `."""


class Stages:
    """Runs one stage at a time. Use it in a `with` statement."""

    def __init__(self, *, temporary: Path, deps: Iterable[str] = ()) -> None:
        """Starts nothing yet.

        Args:
          temporary: an existing folder for temporary files. TensorFlow doesn't remove those of AutoGraph.
          deps: folders where the model's code finds modules, besides the current one.
        """
        here = str(Path(__file__).parents[2])
        own = [entry for entry in sys.path if entry and os.path.isdir(entry)]
        self._path = [here, ".", *deps, *(entry for entry in own if entry != here)]
        self._temporary = temporary
        self._processes: dict[bool, subprocess.Popen[str]] = {}
        self._files = contextlib.ExitStack()

    def __enter__(self) -> Stages:
        # What TensorFlow prints as it is imported.
        self._log = self._files.enter_context(tempfile.TemporaryFile())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also a stage that runs, after Ctrl-C
            process.wait()
        self._files.close()

    def run(self, stage: str, request: Mapping[str, Any]) -> str:
        """Runs `tools/STAGE.py` with the fields of its request, and returns what it printed.

        Raises:
          StageFailed: it failed.
          TfaotError: its process died.
        """
        arguments = [f"--stage_main={RULES / 'tools' / stage}.py", *(f"--stage_path={path}" for path in self._path)]
        arguments += requests.flags_of(request)
        status, printed = self._ask(False, stage, arguments)
        if status == environment.OTHER_KERAS:
            status, printed = self._ask(True, stage, arguments)
        if status < 0:
            raise _died(stage, status, printed)
        if status:
            raise StageFailed(_message(printed))
        for line in printed.splitlines():
            if line.startswith("warning: "):
                print(line, file=sys.stderr)
        return printed

    def _ask(self, legacy_keras: bool, stage: str, arguments: list[str]) -> tuple[int, str]:
        process = self._processes.get(legacy_keras) or self._start(legacy_keras)
        assert process.stdin is not None and process.stdout is not None
        token = secrets.token_hex(16)
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps({"token": token, "arguments": arguments}) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                with contextlib.suppress(LookupError, TypeError, ValueError):  # not the runner's
                    answer = json.loads(line)
                    if answer["token"] == token:
                        return int(answer["status"]), str(answer["printed"])
        del self._processes[legacy_keras]
        self._log.seek(0)
        raise _died(stage, process.wait(), self._log.read().decode(errors="replace"))

    def _start(self, legacy_keras: bool) -> subprocess.Popen[str]:
        variables = {
            **os.environ,
            # `lowering.zeroed_memory` doesn't reach the blocks that malloc keeps for each thread.
            "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
            "LANG": "C.UTF-8",
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in self._path if path != "."),
            "TMPDIR": str(self._temporary),
            "TZ": "UTC",
        }
        process = self._processes[legacy_keras] = subprocess.Popen(
            [sys.executable, "-s", "-B", str(_RUNNER), str(int(legacy_keras)), str(os.getpid())],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
            text=True,
        )
        return process


_CHECK = """\
from tfaot.core import isolate
from tfaot.preflight import command

isolate.main(lambda: command.main(prog="tfaot check", description="Lists all that stands in the way of compiling a model."))
"""


def check_model(arguments: Iterable[str], *, temporary: Path) -> int:
    """Checks a model in a process of its own, which prints the report. Returns the exit status.

    Args:
      arguments: those of `tfaot.preflight.command.main`.
      temporary: an existing folder for temporary files.
    """
    path = [str(Path(__file__).parents[2]), *(entry for entry in sys.path if entry and os.path.isdir(entry))]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "TMPDIR": str(temporary)}
    command = [sys.executable, "-s", "-B", "-c", _CHECK, *arguments]
    return subprocess.run(command, check=False, env=variables).returncode


def _message(printed: str) -> str:
    """Returns a stage's error from what it printed. Before it, the model and TensorFlow can have printed anything."""
    at = printed.rfind("\nerror: ")
    if printed.startswith("error: ") and at < 0:
        return printed.rstrip()
    return printed[at + 1 :].rstrip() if at >= 0 else "error: " + printed.strip()


def _died(stage: str, status: int, printed: str) -> TfaotError:
    how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"exited with status {status}"
    return TfaotError(
        f"the {stage} stage: its process {how}",
        details="\n".join(printed.splitlines()[-20:]),
        do="see the end of its output above; SIGKILL usually means that the machine ran out of memory",
    )
