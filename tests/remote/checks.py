"""What `tests/remote/run` checks, with real servers and real Bazel clients.

Each of the two clients has an output base of its own, and no disk cache. The second one has another checkout folder too,
and another Python, which is a file in it that its MODULE.bazel names by label. So only the remote cache can give it
results, and only if no path of a machine is in an action's key.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tools.bazelw import cache, prefix
from tools.bazelw.errors import BazelwError, WayFailed
from tools.bazelw.progress import Progress, megabytes

from .engine import Engine, EngineError
from .install import Installed, install

_ROOT = Path(__file__).resolve().parents[2]
# What is built again and again while servers die.
_SMALL = "//examples/fc:fc_aot"
# Needs no Python.
_TINY = "//runtime:threads"
# Bytes, roughly.
_WEIGHT_OF_TENSORFLOW = 1.4e9
# The port in .bazelrc.
_PORT = 8980
_PROCESSES = re.compile(r"^INFO: (\d+) process(?:es)?: (.*)\.$", re.MULTILINE)


class CheckFailed(Exception):
    """A check found what it must not. The message says what."""


@dataclass(frozen=True)
class Result:
    """What a Bazel command did."""

    status: int
    seconds: float
    # How many actions ran in which way, such as {"remote": 7, "internal": 1}.
    processes: dict[str, int]
    log: Path

    def require(self, *kinds: str) -> Result:
        """Returns itself if the command succeeded, and ran actions only in the ways `kinds`. Or raises CheckFailed."""
        if self.status != 0:
            text = self.log.read_text(encoding="utf-8", errors="replace")
            errors = [line for line in text.splitlines() if "ERROR" in line or "FAIL" in line]
            raise CheckFailed(
                f"Bazel failed with status {self.status}: {errors[0] if errors else 'see its log'} ({self.log})"
            )
        others = {kind: count for kind, count in self.processes.items() if kind not in (*kinds, "internal")}
        if others or not any(self.processes.get(kind) for kind in kinds):
            raise CheckFailed(f"actions ran as {self.processes}, not as {' or '.join(kinds)} ({self.log})")
        return self


@dataclass
class Client:
    """A Bazel with an output base of its own."""

    home: Path
    checkout: Path
    _count: int = field(default=0, init=False)

    def start(self, *arguments: str) -> Running:
        """Starts a Bazel command that keeps nothing outside the client's folder."""
        self.home.mkdir(parents=True, exist_ok=True)
        self._count += 1
        log = self.home / f"{self._count}-{arguments[0]}.log"
        startup = [
            f"--output_base={self.home / 'base'}",
            "--nohome_rc",
            "--host_jvm_args=-Xmx1500m",
            "--max_idle_secs=600",
        ]
        options = ["--color=no", "--curses=no", "--show_progress_rate_limit=60", "--disk_cache="]
        command, *rest = arguments
        options = options if command in ("build", "test") else []
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["./bazelw", *startup, command, *options, *rest],
                cwd=self.checkout,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        return Running(process, log, time.monotonic())

    def run(self, *arguments: str) -> Result:
        """Runs a Bazel command to its end."""
        return self.start(*arguments).wait()


@dataclass(frozen=True)
class Running:
    """A Bazel command that runs."""

    process: subprocess.Popen[bytes]
    log: Path
    started: float

    def wait(self) -> Result:
        """Waits for the command's end."""
        status = self.process.wait()
        seconds = time.monotonic() - self.started
        found = _PROCESSES.findall(self.log.read_text(encoding="utf-8", errors="replace"))
        processes = {}
        for part in found[-1][1].split(", ") if found else []:
            count, _, kind = part.partition(" ")
            processes[kind] = int(count)
        return Result(status, seconds, processes, self.log)

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        """Waits until the condition holds. Raises CheckFailed if the command ends first."""
        while not condition():
            if self.process.poll() is not None:
                raise CheckFailed(f"the build ended before {what} ({self.log})")
            time.sleep(0.05)


class Checks:
    """The checks, in order: later ones use what earlier ones stored."""

    def __init__(self, engine: Engine, home: Path, targets: Sequence[str]) -> None:
        self._engine = engine
        self._targets = targets
        self._remote = ("--config=remote", f"--remote_executor={engine.executor}")
        self._first = Client(home / "client1", _ROOT)
        self._second = Client(home / "client2", home / "checkout")

    def run(self) -> None:
        """Runs all checks. Raises CheckFailed at the first that fails."""
        try:
            self.everything_runs_remotely()
            self.another_client_runs_nothing()
            self.a_killed_worker_loses_nothing()
            self.a_killed_server_loses_nothing()
            self.a_killed_cache_loses_nothing()
            self.without_servers_a_build_says_so()
            self.an_http_cache_serves_another_client()
        finally:
            for client in (self._first, self._second):
                if client.home.exists():
                    client.run("shutdown")

    def everything_runs_remotely(self) -> None:
        """All actions and tests run on workers that see declared inputs, a C++ compiler, and system libraries."""
        setup = self._first.run("build", "--nobuild", *self._targets)
        _require(setup.status == 0, f"the client can't load the targets ({setup.log})")
        before = self._engine.traffic()
        result = self._first.run("test", *self._remote, *self._targets).require("remote", "remote cache hit")
        sent, received = self._since(before)
        _say(f"built and tested remotely: {_counts(result)}, {result.seconds:.0f} s; sent {sent}, received {received}")
        before = self._engine.traffic()
        result = self._start_fresh("again").wait().require("remote", "remote cache hit")
        up = self._engine.traffic()[0] - before[0]
        _require(up < _WEIGHT_OF_TENSORFLOW / 5, f"a second build sent {megabytes(up)}: TensorFlow was uploaded again")
        _say(
            f"{_SMALL} again, under other output paths: {_counts(result)}, {result.seconds:.0f} s; sent {megabytes(up)}"
        )

    def another_client_runs_nothing(self) -> None:
        """A client with nothing but the sources gets all results from the cache, though all its paths differ."""
        _copy_checkout(self._second.checkout)
        _name_own_python(self._second.checkout)
        setup = self._second.run("build", "--nobuild", *self._targets)
        _require(setup.status == 0, f"the second client can't load the targets ({setup.log})")
        before = self._engine.traffic()
        result = self._second.run("test", *self._remote, *self._targets)
        result.require("remote cache hit")
        sent, received = self._since(before)
        _say(
            f"an empty client, other paths: {_counts(result)}, {result.seconds:.1f} s; sent {sent}, received {received}"
        )
        _say(f"  before that, it installed TensorFlow and analyzed the targets in {setup.seconds:.0f} s")

    def a_killed_worker_loses_nothing(self) -> None:
        """Another worker takes the action of a worker that dies, and the build doesn't notice."""
        build = self._start_fresh("worker")
        with self._killed_while_busy(build) as number:
            build.wait().require("remote", "remote cache hit")
        _say(f"worker {number + 1} killed while it ran an action: the build finished")

    def a_killed_server_loses_nothing(self) -> None:
        """A build survives a restart of the server, or fails and succeeds when repeated."""
        build = self._start_fresh("server")
        build.until("a worker had an action", lambda: any(worker.busy() for worker in self._engine.workers))
        self._engine.server.kill()
        time.sleep(2)
        self._engine.start_server()
        result = build.wait()
        if result.status == 0:
            _say("server killed and restarted during a build: the build finished")
            return
        words = prefix.last_words(result.log.read_text(encoding="utf-8", errors="replace"))
        again = self._first.run("build", *self._remote, "--platform_suffix=server", _SMALL)
        again.require("remote", "remote cache hit")
        _say(f"server killed and restarted during a build: it said {words!r}, and succeeded when repeated")

    def a_killed_cache_loses_nothing(self) -> None:
        """What was stored is still there after the cache and the server were killed."""
        self._engine.server.kill()
        self._engine.casd.kill()
        self._engine.start_casd()
        self._engine.start_server()
        self._second.run("clean")
        result = self._second.run("build", *self._remote, _SMALL).require("remote cache hit")
        _say(f"cache and server killed and restarted, outputs removed: {_counts(result)}, {result.seconds:.1f} s")

    def without_servers_a_build_says_so(self) -> None:
        """Without servers, a build fails soon and says why, or runs its actions here if it may."""
        self._engine.nginx.kill()
        options = (*self._remote, "--remote_retries=1", "--platform_suffix=none", _TINY)
        result = self._second.run("build", *options)
        text = result.log.read_text(encoding="utf-8", errors="replace")
        _require(
            result.status != 0 and "UNAVAILABLE" in text, f"without servers, the build doesn't say so ({result.log})"
        )
        _say("without servers: the build fails, and says UNAVAILABLE")
        result = self._second.run("build", "--remote_local_fallback", *options).require("local")
        _say(f"without servers, with --remote_local_fallback: {_counts(result)}, {result.seconds:.1f} s")
        self._engine.start_nginx()

    def an_http_cache_serves_another_client(self) -> None:
        """A plain HTTP cache, filled by one client, gives another one all results."""
        option = f"--remote_cache={self._engine.http_cache}"
        self._first.run("clean")
        before = self._engine.traffic()
        filled = self._first.run("build", option, "--jobs=2", _SMALL).require("linux-sandbox", "local", "worker")
        sent, _ = self._since(before)
        _say(f"HTTP cache, filled by local actions: {_counts(filled)}, {filled.seconds:.0f} s; sent {sent}")
        self._second.run("clean")
        before = self._engine.traffic()
        result = self._second.run("build", option, _SMALL).require("remote cache hit")
        _, received = self._since(before)
        _say(f"HTTP cache, another client: {_counts(result)}, {result.seconds:.1f} s; received {received}")

    def _start_fresh(self, suffix: str) -> Running:
        """Starts a build none of whose actions the cache knows, because its output paths are new."""
        return self._first.start("build", *self._remote, f"--platform_suffix={suffix}", _SMALL)

    @contextmanager
    def _killed_while_busy(self, build: Running) -> Iterator[int]:
        """Kills a worker that runs an action, and starts it again at the end. Gives its number."""
        workers = self._engine.workers
        build.until("a worker had an action", lambda: any(worker.busy() for worker in workers))
        number = next(number for number, worker in enumerate(workers) if worker.busy())
        workers[number].kill()
        try:
            yield number
        finally:
            self._engine.start_worker(number)

    def _since(self, before: tuple[int, int]) -> tuple[str, str]:
        """Returns the bytes sent and received since `before`, for messages."""
        sent, received = self._engine.traffic()
        return megabytes(sent - before[0]), megabytes(received - before[1])


def _copy_checkout(into: Path) -> None:
    """Copies the files of this repository that git knows or doesn't ignore."""
    names = prefix.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=_ROOT)
    for name in filter(None, names.split("\0")):
        if (_ROOT / name).is_file():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(_ROOT / name, into / name)


def _name_own_python(checkout: Path) -> None:
    """Puts a copy of this Python, with pip, into a checkout, and makes it the one that the rules use."""
    into = checkout / "elsewhere"
    words = prefix.run([sys.executable, str(_ROOT / "tools/python/copy_interpreter.py"), str(into)])
    match = re.search(r'"interpreter": "([^"]+)"', words)
    if match is None:
        raise CheckFailed(f"this Python can't be copied: {words.strip()}")
    pip = Path(prefix.run([sys.executable, "-c", "import pip; print(pip.__path__[0])"]).strip())
    (library,) = into.glob("lib*/python3.*")
    shutil.copytree(pip, library / "site-packages/pip")
    (into / "BUILD").write_text(f'exports_files(["{match[1]}"])\n', encoding="utf-8")
    with (checkout / "MODULE.bazel").open("a", encoding="utf-8") as module:
        module.write(f'\ntfaot.tensorflow(python_interpreter = "//elsewhere:{match[1]}")\n')


def _require(condition: bool, words: str) -> None:
    if not condition:
        raise CheckFailed(words)


def _counts(result: Result) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(result.processes.items()))


def _say(text: str) -> None:
    print(f"remote: {text}", flush=True)


def _serve(installed: Installed, home: Path) -> None:
    with Engine(installed, home, port=_PORT) as engine:
        _say(f"ready: ./bazelw build --config=remote //examples/fc:fc_aot (executor {engine.executor})")
        _say(f"HTTP cache: ./bazelw build --remote_cache={engine.http_cache} //examples/fc:fc_aot")
        _say("Ctrl-C ends the servers, and removes what they stored")
        while True:
            time.sleep(3600)


def _remove(home: Path) -> None:
    """Removes a folder in which Bazel made some folders read-only."""
    if home.exists():
        subprocess.run(["chmod", "-R", "u+w", str(home)], check=False)
        prefix.remove(home)


def main(arguments: Sequence[str]) -> int:
    """Runs the checks, or serves until Ctrl-C. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="tests/remote/run", description=__doc__)
    parser.add_argument("--serve", action="store_true", help="start the servers, and wait for Ctrl-C")
    parser.add_argument("targets", nargs="*", default=["//examples/fc/..."], metavar="TARGET")
    flags = parser.parse_args(arguments)
    try:
        folder = cache.usable(os.environ)
        installed = install(folder, Progress())
        for old in (folder / "remote").glob("run-*"):
            # What a run left that failed, or was killed.
            if not Path("/proc", old.name.partition("-")[2]).exists():
                _remove(old)
        home = folder / "remote" / f"run-{os.getpid()}"
        if flags.serve:
            try:
                _serve(installed, home)
            except KeyboardInterrupt:
                return 0
            finally:
                _remove(home)
        started = time.monotonic()
        with Engine(installed, home / "servers") as engine:
            Checks(engine, home, flags.targets).run()
        _remove(home)
        _say(f"all checks passed in {time.monotonic() - started:.0f} s")
        return 0
    except (BazelwError, WayFailed, EngineError, CheckFailed) as failure:
        print(f"remote: FAILED: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
