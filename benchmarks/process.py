"""A peer's process: started on one core or several, controlled over a pipe (workers/worker.py lists the commands)."""

from __future__ import annotations

import array
import contextlib
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

THREADS = (
    "BENCHMARK_THREADS",  # workers/worker.py reads it for all workers
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)
"""Variables of a peer's environment that have its number of threads."""


class Failed(Exception):
    """Why a peer can't run a model, in its own words."""


@contextlib.contextmanager
def _pinned(cpus: Collection[int] | None) -> Iterator[None]:
    """Pins this thread, and so a process that it starts, to cores. None leaves it free.

    A `preexec_fn` that pins the child would make Python copy its own process first, which takes a millisecond of each cold start.
    """
    if cpus is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Process:
    """A running peer that has made its first call. Use it as a context manager, which ends the process."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cpus: Collection[int] | None,
        environment: Mapping[str, str],
        folder: str,
        limit: float = 600,
    ) -> None:
        """Starts the process.

        Args:
          command: program and arguments.
          cpus: the cores to pin it to, with all threads that it starts: one for each of its threads. None leaves it free, with
            one thread.
          environment: variables to add to this process's environment.
          folder: a folder for its output and logs.
          limit: seconds that the first result, or any answer, can take.

        Raises:
          Failed: the process died or said why it can't run.
        """
        threads = str(len(cpus) if cpus else 1)
        self._limit = limit
        self._folder = folder
        self._log = tempfile.NamedTemporaryFile("w+", dir=folder, suffix=".log")  # noqa: SIM115 (closed in __exit__)
        begin = time.perf_counter()
        try:
            with _pinned(cpus):
                self._process = subprocess.Popen(
                    command,
                    bufsize=0,
                    env={**os.environ, **dict.fromkeys(THREADS, threads), **environment},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._log,
                )
        except OSError as error:
            self._log.close()
            raise Failed(str(error)) from None
        self.pid = self._process.pid
        self._pending = b""
        try:
            self.version = str(self._answer()["version"])
        except Failed:
            self.__exit__()
            raise
        self.cold_start = time.perf_counter() - begin
        """Seconds from the process's start to its first result."""
        self.resident, self.peak = self._memory()
        """Bytes after the first result."""

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()
        self._log.close()

    def run(self) -> None:
        """Makes one call."""
        self._ask("run")

    def outputs(self) -> array.array[float]:
        """Returns the latest call's outputs as float32, concatenated."""
        with tempfile.NamedTemporaryFile(dir=self._folder) as file:
            self._ask(f"outputs {file.name}")
            values = array.array("f")
            values.frombytes(file.read())
            return values

    def time(self, batches: int, calls: int) -> list[float]:
        """Returns nanoseconds per call for each batch."""
        return [nanoseconds / calls for nanoseconds in self._ask(f"time {batches} {calls}")["ns"]]

    def finish(self) -> None:
        """Lets the process end by itself, which a profiler needs."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(self._limit)

    def _ask(self, command: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(command.encode() + b"\n")
        except OSError:
            raise Failed(self._last_words()) from None
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        deadline = time.monotonic() + self._limit
        while b"\n" not in self._pending:
            ready, _, _ = select.select([self._process.stdout], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                raise Failed(f"no answer in {self._limit:.0f} s")
            part = os.read(self._process.stdout.fileno(), 1 << 20)
            if not part:
                raise Failed(self._last_words())
            self._pending += part
        line, _, self._pending = self._pending.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Failed(str(answer["error"]).splitlines()[0][:300])
        return answer

    def _last_words(self) -> str:
        status = self._process.wait()
        self._log.seek(0)
        lines = [line for line in self._log.read().splitlines() if line.strip()]
        return f"ended with status {status}" + (f": {lines[-1][:300]}" if lines else "")

    def _memory(self) -> tuple[int, int]:
        sizes = {}
        with open(f"/proc/{self._process.pid}/status", encoding="utf-8") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key in ("VmRSS", "VmHWM"):
                    sizes[key] = int(value.split()[0]) * 1024
        return sizes["VmRSS"], sizes["VmHWM"]
