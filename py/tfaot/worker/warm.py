"""A process that has imported TensorFlow, and forks a child for each request.

A child starts with TensorFlow in memory that it shares with this process, which never changes: it imports, and then only
forks. So no request sees anything of another one, and a crash ends only the child.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import os
import selectors
import shutil
import signal
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from tfaot.core import environment
from tfaot.worker import sandbox
from tfaot.worker import stage as stages
from tfaot.worker.bytecode import Bytecode
from tfaot.worker.protocol import Request, Response, sealed, unsealed
from tfaot.worker.sandbox import Namespaces
from tfaot.worker.stage import Stage

_MODULES = ("jinja2", "tensorflow", "tensorflow.compiler.tf2xla.tf2xla_pb2", "tensorflow.python._pywrap_tfcompile")
"""What stages import. Importing them starts nothing that a fork would break: `isolate` refuses threads."""


@dataclasses.dataclass
class _Child:
    """A running request."""

    request: Request
    stage: Stage
    pid: int
    folder: Path
    """A folder of its own."""
    cancelled: bool = False


class Warm:
    """The process's state. One thread uses it."""

    def __init__(self, *, legacy_keras: bool, folder: Path, namespaces: Namespaces | None, token: str) -> None:
        """Imports TensorFlow.

        Args:
          legacy_keras: whether `tf.keras` is Keras 2. TensorFlow decides it when it is imported.
          folder: an existing folder of this process's own, on the file system of the outputs.
          namespaces: makes children, if the system has namespaces.
          token: what lines of the dispatcher and of this process start with.
        """
        self._folder = folder
        self._root = Path.cwd()
        self._children: dict[int, _Child] = {}
        self._count = 0
        self._repositories = sandbox.Repositories(folder / "repositories")
        self._bytecode = Bytecode(folder)
        self._namespaces = namespaces
        self._token = token
        environment.prepare(legacy_keras=legacy_keras)
        before = {*sys.modules}
        try:
            for name in _MODULES:
                importlib.import_module(name)
            with contextlib.suppress(ModuleNotFoundError):  # a toolchain of one's own can be without it
                importlib.import_module("tf_keras")  # each export needs it (xla_context.py), and it takes 0.4 s
            self._imported = {name: _folder(name) for name in {*sys.modules} - before if "." not in name}
        except BaseException:
            # Children now start an interpreter of their own, and the stage reports the cause. The worker's log has it, too.
            traceback.print_exc()
            self._imported = {}
        stages.own_modules()
        gc.collect()
        gc.freeze()  # a collection in a child would copy what it only looks at

    def serve(self, requests: int, responses: int) -> None:
        """Answers requests until the end of their stream.

        Args:
          requests: file descriptor to read `Request` lines from.
          responses: file descriptor to write `Response` lines to.
        """
        ended, wakeup = os.pipe()
        for descriptor in (ended, wakeup):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup)
        selector = selectors.DefaultSelector()
        selector.register(requests, selectors.EVENT_READ)
        selector.register(ended, selectors.EVENT_READ)
        rest = b""
        while True:
            for key, _ in selector.select():
                data = os.read(key.fd, 1 << 16)
                if key.fd == ended:
                    self._reap(responses)
                elif not data:
                    self._end_all()
                    return
                else:
                    *lines, rest = (rest + data).split(b"\n")
                    for line in unsealed(self._token, lines):
                        self._take(Request.of(line))

    def _take(self, request: Request) -> None:
        if request.cancel:
            for child in self._children.values():
                if child.request.number == request.number:
                    child.cancelled = True
                    _end(child.pid)
            return
        stage = Stage.of(request.arguments)
        self._count += 1
        folder = self._folder / str(self._count)
        inputs, repositories = list(request.inputs), dict[str, Path]()
        with contextlib.suppress(OSError):  # the child meets the same error, and reports it
            inputs, repositories = self._repositories.staged(self._root / request.folder, request.inputs)
        self._bytecode.renew(self._root / request.folder, stage.main, inputs)
        this = os.getpid()
        pid = os.fork() if self._namespaces is None else self._namespaces.fork()
        if pid == 0:
            sandbox.end_with_parent(0 if self._namespaces else this)
            sandbox.close_descriptors()
            self._child(request, stage, folder, inputs, repositories)
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(pid, pid)  # here and in the child, because either may come first
        self._children[pid] = _Child(request, stage, pid, folder)

    def _reap(self, responses: int) -> None:
        while self._children and (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)):
            _end(ended.si_pid)  # without namespaces, processes that user code left
            status = os.waitstatus_to_exitcode(os.waitpid(ended.si_pid, 0)[1])
            child = self._children.pop(ended.si_pid)
            answer = self._answer(child, status)
            shutil.rmtree(child.folder, ignore_errors=True)
            with os.fdopen(responses, "wb", closefd=False) as stream:
                stream.write(sealed(self._token, answer.line()))

    def _answer(self, child: _Child, code: int) -> Response:
        printed = child.folder / "printed"
        output = printed.read_text(errors="replace") if printed.exists() else ""
        if child.cancelled:
            return Response(child.request.number, 1, output, cancelled=True)
        if code == 0:
            try:
                sandbox.take_outputs(child.folder / "root", self._root / child.request.folder, child.stage.outputs)
            except OSError as error:
                code = 1
                output += f"error: can't move the stage's outputs: {error}\n"
        elif code < 0:
            output += f"error: the stage was killed by {signal.Signals(-code).name}\n"
        return Response(child.request.number, abs(code), output)

    def _end_all(self) -> None:
        for pid in self._children:
            _end(pid)
        for pid in self._children:
            os.waitpid(pid, 0)

    def _child(
        self, request: Request, stage: Stage, folder: Path, inputs: list[str], repositories: dict[str, Path]
    ) -> NoReturn:
        """Runs a request in a forked child from start to exit."""
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        status = 1
        try:
            own = folder / "root"
            root = self._root / request.folder
            folder.mkdir()
            _redirect(folder / "printed")
            sandbox.stage_inputs(own, root, inputs, stage.outputs)
            for path, target in repositories.items():
                (own / path).parent.mkdir(exist_ok=True)
                (own / path).symlink_to(target)
            if self._namespaces is not None:
                in_tmp = self._repositories.in_tmp or sandbox.below_tmp([folder, *(root / path for path in inputs)])
                self._namespaces.isolate(writable=folder, own_tmp=not in_tmp)
            os.chdir(own)
            if self._shadowed(stage):
                stages.restart(request.arguments, folder / "flags")
            self._bytecode.use(stage.main)
            status = stages.run(stage)
        except OSError as error:
            print(f"error: a worker can't run the stage: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(status)

    def _shadowed(self, stage: Stage) -> bool:
        """Returns whether Python would find one of this process's modules elsewhere if it started with the stage's path."""
        if not self._imported:
            return True
        missing = {*self._imported}
        for entry in stage.path:
            try:
                names = {name.removesuffix(".py") for name in os.listdir(entry)}
            except OSError:
                continue
            present = {
                name
                for name in names & missing
                if os.path.isfile(f"{entry}/{name}.py") or os.path.isfile(f"{entry}/{name}/__init__.py")
            }
            # The toolchain's packages, which this process has, can be in one folder or in one each.
            if any(self._imported[name] != str(self._root / entry) for name in present):
                return True
            missing -= present
            if "tensorflow" not in missing:
                return False
        return False


def _folder(name: str) -> str:
    """Returns the folder that an imported top-level module was found in, or nothing if it is no file."""
    file = Path(getattr(sys.modules[name], "__file__", None) or "").absolute()
    return str(file.parents[1] if file.stem == "__init__" else file.parent)


def _redirect(path: Path) -> None:
    """Sends everything that this process prints to a file, and gives it no input."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    printed = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor, target in ((nothing, 0), (printed, 1), (printed, 2)):
        os.dup2(descriptor, target)
    os.close(nothing)
    os.close(printed)


def _end(pid: int) -> None:
    """Kills a child's whole process group, if any of it is left."""
    with contextlib.suppress(PermissionError, ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
