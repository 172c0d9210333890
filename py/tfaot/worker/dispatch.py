"""Bazel's side of a persistent worker: passes requests to warm processes, and their answers back.

There are at most two warm processes, because TensorFlow decides when it is imported whether `tf.keras` is Keras 2. Each is
forked from this process, which imports nothing, when the first request needs it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import selectors
import shutil
import signal
import sys
import traceback
from pathlib import Path

from tfaot.core import environment
from tfaot.worker import sandbox
from tfaot.worker.protocol import Request, Response, sealed, unsealed
from tfaot.worker.sandbox import Namespaces
from tfaot.worker.warm import Warm


@dataclasses.dataclass
class _Process:
    """A warm process, as this one sees it."""

    legacy_keras: bool
    pid: int
    requests: int
    """File descriptor to write requests to."""
    responses: int
    """File descriptor to read answers from."""
    token: str
    """What lines in both directions start with."""
    running: dict[int, Request] = dataclasses.field(default_factory=dict)
    unsent: bytes = b""
    received: bytes = b""


class Dispatcher:
    """Answers Bazel's requests. One thread uses it."""

    def __init__(self, *, folder: Path) -> None:
        """Starts with no warm process.

        Args:
          folder: a folder of this process's own.
        """
        self._folder = folder
        self._bazel = os.dup(1)
        os.dup2(2, 1)  # only answers go to Bazel; whatever else is printed goes to the worker's log
        self._processes: dict[bool, _Process] = {}
        self._namespaces = Namespaces.work(folder / "try")
        self._started = 0
        self._again: set[int] = set()
        self._selector = selectors.DefaultSelector()

    def serve(self) -> None:
        """Answers requests until Bazel closes their stream."""
        self._selector.register(0, selectors.EVENT_READ, None)
        received = b""
        while True:
            for key, _ in self._selector.select():
                process = self._processes.get(key.data)
                if key.data is None:
                    data = os.read(0, 1 << 16)
                    if not data:
                        return
                    *lines, received = (received + data).split(b"\n")
                    for line in lines:
                        self._take(Request.of(line.decode()))
                elif process is not None and key.fd == process.requests:
                    self._send(process)
                elif process is not None and key.fd == process.responses:
                    self._receive(key.data)

    def close(self) -> None:
        """Ends all warm processes, and with them all requests."""
        for process in self._processes.values():
            os.kill(process.pid, signal.SIGKILL)  # its children end with it
        for process in self._processes.values():
            os.waitpid(process.pid, 0)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _take(self, request: Request) -> None:
        if not request.cancel:
            self._pass_on(request, legacy_keras=False)
            return
        for process in self._processes.values():
            if request.number in process.running:
                self._queue(process, request)

    def _pass_on(self, request: Request, *, legacy_keras: bool) -> None:
        process = self._processes.get(legacy_keras)
        if process is None:
            process = self._processes[legacy_keras] = self._start(legacy_keras)
        process.running[request.number] = request
        self._queue(process, request)

    def _start(self, legacy_keras: bool) -> _Process:
        self._started += 1
        folder = self._folder / str(self._started)
        folder.mkdir(parents=True)
        requests, to_child = os.pipe()
        from_child, responses = os.pipe()
        this, token = os.getpid(), secrets.token_hex(16)
        pid = os.fork()
        if pid == 0:
            try:
                sandbox.end_with_parent(this)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                self._selector.close()
                for other in self._processes.values():
                    os.close(other.requests)
                    os.close(other.responses)
                for descriptor in (self._bazel, to_child, from_child):
                    os.close(descriptor)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

                def warm() -> int:
                    namespaces = Namespaces() if self._namespaces else None
                    process = Warm(legacy_keras=legacy_keras, folder=folder, namespaces=namespaces, token=token)
                    process.serve(requests, responses)
                    return 0

                status = Namespaces.within(warm) if self._namespaces else warm()
                os._exit(abs(status))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(requests)
        os.close(responses)
        os.set_blocking(to_child, False)
        self._selector.register(from_child, selectors.EVENT_READ, legacy_keras)
        return _Process(legacy_keras, pid, to_child, from_child, token)

    def _queue(self, process: _Process, request: Request) -> None:
        process.unsent += sealed(process.token, request.line())
        self._send(process)

    def _send(self, process: _Process) -> None:
        """Writes what the pipe takes. The rest waits, because a process that imports TensorFlow doesn't read."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            while process.unsent:
                process.unsent = process.unsent[os.write(process.requests, process.unsent) :]
        waits = process.requests in self._selector.get_map()
        if process.unsent and not waits:
            self._selector.register(process.requests, selectors.EVENT_WRITE, process.legacy_keras)
        elif waits and not process.unsent:
            self._selector.unregister(process.requests)

    def _receive(self, legacy_keras: bool) -> None:
        process = self._processes[legacy_keras]
        data = os.read(process.responses, 1 << 16)
        if not data:
            self._lost(legacy_keras)
            return
        *lines, process.received = (process.received + data).split(b"\n")
        for line in unsealed(process.token, lines):
            response = Response.of(line)
            request = process.running.pop(response.number)
            if response.status == environment.OTHER_KERAS and not response.cancelled:
                self._pass_on(request, legacy_keras=not legacy_keras)
            else:
                self._answer(response)

    def _lost(self, legacy_keras: bool) -> None:
        """Starts again after a warm process died, for example because the system ran out of memory."""
        process = self._processes.pop(legacy_keras)
        for descriptor in (process.requests, process.responses):
            with contextlib.suppress(KeyError):
                self._selector.unregister(descriptor)
            os.close(descriptor)
        how = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
        for number, request in process.running.items():
            if number in self._again:
                text = f"error: the process that runs stages ended twice, with status {how}; see the worker's log\n"
                self._answer(Response(number, 1, text))
            else:
                self._again.add(number)
                self._pass_on(request, legacy_keras=legacy_keras)

    def _answer(self, response: Response) -> None:
        self._again.discard(response.number)
        line = (response.line() + "\n").encode()
        while line:
            line = line[os.write(self._bazel, line) :]


def serve() -> None:
    """Runs a worker until Bazel ends it."""
    here = Path.cwd()
    # Outputs are moved, so the folder is on their file system. Bazel's hardened worker can only write to its own folder.
    base = here.parent.parent if os.access(here.parent.parent, os.W_OK) else here
    workers = base / "tfaot-workers"
    for old in workers.iterdir() if workers.exists() else ():
        if not Path("/proc", old.name).exists():
            shutil.rmtree(old, ignore_errors=True)  # of a worker that was killed
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    dispatcher = Dispatcher(folder=workers / str(os.getpid()))
    try:
        dispatcher.serve()
    finally:
        dispatcher.close()
