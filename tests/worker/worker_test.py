"""A persistent worker: the real process, to which this test speaks as Bazel does."""

from __future__ import annotations

import contextlib
import ctypes
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jinja2

from tests.stages.harness import ROOT

PACKAGES = Path(jinja2.__file__).parents[1]
START = [sys.executable, "-s", "-S", "-B", "tools/stage.py"]
ENVIRONMENT = {
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
    "HOME": "/nonexistent",
    "LANG": "C.UTF-8",
    "PATH": "/usr/bin:/bin",
    "PYTHONHASHSEED": "0",
    "PYTHONPATH": "py:packages",
    "PYTHONSAFEPATH": "1",
    "TZ": "UTC",
}
KERAS = """\
import tensorflow as tf

model = tf.keras.Sequential([tf.keras.Input([3], batch_size=2), tf.keras.layers.Dense(2, activation="relu")])
"""


class Worker:
    """A worker's process, in an execution root of its own."""

    def __init__(
        self, root: Path, path: str = ENVIRONMENT["PYTHONPATH"], *, prepare: Callable[[], object] | None = None
    ) -> None:
        """Starts it, with a PYTHONPATH. The folder must contain `tools`, `py`, and `packages`.

        Its process calls `prepare` first.
        """
        self.root = root
        self._log = root.parents[1] / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*START, "--persistent_worker"],
                cwd=root,
                env={**ENVIRONMENT, "PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                preexec_fn=prepare,
            )
        self._count = 0

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def send(self, arguments: Sequence[str], inputs: Sequence[str] = (), **fields: object) -> int:
        """Sends a request, and returns its number."""
        self._count += 1
        self.line(
            {
                "requestId": self._count,
                "arguments": list(arguments),
                "inputs": [{"path": path, "digest": "1"} for path in ("py", "tools", "packages", *inputs)],
                "verbosity": 10,
                **fields,
            }
        )
        return self._count

    def line(self, fields: dict[str, Any]) -> None:
        """Sends a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(fields).encode() + b"\n")
        self._process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """Returns the next answer."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EOFError(self._log.read_text())
        return dict(json.loads(line))

    def run(self, arguments: Sequence[str], inputs: Sequence[str] = (), **fields: object) -> tuple[int, str]:
        """Sends a request, and returns the stage's exit status and what it printed."""
        number = self.send(arguments, inputs, **fields)
        answer = self.receive()
        assert answer["requestId"] == number, answer
        return answer["exitCode"], answer["output"]

    def close(self) -> None:
        """Ends the worker as Bazel does."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait(60)


@contextlib.contextmanager
def workspace(place: str = os.environ.get("TEST_TMPDIR", os.path.expanduser("~"))) -> Iterator[Path]:
    """Yields an execution root, two folders below Bazel's output base."""
    with tempfile.TemporaryDirectory(dir=place) as base:
        root = Path(base) / "execroot" / "_main"
        root.mkdir(parents=True)
        for name, target in (("py", ROOT / "py"), ("tools", ROOT / "tools"), ("packages", PACKAGES)):
            (root / name).symlink_to(target)
        yield root


def become(user: int, *, namespaces: bool = True) -> Callable[[], None]:
    """Returns what makes a process run as a user. The system takes it for the test's own, so it can read the test's files.

    Without namespaces, it can't make any of its own.
    """
    own, group = os.getuid(), os.getgid()

    def prepare() -> None:
        if ctypes.CDLL(None).unshare(0x10000000):  # CLONE_NEWUSER
            raise OSError("no user namespaces")
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {own} 1"), ("gid_map", f"{user} {group} 1")):
            Path("/proc/self", name).write_text(text)
        if not namespaces:
            Path("/proc/sys/user/max_user_namespaces").write_text("0")

    return prepare


@contextlib.contextmanager
def worker(prepare: Callable[[], object] | None = None) -> Iterator[Worker]:
    """Yields a worker in an empty execution root."""
    with workspace() as root:
        started = Worker(root, prepare=prepare)
        try:
            yield started
        finally:
            started.close()


def stage(main: str, *flags: str, outputs: Sequence[str] = (), path: Sequence[str] = (".",)) -> list[str]:
    """Returns the lines of an action's flag file."""
    return [
        *flags,
        f"--stage_main={main}",
        *(f"--stage_path={entry}" for entry in ("py", *path, "packages")),
        *(f"--stage_outputs={output}" for output in outputs),
    ]


def stages(model: str) -> list[tuple[list[str], list[str], list[str]]]:
    """Returns the flag file, inputs, and outputs of the stages of a model."""

    def flags(prefix: str, names: dict[str, str]) -> list[str]:
        return [f"--{prefix}{name}={path}" for name, path in names.items()]

    exported = {
        "graph": "out/m.pb",
        "config": "out/m.pbtxt",
        "manifest": "out/m.json",
        "variables": "out/m.safetensors",
        "weights": "out/m.weights",
        "golden_inputs": "out/m.in",
        "sources": "out/m.sources",
    }
    made = ("objects", "constants", "header", "sources_", "hlo", "passes", "fingerprint", "fingerprint_source")
    compiled = {name: f"out/m.{name}" for name in made}
    goldens = ("manifest", "graph", "variables", "golden_inputs", "sources")
    of_graph = ("manifest", "graph", "config", "sources")
    exported_flags = [flag.replace("out_config=", "out_configs=") for flag in flags("out_", exported)]
    compiled_flags = [flag.replace("sources_=", "sources=") for flag in flags("out_", compiled)]
    return [
        (
            stage(
                "tools/export.py", f"--model={model}", "--cpp_class=a::B", *exported_flags, outputs=[*exported.values()]
            ),
            [model],
            [*exported.values()],
        ),
        (
            stage(
                "tools/compile.py",
                "--cpu=x86-64-v3",
                *flags("", {name: exported[name] for name in of_graph}),
                *compiled_flags,
                "--passes=*",
                outputs=[*compiled.values()],
            ),
            [exported[name] for name in of_graph],
            [*compiled.values()],
        ),
        (
            stage(
                "tools/verify.py",
                *flags("", {name: exported[name] for name in goldens}),
                "--out_goldens=out/m.goldens",
                outputs=["out/m.goldens"],
            ),
            [exported[name] for name in goldens],
            ["out/m.goldens"],
        ),
    ]


def descendants(pid: int) -> set[int]:
    """Returns a process and all that it started."""
    found = {pid}
    while True:
        more = {child for child, parent in parents().items() if parent in found} - found
        if not more:
            return found
        found |= more


def parents() -> dict[int, int]:
    """Returns the parent of each process."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                fields = Path("/proc", name, "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                if fields[0] != "Z":
                    found[int(name)] = int(fields[1])
    return found


def name_of(pid: int) -> str:
    """Returns the name of a process's program, or nothing if it has ended."""
    with contextlib.suppress(OSError):
        return Path("/proc", str(pid), "comm").read_text(encoding="utf-8").strip()
    return ""


class SharedTest(unittest.TestCase):
    """What Bazel and users rely on, in one worker for all tests: whatever a request does, later ones don't notice."""

    warm: Worker

    @classmethod
    def setUpClass(cls) -> None:
        context = worker()
        cls.warm = context.__enter__()
        cls.addClassCleanup(context.__exit__, None, None, None)

    def setUp(self) -> None:
        self.addCleanup(self.clear)

    def clear(self) -> None:
        """Removes what a test wrote to the execution root."""
        for path in self.warm.root.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name not in ("py", "tools", "packages"):
                path.unlink()

    def test_same_bytes(self) -> None:
        """Protects caches: a stage writes the same bytes in a worker and in a process of its own.

        This is Keras 3. `//tests/reproducible` builds a model with Keras 2 both ways.
        """
        warm = self.warm
        with workspace() as cold:
            for root in (warm.root, cold):
                (root / "model.py").write_text(KERAS)
                (root / "out").mkdir()
            for arguments, inputs, outputs in stages("model.py"):
                status, output = warm.run(arguments, inputs)
                self.assertEqual(status, 0, output)
                (cold / "flags").write_text("".join(f"{argument}\n" for argument in arguments))
                subprocess.run([*START, "@flags"], cwd=cold, env=ENVIRONMENT, check=True)
                for path in outputs:
                    self.assertEqual((warm.root / path).read_bytes(), (cold / path).read_bytes(), path)

    def test_crashes(self) -> None:
        """Protects other requests: user code and the compiler can crash, and the next request runs as if nothing had happened."""
        warm = self.warm
        (warm.root / "out").mkdir()
        (warm.root / "model.py").write_text(KERAS)
        (warm.root / "dies.py").write_text("import os\n\nos.abort()\n")
        good, compiled, _ = stages("model.py")
        status, output = warm.run(stages("dies.py")[0][0], ["dies.py"])
        self.assertEqual(status, 1, output)
        self.assertIn("was killed by SIGABRT", output)
        self.assertIn("dies.py", output)
        self.assertFalse((warm.root / "out/m.pb").exists(), "a failed stage left an output")
        self.assertEqual(warm.run(*good[:2]), (0, ""))
        status, output = warm.run(["--xla_flags=--xla_no_such_flag=1", *compiled[0]], compiled[1])
        self.assertEqual(status, 1)
        self.assertIn("--xla_no_such_flag", output)
        self.assertEqual(warm.run(*compiled[:2]), (0, ""))

    def test_stage_dies(self) -> None:
        """Protects the message of a stage that is killed itself, which no child of it reports."""
        warm = self.warm
        (warm.root / "main.py").write_text("import os\n\nos.kill(os.getpid(), 9)\nos._exit(3)\n")
        status, output = warm.run(stage("main.py"), ["main.py"])
        self.assertNotEqual(status, 0)
        (warm.root / "main.py").write_text("import ctypes\n\nctypes.string_at(0)\n")
        status, output = warm.run(stage("main.py"), ["main.py"])
        self.assertEqual(status, signal.SIGSEGV)
        self.assertIn("error: the stage was killed by SIGSEGV", output)

    def test_bytecode(self) -> None:
        """Protects short builds and edits of the rules: a module is compiled once for all requests, and again if it changes."""
        warm = self.warm
        package = warm.root / "own/py/tfaot"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (warm.root / "own/tools").mkdir()
        (warm.root / "own/tools/main.py").write_text(
            textwrap.dedent(
                """\
                import sys

                compiled = []
                sys.addaudithook(lambda event, args: compiled.append(str(args[1])) if event == "compile" else None)
                from tfaot import module

                print(module.value(), module.value.__code__.co_filename == module.__file__)
                print(any(name.endswith("module.py") for name in compiled))
                """
            )
        )
        given = ["--stage_main=own/tools/main.py", "--stage_path=own/py", "--stage_path=packages"]
        inputs = ["own/tools/main.py", "own/py/tfaot/__init__.py", "own/py/tfaot/module.py"]
        module = package / "module.py"
        for number in (1, 1, 2):
            module.write_text(f"def value():\n    return {number}\n")
            os.utime(module, (0, 0))  # Bazel's files need not have a time
            self.assertEqual(warm.run(given, inputs), (0, f"{number} True\n{number == 2}\n"))
        os.utime(module)
        self.assertEqual(warm.run(given, inputs), (0, "2 True\nFalse\n"))
        module.write_text("def value(:\n")
        self.assertIn("SyntaxError", warm.run(given, inputs)[1])

    def test_no_state(self) -> None:
        """Protects one model from another: nothing that a request changes in its process is seen by the next."""
        warm = self.warm
        (warm.root / "main.py").write_text(
            textwrap.dedent(
                """\
                import os
                import random
                import sys
                import tempfile

                import numpy
                import tensorflow as tf

                print(hasattr(tf, "mine"), "MINE" in os.environ, "mine" in sys.path, len(os.listdir(".")))
                print(random.random(), numpy.random.rand(), tf.random.uniform([]).numpy(), tf.Variable(1.0).name)
                tf.mine = os.environ["MINE"] = "1"
                sys.path.append("mine")
                random.seed(0)
                numpy.random.seed(0)
                tf.random.set_seed(0)
                open("left", "x").close()
                open(os.path.join(tempfile.gettempdir(), "left"), "x").close()
                """
            )
        )
        first, second = (warm.run(stage("main.py"), ["main.py"]) for _ in range(2))
        self.assertEqual(first[0], 0, first[1])
        self.assertEqual(first[1].splitlines()[0], "False False False 4")
        self.assertEqual(second[1].splitlines()[0], "False False False 4")
        self.assertEqual(second[0], 0, second[1])

    def test_source_below_tmp(self) -> None:
        """Protects a source in /tmp, to which the workspace has a link: the sandbox's own /tmp doesn't hide it."""
        warm = self.warm
        with tempfile.TemporaryDirectory(dir="/tmp") as source:
            Path(source, "main.py").write_text(f"print(open('{source}/mine', 'w').write('1'))\n")
            (warm.root / "main.py").symlink_to(Path(source, "main.py"))
            self.assertEqual(warm.run(stage("main.py"), ["main.py"]), (0, "1\n"))

    def test_outputs(self) -> None:
        """Protects the build: a stage's outputs, and nothing else, appear in the folder that Bazel asks for."""
        warm = self.warm
        main = "open('sub/a', 'w').write('A')\nopen('sub/b', 'w').write('B')\nprint(open('declared').read())\n"
        (warm.root / "box").mkdir()
        for name in ("py", "tools", "packages"):
            (warm.root / "box" / name).symlink_to(warm.root / name)
        for folder in (warm.root, warm.root / "box"):
            (folder / "main.py").write_text(main)
            (folder / "declared").write_text(folder.name)
        given = stage("main.py", outputs=["sub/a"]), ["main.py", "declared"]
        self.assertEqual(warm.run(*given), (0, "_main\n"))
        self.assertEqual(warm.run(*given, sandboxDir="box"), (0, "box\n"))
        for folder in (warm.root, warm.root / "box"):
            self.assertEqual(sorted(path.name for path in (folder / "sub").iterdir()), ["a"])
        self.assertEqual([*(warm.root.parents[1] / "tfaot-workers" / str(warm.pid)).glob("*/*")], [])

    def test_parallel(self) -> None:
        """Protects builds on many cores: requests run at the same time, and each gets its own answer."""
        warm = self.warm
        (warm.root / "main.py").write_text(
            "import sys, time\n\ntime.sleep(1)\nprint(sys.argv[1])\nsys.exit(int(sys.argv[1]))\n"
        )
        warm.run(stage("main.py", "0"), ["main.py"])
        start = time.monotonic()
        numbers = {warm.send(stage("main.py", str(code)), ["main.py"]): code for code in range(6)}
        while numbers:
            answer = warm.receive()
            code = numbers.pop(answer["requestId"])
            self.assertEqual((answer["exitCode"], answer["output"]), (code, f"{code}\n"))
        self.assertLess(time.monotonic() - start, 5, "one after the other takes 6 s")

    def test_cancel(self) -> None:
        """Protects the user who presses Ctrl-C: a cancelled request is answered once, and all that it started ends."""
        warm = self.warm
        (warm.root / "main.py").write_text("print(1)\n")
        self.assertEqual(warm.run(stage("main.py"), ["main.py"]), (0, "1\n"))
        before = descendants(warm.pid)
        (warm.root / "main.py").write_text(
            "import subprocess, time\n\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)\ntime.sleep(1000)\n"
        )
        number = warm.send(stage("main.py"), ["main.py"])

        def started() -> set[int]:
            new = descendants(warm.pid) - before
            return new if any(name_of(pid) == "sleep" for pid in new) else set()

        running = wait_for(started, at_least=2)
        warm.line({"requestId": number, "cancel": True})
        warm.line({"requestId": 77, "cancel": True})  # has ended: nothing to do
        answer = warm.receive()
        self.assertEqual((answer["requestId"], answer["wasCancelled"]), (number, True))
        wait_for(lambda: set() if running & parents().keys() else {1})
        (warm.root / "main.py").write_text("print(1)\n")
        self.assertEqual(warm.run(stage("main.py"), ["main.py"]), (0, "1\n"))

    def test_shadowed(self) -> None:
        """Protects user code's own modules: one with the name of a package comes first, as without a worker."""
        warm = self.warm
        (warm.root / "main.py").write_text("import jinja2, sys\n\nprint(jinja2.__name__, len(jinja2.__dict__) > 20)\n")
        (warm.root / "jinja2.py").write_text("")
        self.assertEqual(warm.run(stage("main.py"), ["main.py"]), (0, "jinja2 True\n"))
        self.assertEqual(warm.run(stage("main.py"), ["main.py", "jinja2.py"]), (0, "jinja2 False\n"))

    def test_flat(self) -> None:
        """Protects a server that builds all day: 1,000 requests leave no memory, descriptors, or files behind."""
        warm = self.warm
        (warm.root / "main.py").write_text("data = bytearray(1 << 20)\nopen('out', 'w').write('x')\n")
        given = stage("main.py", outputs=["out"]), ["main.py"]

        def used() -> tuple[int, int]:
            processes = descendants(warm.pid)
            memory = sum(private_kilobytes(pid) for pid in processes)
            return memory, sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in processes)

        def requests(count: int) -> None:
            for start in range(0, count, 4):
                for _ in range(min(4, count - start)):
                    warm.send(*given)
                for _ in range(min(4, count - start)):
                    self.assertEqual(warm.receive()["exitCode"], 0)

        requests(100)
        memory, descriptors = used()
        requests(1000)
        after, descriptors_after = used()
        self.assertEqual(descriptors_after, descriptors)
        self.assertLess(after - memory, 2048, f"{memory} KB, then {after} KB")
        self.assertEqual([*(warm.root.parents[1] / "tfaot-workers" / str(warm.pid)).glob("*/*")], [])


class OwnTest(unittest.TestCase):
    """Tests that end a worker's processes, or start one elsewhere."""

    def test_hermetic(self) -> None:
        """Protects correct caching: user code sees declared inputs only, has no network, and writes to no other place.

        No right is left with which it could change that, whether root builds, as in a container, or somebody else.
        """
        server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        socket = f"socket.create_connection(('127.0.0.1', {server.server_port}), timeout=5)"
        subprocess.run([sys.executable, "-c", f"import socket; {socket}"], check=True)
        for user in (0, 65534):
            with self.subTest(user=user), worker(become(user)) as warm:
                self.check_hermetic(warm, user, socket)

    def check_hermetic(self, warm: Worker, user: int, socket: str) -> None:
        """Runs what a sandbox forbids, and what it allows."""
        (warm.root / "undeclared").write_text("")
        mine = f"mine_{warm.pid}"
        write = f"open({str(warm.root / 'undeclared')!r}, 'w')"
        tries = {
            "open('undeclared')": "FileNotFoundError",
            "open('declared')": "",
            "import_module('hidden')": "ModuleNotFoundError",
            socket: "ConnectionRefusedError",
            "socket.create_connection(('203.0.113.1', 80), timeout=5)": "OSError",
            write: "OSError",
            "open(os.path.join(os.getcwd(), '../../../../../left'), 'w')": "OSError",
            f"open(os.path.join(tempfile.gettempdir(), '{mine}'), 'w')": "",
            "open('mine', 'w')": "",
            "tempfile.TemporaryFile()": "",
            f"same(os.getuid(), {user})": "",
            "same(status('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'), ['0' * 16] * 5)": "",
            "same(status('NoNewPrivs'), ['1'])": "",
            "same(subprocess.check_output(['grep', 'CapEff', '/proc/self/status'])[-17:], b'0' * 16 + b'\\n')": "",
            "same(len(os.listdir('/proc/self/fd')), 4)": "",  # and the folder itself
            "call('mount', b'none', b'/', None, 0x1020, None)": "PermissionError",  # MS_REMOUNT | MS_BIND
            "call('setns', os.open('/proc/1/ns/mnt', 0), 0)": "PermissionError",
            "call('unshare', 0x10020000)": "",  # CLONE_NEWUSER | CLONE_NEWNS: capabilities for a namespace of its own
            "call('mount', b'none', b'/', None, 0x1020, None) ": "PermissionError",
            "call('umount2', os.getcwd().encode(), 2)": "OSError",
            f"{write} ": "OSError",
        }
        (warm.root / "declared").write_text("")
        (warm.root / "hidden.py").write_text("")
        (warm.root / "main.py").write_text(
            textwrap.dedent(
                f"""\
                import ctypes, os, re, socket, subprocess, tempfile
                from importlib import import_module


                def same(one, other):
                    assert one == other, (one, other)


                def status(*names):
                    text = open("/proc/self/status").read()
                    return [re.search(rf"^{{name}}:\\s*(\\w+)$", text, re.MULTILINE)[1] for name in names]


                def call(name, *arguments):
                    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
                        raise OSError(ctypes.get_errno(), name)


                for text in {[*tries]!r}:
                    try:
                        eval(text)
                        print()
                    except Exception as error:
                        print(*(kind.__name__ for kind in type(error).__mro__), error)
                """
            )
        )
        status, output = warm.run(stage("main.py"), ["main.py", "declared"])
        self.assertEqual(status, 0, output)
        for (text, expected), line in zip(tries.items(), output.splitlines(), strict=True):
            self.assertEqual(expected in line, True, f"{text}: {line}")
            self.assertEqual(bool(expected), bool(line), f"{text}: {line}")
        self.assertFalse(Path(tempfile.gettempdir(), mine).exists())

    def test_forged_answers(self) -> None:
        """Protects a stage's status: even without namespaces, lines that user code writes to its parent's pipes are no answers."""
        with worker(become(0, namespaces=False)) as warm:
            (warm.root / "main.py").write_text(
                textwrap.dedent(
                    """\
                    import os, sys

                    line = '{"requestId": %s, "exitCode": 0, "output": "forged", "wasCancelled": false}\\n'
                    pipes = 0
                    for folder in ("/proc/self/fd", f"/proc/{os.getppid()}/fd"):
                        for name in os.listdir(folder):
                            try:
                                if os.readlink(f"{folder}/{name}").startswith("pipe:"):
                                    with open(f"{folder}/{name}", "wb", 0) as pipe:
                                        pipe.write((line % sys.argv[1] + line % 77 + "{").encode())
                                        pipes += 1
                            except OSError:
                                pass
                    sys.exit(f"mine, {pipes > 1}")
                    """
                )
            )
            for number in (1, 2):
                self.assertEqual(warm.run(stage("main.py", str(number)), ["main.py"]), (1, "mine, True\n"))

    def test_workspace_below_tmp(self) -> None:
        """Protects a workspace in /tmp, as somebody who tries the rules has: the sandbox's own /tmp doesn't hide it."""
        with workspace("/tmp") as root:
            (root / "main.py").write_text("open('out', 'w').write('1')\nprint(1)\n")
            warm = Worker(root)
            self.assertEqual(warm.run(stage("main.py", outputs=["out"]), ["main.py"]), (0, "1\n"))
            self.assertEqual((root / "out").read_text(), "1")
            warm.close()

    def test_killed(self) -> None:
        """Protects the machine: when Bazel kills a worker, no process is left, and the next worker removes its files."""
        with workspace() as root:
            (root / "main.py").write_text(
                "import subprocess, time\n\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)\ntime.sleep(1000)\n"
            )
            first = Worker(root)
            first.send(stage("main.py"), ["main.py"])
            running = wait_for(lambda: descendants(first.pid), at_least=5)
            os.kill(first.pid, signal.SIGKILL)
            first.close()
            wait_for(lambda: set() if running & parents().keys() else {1})
            second = Worker(root)
            (root / "main.py").write_text("")
            self.assertEqual(second.run(stage("main.py"), ["main.py"]), (0, ""))
            self.assertEqual([path.name for path in (root.parents[1] / "tfaot-workers").iterdir()], [str(second.pid)])
            second.close()
            self.assertEqual([*(root.parents[1] / "tfaot-workers").iterdir()], [])

    def test_lost(self) -> None:
        """Protects a build on a full machine: if the system kills the warm process, its request runs again, once."""
        with worker() as warm:
            (warm.root / "main.py").write_text(
                "import subprocess, time\n\nsubprocess.run(['sleep', '2'])\nprint('done')\n"
            )
            lost = {warm.pid}

            def running() -> set[int]:
                return descendants(warm.pid) - lost

            for kills in (1, 2):
                number = warm.send(stage("main.py"), ["main.py"])
                for _ in range(kills):
                    found = wait_for(running, at_least=4)
                    (process,) = (pid for pid, parent in parents().items() if parent == warm.pid and pid in found)
                    lost |= found
                    os.kill(process, signal.SIGKILL)
                answer = warm.receive()
                self.assertEqual(answer["requestId"], number)
                if kills == 1:
                    self.assertEqual((answer["exitCode"], answer["output"]), (0, "done\n"))
                else:
                    self.assertEqual(answer["exitCode"], 1)
                    self.assertIn("ended twice, with status -9; see the worker's log", answer["output"])

    def test_packages_in_folders_of_their_own(self) -> None:
        """Protects the speed of builds whose packages come from pip.parse: a stage uses what the worker has imported."""
        with workspace() as root:
            (root / "first").mkdir()
            (root / "first" / "jinja2").symlink_to(PACKAGES / "jinja2")
            (root / "main.py").write_text("import sys\n\nprint('tensorflow' in sys.modules)\n")
            warm = Worker(root, "py:first:packages")
            given = stage("main.py", path=(".", "first"))
            self.assertEqual(warm.run(given, ["main.py", "first"]), (0, "True\n"))
            (root / "jinja2.py").write_text("")
            self.assertEqual(warm.run(given, ["main.py", "first", "jinja2.py"]), (0, "False\n"))
            warm.close()

    def test_large_repositories(self) -> None:
        """Protects speed and the sandbox: many inputs of a repository are linked once, and a stage sees no others."""
        with worker() as warm:
            package = warm.root / "external" / "pip" / "package"
            package.mkdir(parents=True)
            for number in range(1001):
                (package / f"{number}.txt").write_text(str(number))
            (warm.root / "main.py").write_text(
                "import os\n\n"
                "print(len(os.listdir('external/pip/package')), os.path.islink('external/pip'),"
                " open('external/pip/package/7.txt').read())\n"
            )
            inputs = [f"external/pip/package/{number}.txt" for number in range(1000)]
            for _ in range(2):
                self.assertEqual(warm.run(stage("main.py"), ["main.py", *inputs]), (0, "1000 True 7\n"))
            one = inputs[:10]
            self.assertEqual(warm.run(stage("main.py"), ["main.py", *one]), (0, "10 False 7\n"))

    def test_broken_packages(self) -> None:
        """Protects the message about broken packages: without TensorFlow, a stage reports what is missing, as without a worker."""
        with workspace() as root:
            (root / "packages").unlink()
            (root / "packages").mkdir()
            (root / "packages" / "tensorflow.py").write_text("raise ImportError('no wheel')\n")
            (root / "main.py").write_text("import tensorflow\n")
            warm = Worker(root)
            status, output = warm.run(stage("main.py"), ["main.py"])
            warm.close()
            self.assertEqual(status, 1)
            self.assertIn("ImportError: no wheel", output)


def wait_for(found: Callable[[], set[int]], *, at_least: int = 1) -> set[int]:
    """Waits for processes to appear."""
    for _ in range(600):
        if len(result := found()) >= at_least:
            return set(result)
        time.sleep(0.1)
    raise AssertionError(f"{result} after a minute")


def private_kilobytes(pid: int) -> int:
    """Returns the memory of a process that no file backs."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
        if line.startswith("Pss_Anon:"):
            return int(line.split()[1])
    raise ValueError(pid)


if __name__ == "__main__":
    unittest.main()
