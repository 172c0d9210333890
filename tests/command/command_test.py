"""The command `tfaot`: its options, its errors, and what it leaves behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from tfaot.command import options
from tfaot.command.files import RULES

MODEL = """\
import tensorflow as tf


@tf.function
def model(x):
    return x + 1
"""


def run(*words: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the command as its users do, in a process of its own."""
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path if path),
        "TMPDIR": str(cwd),
        **(env or {}),
    }
    command = [sys.executable, "-s", "-B", "-m", "tfaot.command.cli", *words]
    return subprocess.run(command, capture_output=True, check=False, cwd=cwd, env=variables, text=True)


class OptionsTest(unittest.TestCase):
    """The options are the rule's attributes."""

    def test_every_attribute_is_used(self) -> None:
        """Protects users from an option that nothing reads: each attribute is named in the code that runs the stages."""
        code = "".join((RULES / "py/tfaot/command" / name).read_text() for name in ("build.py", "cli.py", "options.py"))
        words = set(re.findall(r"[\"'](\w+)[\"']", code))
        unused = [field.name for field in options.attributes() if field.name not in words]
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
        self.assertTrue(made["embed_variables"].default)
        self.assertNotIn("tags", made)


class CommandTest(unittest.TestCase):
    """Runs of the command."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def error(self, *words: str, env: dict[str, str] | None = None) -> str:
        """Runs a command that must fail with one error, and returns it."""
        done = run(*words, cwd=self.folder, env=env)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertEqual(done.stderr.count("error: "), 1, done.stderr)
        self.assertEqual(done.stdout, "")
        return done.stderr[done.stderr.index("error: ") :]

    def test_errors_before_a_stage(self) -> None:
        """Protects users who give wrong options: one error says what to do, and nothing is written."""
        (self.folder / "model.py").write_text(MODEL)
        (self.folder / "full").mkdir()
        (self.folder / "full/file").touch()
        one = ("--cpp-class", "a::B", "--out", "out")
        for words, wanted in (
            (("compile", *one), "error: a model is one of model, saved_model, and graph; the command got none\n"),
            (("compile", "model.py", "--graph=g.pb", *one), "the command got graph and the argument model.py\n"),
            (("compile", "absent.py", *one), "error: there is no model 'absent.py'\n"),
            (("compile", "model.py", "--saver=s", *one), "error: --saver applies only to graph\n"),
            (("compile", "model.py", "--cpu=z80", *one), "error: z80 isn't a CPU level\n"),
            (("compile", "model.py", "--cpu=a", "--isa=b", *one), "error: --cpu and --isa both set CPU levels\n"),
            (("compile", "model.py", "--dims=x", *one), "error: --dims x: the value isn't NAME=VALUE\n"),
            (("compile", "model.py", "--out=out"), "error: Missing option '--cpp-class'"),
            (("compile", "model.py", "--nothing", *one), "error: No such option"),
            (("compile", "model.py", "--cpp-class=a::B", "--out=full"), "error: --out full: this isn't a package"),
        ):
            with self.subTest(words=words):
                error = self.error(*words)
                self.assertIn(wanted, error)
                self.assertIn("\n  to do: ", error)
                self.assertEqual({path.name for path in self.folder.iterdir()}, {"full", "model.py"})


if __name__ == "__main__":
    unittest.main()
