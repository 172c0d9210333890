"""The command `tfaot`: its errors, what it leaves behind, and what it leaves alone."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shutil
import signal
import sys
import threading
import time
import unittest
from collections.abc import Callable
from pathlib import Path
from subprocess import DEVNULL
from types import FrameType
from typing import Any
from unittest import mock

from running import MODEL, CommandCase, FolderTest, run, started, write

from tfaot.command import cxx, ending, output
from tfaot.core import isolate
from tfaot.core.errors import TfaotError


def make(out: str, text: str = "old", *, meanwhile: str = "") -> None:
    """Makes a folder as a command does, with a file of the user's that appears meanwhile."""
    with output.replacing(out) as made:
        for path in ("include/b.h", "share/b/model.json"):
            (made / path).parent.mkdir(parents=True)
            (made / path).write_text(text)
        if meanwhile:
            write(meanwhile)


class OutTest(FolderTest):
    """The folder that `--out` names."""

    def test_what_is_replaced(self) -> None:
        """Protects users' files: only what the command wrote is replaced, and all else stays where it is, as it is."""

        def installed(*paths: str, out: str = "out") -> Callable[[], None]:
            return lambda: (make(out), *(write(path) for path in paths))[0]

        def linked(target: str) -> Callable[[], None]:
            return lambda: (make("real"), os.symlink(target, "out"))[0]

        replaced: tuple[tuple[str, Callable[[], object], str, str], ...] = (
            ("nothing there", lambda: None, "out", "out"),
            ("folders above", lambda: None, "above/and/out", "above/and/out"),
            ("an empty folder", lambda: Path("out").mkdir(), "out", "out"),
            ("an older one", installed("beside"), "out", "out"),
            ("parts of an older one", lambda: (make("out"), os.remove("out/include/b.h")), "out", "out"),
            ("a link to an older one", linked("real"), "out", "real"),
            ("a link to nothing", linked("nowhere"), "out", "nowhere"),
            ("without an atomic exchange", installed("beside"), "out", "out"),
        )
        others = "--out {}: this isn't something that the command wrote and could replace\n  found: "
        refused: tuple[tuple[str, Callable[[], object], str, str], ...] = (
            (
                "an install prefix",
                installed("out/bin/tool"),
                "out",
                others + "other files, or changed ones: bin, bin/tool\n",
            ),
            ("an empty folder in it", lambda: (make("out"), Path("out/mine").mkdir()), "out", others + "other files"),
            (
                "a changed file",
                installed("out/include/b.h"),
                "out",
                others + "other files, or changed ones: include/b.h\n",
            ),
            ("a file that is a link", linked_file, "out", others + "other files, or changed ones: include/b.h\n"),
            ("a package of others", lambda: write("out/share/b/model.json"), "out", others + "other files"),
            ("a broken list", lambda: (write("out/.tfaot.json", "[]"), write("out/a")), "out", others + "other files"),
            ("a file", lambda: write("out"), "out", others + "no folder\n"),
            ("a link to a file", lambda: (write("file"), os.symlink("file", "out")), "out", others + "no folder\n"),
            ("a link to itself", lambda: os.symlink("out", "out"), "out", "--out out: "),
            (
                "the current folder",
                lambda: write("model.py"),
                ".",
                "--out .: this is the current folder, or contains it\n",
            ),
            ("the folder above", lambda: None, "..", "--out ..: this is the current folder, or contains it\n"),
            ("the root", lambda: None, "/", "--out /: this is the current folder, or contains it\n"),
            ("no name", lambda: None, "", "--out names no folder\n"),
            ("below a file", lambda: write("file"), "file/out", "--out file/out: can't write there: "),
            ("too long", lambda: None, "a" * 300, "can't write there: File name too long\n"),
            ("no path", lambda: None, "a\0b", "can't write there: embedded null byte\n"),
        )
        for number, (what, prepare, out, wanted) in enumerate((*replaced, *refused)):
            succeeds = number < len(replaced)
            with self.subTest(what=what):
                here = self.folder / str(number)
                here.mkdir()
                os.chdir(here)
                prepare()
                before = self.contents()
                kernel = (
                    mock.patch("ctypes.CDLL", lambda *_, **__: object())
                    if "atomic" in what
                    else contextlib.nullcontext()
                )
                refusal: Any = contextlib.nullcontext() if succeeds else self.assertRaises(TfaotError)
                with kernel, refusal as error:
                    make(out, "new")
                after = self.contents()
                made = {path: text for path, text in after.items() if path.startswith(f"{number}/{wanted}/")}
                if succeeds:
                    self.assertEqual([*made.values()].count("new"), 2)
                    kept = {path: text for path, text in before.items() if not path.startswith(f"{number}/{wanted}/")}
                    self.assertEqual({path: text for path, text in after.items() if path not in made}, kept)
                else:
                    self.assertIn(wanted.format(out), str(error.exception))
                    self.assertEqual(after, before)

    def test_meanwhile(self) -> None:
        """Protects files that a user adds to the folder while the command runs: it writes nothing then, and leaves nothing."""
        make("out")
        for meanwhile in ("out/mine", "new/mine"):
            with self.subTest(meanwhile), self.assertRaises(TfaotError):
                make(meanwhile.partition("/")[0], "new", meanwhile=meanwhile)
            self.assertEqual(Path(meanwhile).read_text(), "text")
            self.assertEqual(Path("out/include/b.h").read_text(), "old")
            self.assertEqual([path for path in os.listdir() if path.startswith(".")], [])

    def test_mode(self) -> None:
        """Protects who shares a machine: the folder has the mode that the user's umask gives."""
        before = os.umask(0o027)
        self.addCleanup(os.umask, before)
        make("out")
        self.assertEqual(Path("out").stat().st_mode & 0o777, 0o750)

    def test_killed_at_any_point(self) -> None:
        """Protects the folder: whenever a signal comes, it's whole, old or new, and a signal to end leaves nothing else behind."""
        for there in ("", "old", "old and mine"):  # the last: a file of the user's comes in the last moment
            for number in (signal.SIGTERM, signal.SIGKILL):
                point, status = 0, -number
                while status:
                    point += 1
                    here = self.folder / f"{there}.{number}.{point}"
                    here.mkdir()
                    os.chdir(here)
                    if there:
                        make("above/out")
                    status = self.killed(number, point, mine="mine" in there)
                    self.assertIn(status, (0, -number))
                    text = {path.read_text() for path in Path("above/out").rglob("*.h")}
                    self.assertIn(text, [{"old"}, {"new"}] if there else [set(), {"new"}])
                    files = [path.relative_to("above").parts[0] for path in Path("above").rglob("*")]
                    beside = {name for name in files if name != "out"}
                    if number == signal.SIGKILL:
                        self.assertEqual({name for name in beside if not name.startswith(".tfaot.")}, set())
                    else:
                        self.assertEqual((beside, Path("above").exists()), (set(), bool(text)))
                    if Path("came").exists():
                        mine = Path("above").rglob("mine") if number == signal.SIGKILL else [Path("above/out/mine")]
                        self.assertEqual([path.read_text() for path in mine], ["text"])
                self.assertGreater(point, 50)
                self.assertEqual(text, {"old"} if "mine" in there else {"new"})

    def killed(self, number: int, point: int, *, mine: bool) -> int:
        """Makes a folder in a child that gets a signal at a line that it runs. Returns its exit status."""
        pid = os.fork()
        if pid:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        lines = 0
        exchange = output._exchange

        def trace(frame: FrameType, event: str, _: object) -> object:
            nonlocal lines
            if os.path.basename(frame.f_code.co_filename) in ("ending.py", "output.py", "tempfile.py"):
                lines += event == "line"
                if event == "line" and lines == point:
                    os.kill(os.getpid(), number)
                return trace
            return None

        def late(one: Path, other: Path) -> None:
            if mine and not Path("came").exists():
                write("above/out/mine")
                write("came")
            exchange(one, other)

        try:
            with ending.in_order(), mock.patch.object(output, "_exchange", late):
                sys.settrace(trace)  # type: ignore[arg-type]
                make("above/out", "new")
            os._exit(0)
        except TfaotError:
            os._exit(0 if mine else 1)
        finally:
            os._exit(1)


def linked_file() -> None:
    """Writes an older folder, one of whose files is a link to the same text."""
    make("out")
    os.rename("out/include/b.h", "b.h")
    os.symlink(Path("b.h").absolute(), "out/include/b.h")


def name_of(pid: int) -> str:
    """Returns the name of a process's program, or nothing if it has ended."""
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return "" if state == "Z" else Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def wait_for(reached: Callable[[], bool]) -> None:
    """Waits for something to happen."""
    end = time.monotonic() + 120
    while not reached():
        if time.monotonic() > end:
            raise AssertionError("it didn't happen in two minutes")
        time.sleep(0.05)


class CommandTest(CommandCase):
    """Runs of the command."""

    def test_a_crash_of_the_model(self) -> None:
        """Protects users whose model ends its process: the command says so in one error, and leaves nothing behind."""
        (self.folder / "model.py").write_text("import os\n\nos.abort()\n")
        error = self.failure("compile", "model.py", "--cpp-class=a::B", "--out=out")
        self.assertIn("error: exporting model.py: the process was killed by SIGABRT\n", error)
        self.assertIn("model.py", error)

    def test_verified(self) -> None:
        """Protects users from wrong numbers: compile writes nothing whose test fails, and says aloud if it ran no test."""
        (self.folder / "model.py").write_text(MODEL.replace("x + 1", "tf.cast(x * ([1e20] + [1e4] * 7), tf.int32)"))
        words = ("compile", "model.py", "--signature=x=float32[8]", "--cpp-class=a::B", "--out=out")
        error = self.failure(*words)
        self.assertRegex(
            error, "error: a::B: the compiled model doesn't compute TensorFlow's numbers\n  found: its test, "
        )
        self.assertRegex(error, r"\n  or: write the package without this test, with --no-verify\n\Z")
        done = run(*words, "--no-verify", cwd=self.folder)
        self.assertEqual((done.returncode, done.stdout), (0, "wrote out\n"), done.stderr)
        shutil.rmtree("out")
        self.assertRegex(
            done.stderr, r"\nNOT VERIFIED: NOBODY HAS COMPARED a::B WITH TENSORFLOW, because of --no-verify\n\Z"
        )
        (self.folder / "model.py").write_text(MODEL.replace("x + 1", "x * 0"))  # whose test would see no fault
        error = self.failure(*words, "--strict")
        self.assertIn("error: a::B: the generated test is blind to 1 output(s) or variable(s)\n", error)

    def test_error_of_a_stage(self) -> None:
        """Protects users whose model lacks something: the stage's error says which option to give."""
        (self.folder / "model.py").write_text(
            MODEL.replace("function", "function(input_signature=[tf.TensorSpec([None, 3])])")
        )
        error = self.failure("compile", "model.py", "--cpp-class=a::B", "--out=out")
        self.assertIn("or with --dims x=1,3, with your sizes in place of 1; any number of rows is --batch-sizes", error)
        self.assertNotIn("target", error)

    def test_signals(self) -> None:
        """Protects the machine: a signal ends the command and all that it started, and nothing that it made stays."""
        (self.folder / "waits.py").write_text(
            "import pathlib, subprocess, time\n\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
            "pathlib.Path('started').touch()\ntime.sleep(1000)\n"
        )
        (self.folder / "model.py").write_text(MODEL)
        (self.folder / "c++").write_text(
            f"#!/bin/sh\n[ $1 = -dumpmachine ] && exec {shutil.which('c++')} $1\ntouch {self.folder}/started\nsleep 1000\n"
        )
        (self.folder / "c++").chmod(0o755)
        # In the export stage, and in the C++ compiler.
        stage, compiler = ("hlo", "waits.py"), ("compile", "model.py", "--signature=x=float32[2]", "--cpp-class=a::B")
        for number, words in (
            (signal.SIGINT, stage),
            (signal.SIGHUP, stage),
            (signal.SIGTERM, stage),
            (signal.SIGTERM, compiler),
            (signal.SIGKILL, stage),
        ):
            with self.subTest(number=number, words=words):
                self.check_signal(number, words)

    def check_signal(self, number: signal.Signals, words: tuple[str, ...]) -> None:
        """Sends a signal to a command when its stage or compiler has written the file `started`."""
        before = self.contents()
        env = {"CXX": str(self.folder / "c++")}
        # No pipes, which processes that stay would keep open.
        process = started(*words, "--out=out", cwd=self.folder, env=env, stdout=DEVNULL, stderr=DEVNULL)
        wait_for(lambda: process.poll() is None and Path("started").exists())
        time.sleep(0.2)
        processes = isolate.tree(process.pid)
        self.assertGreater(len(processes), 2)
        process.send_signal(number)
        self.assertEqual(process.wait(), -number)
        # Of a command that is killed, only what the model detached stays.
        detached = [pid for pid in processes if number == signal.SIGKILL and name_of(pid) == "sleep"]
        wait_for(lambda: not any(name_of(pid) for pid in processes if pid not in detached))
        for pid in detached:
            os.kill(pid, signal.SIGKILL)
        Path("started").unlink()
        if number != signal.SIGKILL:
            self.assertEqual(self.contents(), before)

    def test_names_of_files(self) -> None:
        """Protects files elsewhere: no name or folder leads out of the folders that the command writes."""
        (self.folder / "model.py").write_text(MODEL)
        words = ("compile", "model.py", "--cpp-class=a::B", "--out=out")
        for flag in ("--name=a/b", "--name=..", "--header-folder=a/../../.."):
            self.assertIn(
                f"error: {flag.replace('=', ' ')}: files would be outside of their folder\n", self.error(*words, flag)
            )

    def test_a_name_of_the_runtime(self) -> None:
        """Protects classes that are called as a header of the runtime is: the C interface includes the class's header."""
        (self.folder / "model.py").write_text(MODEL)
        words = (
            "compile",
            "model.py",
            "--signature=x=float32[2]",
            "--cpp-class=a::Weights",
            "--no-verify",
            "--out=out",
        )
        done = run(*words, cwd=self.folder)
        self.assertEqual((done.returncode, done.stdout), (0, "wrote out\n"), done.stderr)
        self.assertTrue((self.folder / "out/include/weights.h").is_file())

    def test_forged_answers(self) -> None:
        """Protects the command from what a model writes to descriptors: it takes no line of the model's for an answer."""
        forged = 'for fd in range(3, 64):\n    try:\n        os.write(fd, b\'{"status": 0, "printed": "forged"}\\n\')\n'
        forged += "    except OSError:\n        pass\n"
        (self.folder / "model.py").write_text(f"import os\n{forged}{MODEL}")
        done = run("stablehlo", "model.py", "--signature=x=float32[2]", "--out=out", cwd=self.folder)
        self.assertEqual((done.returncode, done.stdout), (0, "wrote out\n"), done.stderr)
        self.assertIn("stablehlo.add", (self.folder / "out/model.stablehlo.mlir").read_text())
        (self.folder / "model.py").write_text(f"import os\n{forged}raise ValueError('mine')\n")
        done = run("stablehlo", "model.py", "--signature=x=float32[2]", "--out=other", cwd=self.folder)
        self.assertEqual((done.returncode, done.stderr.count("forged")), (1, 0), done.stderr)
        self.assertIn("ValueError: mine", done.stderr)

    def test_an_error_of_the_compiler(self) -> None:
        """Protects users with a wrong flag: they see the compiler's message, or ours, before a stage runs."""
        (self.folder / "model.py").write_text(MODEL)
        words = ("compile", "model.py", "--signature=x=float32[2]", "--cpp-class=a::B", "--out=out")
        refused = r"an empty program with the copts .*: \S+ exited with status 1"
        for flag, message in (
            ("--copts=-std=c++1066", refused),
            ("--linkopts=-labsent", refused),
            ("--passes=absent", '--passes absent: "absent" matches no pass'),
        ):
            error = self.failure(*words, flag)
            self.assertNotIn("exporting", run(*words, flag, cwd=self.folder).stderr)
            self.assertRegex(error, rf"\Aerror: {message}\n")
            self.assertIn(flag.partition("=")[2], error)

    def test_no_compiler(self) -> None:
        """Protects users without a compiler from waiting for the stages first."""
        (self.folder / "model.py").write_text(MODEL)
        words = ("compile", "model.py", "--cpp-class=a::B", "--out=out")
        with mock.patch.dict("os.environ", {"CXX": "absent -m64"}):
            self.assertIn("error: there is no C++ compiler 'absent', which", self.error(*words))
        with mock.patch.dict("os.environ", {"CXX": "", "PATH": str(self.folder)}):
            self.assertIn("error: there is no C++ compiler\n", self.error(*words))

    def test_another_machine(self) -> None:
        """Protects users who compile for another machine: one error, before the stages, says which program is missing or wrong."""
        (self.folder / "model.py").write_text(MODEL)
        here, there = cxx.HERE, "linux_aarch64" if cxx.HERE != "linux_aarch64" else "linux_x86_64"
        prefix = f"{there.removeprefix('linux_')}-linux-gnu-"
        words = ("compile", "model.py", "--cpp-class=a::B", "--out=out", f"--platform={there}")
        with mock.patch.dict("os.environ", {"CXX": "", "PATH": str(self.folder)}):
            error = self.error(*words)
            self.assertIn(
                f"error: there is no C++ compiler\n  found: PATH has none of {prefix}c++, {prefix}g++, ", error
            )
        with mock.patch.dict("os.environ", {"CXX": "c++ -O1"}):
            error = self.error(*words)
            self.assertIn(f"error: c++ doesn't compile for {there}\n  found: `c++ -O1 -dumpmachine` says '", error)
            self.assertIn(f"\n  to do: set CXX to a compiler for it, such as {prefix}g++, and AR to an archiver", error)
        compiler = self.folder / f"{prefix}g++"
        compiler.write_text(f"#!/bin/sh\necho {prefix}\n")
        compiler.chmod(0o755)
        verify = ("verify", "model.py", "--cpp-class=a::B", f"--platform={there}")
        with mock.patch.dict("os.environ", {"CXX": "", "PATH": f"{self.folder}:{os.environ['PATH']}"}):
            self.assertEqual(cxx.tools(there), cxx.Tools((f"{prefix}g++",), os.environ.get("AR") or f"{prefix}ar"))
            error = self.error(*verify)
            self.assertIn(f"error: verify runs a program for {there}\n  found: this machine is {here}, and ", error)
            self.assertIn("\n  to do: give an emulator: --run-under 'qemu-aarch64 -L ", error)
            error = self.error(*verify, "--run-under=absent -v")
            self.assertIn("error: --run-under: there is no program 'absent'\n", error)

    def test_inspect_needs_a_package(self) -> None:
        """Protects users who name another file: an archive of something else, or none."""
        (self.folder / "file").write_text("text")
        self.assertIn("error: file isn't a package\n  found: no model.json in it", self.error("inspect", "file"))
        self.assertIn("error: none isn't a package\n  found: nothing", self.error("inspect", "none"))

    def model_with_a_helper(self) -> None:
        """Writes a model that imports a module from another folder."""
        (self.folder / "model.py").write_text(
            MODEL.replace("import tensorflow as tf\n", "import tensorflow as tf\nfrom helper import ONE\n").replace(
                "x + 1", "x + ONE"
            )
        )
        (self.folder / "deps").mkdir()
        (self.folder / "deps/helper.py").write_text("ONE = 1.0\n")

    def test_profile(self) -> None:
        """Protects profile, --deps, and --linkopts: the model finds its modules, the linker its flags, and kernels are listed."""
        self.model_with_a_helper()
        words = ("profile", "model.py", "--signature=x=float32[64,64]", "--cpp-class=a::B", "--deps=deps")
        done = run(*words, f"--linkopts=-Wl,-Map={self.folder}/map", "--seconds=0.2", cwd=self.folder)
        self.assertIn("libstdc++", (self.folder / "map").read_text())
        if shutil.which("perf") and not done.returncode:
            self.assertRegex(
                done.stdout, r"\Aa::B: [\d.]+ us, the median of [\d,]+ steps\n +share +us/step +function\n +\d"
            )
            self.assertRegex(
                done.stderr, r"\nlinking the benchmark: [\d.]+ s\nprofile: sampling [\d,]+ steps of about "
            )
        else:  # not installed, or forbidden, as in many containers
            self.assertRegex(done.stderr, "\nerror: .*(perf|benchmark ended)(.|\n)*\n  to do: .*perf")

    def test_no_perf(self) -> None:
        """Protects users without perf from waiting for the stages first."""
        (self.folder / "model.py").write_text(MODEL)
        (self.folder / "c++").symlink_to(shutil.which("c++") or "")
        with mock.patch.dict("os.environ", {"CXX": "", "PATH": str(self.folder)}):
            error = self.error("profile", "model.py", "--cpp-class=a::B")
        self.assertIn("error: profile samples the model with perf\n  found: no perf on PATH\n", error)

    def test_modules(self) -> None:
        """Protects hlo and stablehlo, as commands: they write modules for other compilers, with lines that a log keeps."""
        self.model_with_a_helper()
        words = ("model.py", "--signature=x=float32[2]", "--deps=deps", "--out=out")
        done = run("hlo", *words, cwd=self.folder)
        self.assertEqual((done.returncode, done.stdout), (0, "wrote out\n"), done.stderr)
        self.assertRegex(done.stderr, r"\Aexporting the graph: \d+\.\d s\nlowering Run to HLO: \d+\.\d s\n\Z")
        self.assertRegex((self.folder / "out/model.hlo.txt").read_text(), r"ENTRY (.|\n)* add\(")
        done = run("stablehlo", *words, cwd=self.folder)  # what the command wrote is replaced
        self.assertEqual((done.returncode, done.stdout), (0, "wrote out\n"), done.stderr)
        self.assertRegex((self.folder / "out/model.stablehlo.mlir").read_text(), r"stablehlo\.add .*tensor<2xf32>")
        self.assertFalse((self.folder / "out/model.hlo.txt").exists())

    def test_a_terminal(self) -> None:
        """Protects people who wait: on a terminal, a line moves, and what remains is the same as in a log."""
        (self.folder / "model.py").write_text("raise ValueError('stop here')\n")
        terminal, other = pty.openpty()
        shown: list[bytes] = []

        def read() -> None:
            with open(terminal, "rb", buffering=0) as screen, contextlib.suppress(OSError):  # the other side is closed
                while part := screen.read(65536):
                    shown.append(part)

        reader = threading.Thread(target=read)
        reader.start()
        words = ("hlo", "model.py", "--out=out")
        done = run(*words, cwd=self.folder, env={"TERM": "xterm", "COLUMNS": "100"}, stderr=other)
        os.close(other)
        reader.join()
        self.assertEqual(done.returncode, 1)
        text = b"".join(shown).decode()
        moving = re.findall(r"\r\x1b\[2K\S exporting the graph 0:00:\d\d", re.sub(r"\x1b\[[\d;]*m", "", text))
        self.assertGreater(len(set(moving)), 3, text)
        left = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text).replace("\r", "")
        self.assertRegex(left, r"\nexporting the graph: \d+\.\d s\nerror: .*\n(.|\n)*stop here")

    def test_check(self) -> None:
        """Protects users who ask what stands in the way: the report names each op and its line, and the status tells scripts."""
        model = MODEL.replace("@tf.function", "@tf.function(input_signature=[tf.TensorSpec([8])])")
        (self.folder / "model.py").write_text(model)
        done = run("check", "model.py", cwd=self.folder)
        self.assertEqual((done.returncode, done.stderr.count("Traceback")), (0, 0), done.stdout + done.stderr)
        (self.folder / "text.py").write_text(model.replace("x + 1", "tf.strings.length(tf.strings.as_string(x))"))
        done = run("check", "text.py", "--json=report.json", cwd=self.folder)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"AsString(.|\n)*text\.py:6")
        self.assertTrue((self.folder / "report.json").is_file())


if __name__ == "__main__":
    unittest.main()
