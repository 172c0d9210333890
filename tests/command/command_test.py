"""The command `tfaot`: its options, its errors, and what it leaves behind."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import shutil
import tempfile
import threading
import unittest
from pathlib import Path
from unittest import mock

from running import run

from tfaot.command import cli, cxx, options
from tfaot.command.files import RULES

MODEL = """\
import tensorflow as tf


@tf.function
def model(x):
    return x + 1
"""


class OptionsTest(unittest.TestCase):
    """The options are the rule's attributes."""

    def test_every_attribute_is_used(self) -> None:
        """Protects users from an option that nothing reads: each attribute is named in the code that runs the stages."""
        code = "".join((RULES / "py/tfaot/command" / name).read_text() for name in ("build.py", "cli.py", "options.py"))
        words = set(re.findall(r"[\"'](\w+)[\"']", code))
        fields = [*options.attributes("tf_aot_library"), *options.attributes("tf_aot_hlo")]
        unused = sorted({field.name for field in fields} - words)
        self.assertEqual(unused, [])

    def test_kinds(self) -> None:
        """Protects the translation of Starlark's types and defaults to those of a command line."""
        made = {option.field.name: option for option in options.options()}
        self.assertEqual(made["saved_model"].flag, "--saved-model")
        self.assertEqual(made["batch_sizes"].read(("8", "16")), [8, 16])
        self.assertEqual(made["passes"].read(()), ["*"])
        self.assertIsNone(made["frozen"].read(()))
        self.assertEqual(made["dims"].read(("x=32,?",)), {"x": "32,?"})
        self.assertEqual(made["entry_points"].read(("a.b", "Train=train")), {"a_b": "a.b", "Train": "train"})
        self.assertEqual(made["weights"].read(("w.safetensors",)), {"file": "w.safetensors"})
        self.assertEqual(made["weights"].read(("dtype=int8", "file=w")), {"dtype": "int8", "file": "w"})
        self.assertTrue(made["embed_variables"].default)
        self.assertNotIn("tags", made)


class CommandTest(unittest.TestCase):
    """Runs of the command."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def error(self, *words: str) -> str:
        """Runs a command that must fail with one error, in this process, and returns the error."""
        printed = io.StringIO()
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        with (
            contextlib.redirect_stdout(printed),
            mock.patch("sys.argv", ["tfaot", *words]),
            self.assertRaises(SystemExit) as ended,
        ):
            cli.main()
        self.assertEqual(printed.getvalue(), "")
        self.assertIsInstance(ended.exception.code, str)  # which Python prints, with status 1
        return str(ended.exception.code)

    def failure(self, *words: str) -> str:
        """Runs a command that must fail with one error, in its own process, and returns the error."""
        done = run(*words, cwd=self.folder)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertEqual(len(re.findall("^error: ", done.stderr, re.MULTILINE)), 1, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual({path.name for path in self.folder.iterdir()}, {"model.py"})
        return done.stderr[done.stderr.index("error: ") :]

    def test_errors_before_a_stage(self) -> None:
        """Protects users who give wrong options: one error says what to do, and nothing is written."""
        (self.folder / "model.py").write_text(MODEL)
        (self.folder / "full").mkdir()
        (self.folder / "full/file").touch()
        one = ("--cpp-class", "a::B", "--out", "out")
        for words, wanted in (
            (
                ("compile", *one),
                "error: a model is one of model, saved_model, graph, and stablehlo; the command got none\n",
            ),
            (("compile", "model.py", "--graph=g.pb", *one), "the command got graph and the argument model.py\n"),
            (("compile", "absent.py", *one), "error: there is no model 'absent.py'\n"),
            (("compile", "model.py", "--saver=s", *one), "error: --saver applies only to graph\n"),
            (("compile", "model.py", "--cpu=z80", *one), "error: z80 isn't a CPU level\n"),
            (
                ("compile", "model.py", "--platform=linux_x86_64", "--cpu=armv8-a", *one),
                "error: armv8-a isn't a CPU level of Linux on x86-64\n  found: x86-64, x86-64-v2, x86-64-v3, x86-64-v4\n"
                "  to do: name one or more of these, or give --platform linux_aarch64",
            ),
            (
                ("compile", "model.py", "--platform=macos_aarch64", *one),
                "error: models would be compiled for macOS on 64-bit ARM, where nobody has run one yet\n  found: tested are "
                "linux_x86_64, linux_aarch64\n  to do: give one of these, or try it with --untested-platforms",
            ),
            (
                ("compile", "model.py", "--platform=vax", *one),
                "error: models can't be compiled for the platform vax\n  found: linux_x86_64 (Linux on x86-64), linux_aarch64 "
                "(Linux on 64-bit ARM)\n  to do: give one of these: --platform linux_x86_64",
            ),
            (("compile", "model.py", "--cpu=a", "--isa=b", *one), "error: --cpu and --isa both set CPU levels\n"),
            (("compile", "model.py", "--weights=bits=8", *one), "error: --weights bits=8: weights has no bits\n"),
            (("compile", "model.py", "--dims=x", *one), "error: --dims x: the value isn't NAME=VALUE\n"),
            (("compile", "model.py", "--out=out"), "error: Missing option '--cpp-class'"),
            (("compile", "model.py", "--nothing", *one), "error: No such option"),
            (
                ("compile", "model.py", "--cpp-class=1b", "--out=out"),
                "error: cpp_class = '1b': '1b' isn't a C++ identifier",
            ),
            (("compile", "model.py", "--cpp-class=a::B", "--out=full"), "error: --out full: this isn't something that"),
            (
                ("compile", "model.py", "--cpp-class=a::B", "--out=/proc/none/out"),
                "error: --out /proc/none/out: can't write there: No such file or directory\n",
            ),
        ):
            with self.subTest(words=words):
                error = self.error(*words)
                self.assertIn(wanted, error)
                self.assertIn("\n  to do: ", error)
                self.assertEqual({path.name for path in self.folder.iterdir()}, {"full", "model.py"})

    def test_a_crash_of_the_model(self) -> None:
        """Protects users whose model ends its process: the command says so in one error, and leaves nothing behind."""
        (self.folder / "model.py").write_text("import os\n\nos.abort()\n")
        error = self.failure("compile", "model.py", "--cpp-class=a::B", "--out=out")
        self.assertIn("error: exporting model.py: the process was killed by SIGABRT\n", error)
        self.assertIn("model.py", error)

    def test_an_error_of_the_compiler(self) -> None:
        """Protects users whose compiler refuses a flag: they see its message, and nothing is written."""
        (self.folder / "model.py").write_text(MODEL)
        words = ("compile", "model.py", "--signature=x=float32[2]", "--cpp-class=a::B", "--out=out")
        error = self.failure(*words, "--copts=-std=c++1066")
        self.assertRegex(error, r"error: compiling .*: \S+ exited with status 1\n")
        self.assertIn("c++1066", error)

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
        (self.folder / "fft.py").write_text(model.replace("x + 1", "tf.signal.rfft(x)"))
        done = run("check", "fft.py", "--json=report.json", cwd=self.folder)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"RFFT(.|\n)*fft\.py:6")
        self.assertTrue((self.folder / "report.json").is_file())


if __name__ == "__main__":
    unittest.main()
