"""Runs the command `tfaot` in tests."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from tfaot.command import cli

MODEL = """\
import tensorflow as tf


@tf.function
def model(x):
    return x + 1
"""
"""A model."""
CACHE = Path(os.environ.get("TEST_TMPDIR") or tempfile.gettempdir()) / "tfaot-cache"
"""Where the command keeps what calls share."""


def started(
    *words: str,
    cwd: Path,
    env: dict[str, str] | None = None,
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
) -> subprocess.Popen[str]:
    """Starts the command as its users do, in a process of its own."""
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path if path),
        "TMPDIR": str(cwd),
        "RULES_TFAOT_CACHE": str(CACHE),
        **(env or {}),
    }
    command = [sys.executable, "-s", "-B", "-m", "tfaot.command.cli", *words]
    return subprocess.Popen(command, cwd=cwd, env=variables, stdout=stdout, stderr=stderr, text=True)


def run(
    *words: str, cwd: Path, env: dict[str, str] | None = None, stderr: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """Runs the command to its end."""
    process = started(*words, cwd=cwd, env=env, stderr=stderr)
    printed, errors = process.communicate()
    return subprocess.CompletedProcess(words, process.returncode, printed, errors)


class FolderTest(unittest.TestCase):
    """A test with a folder."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        self.folder = Path(folder.name).resolve()
        os.chdir(self.folder)

    def contents(self) -> dict[str, str]:
        """Returns what is in the folder: the text of files, and where links lead."""
        return {
            str(path.relative_to(self.folder)): f"to {os.readlink(path)}" if path.is_symlink() else path.read_text()
            for path in self.folder.rglob("*")
            if path.is_symlink() or not path.is_dir()
        }


def write(path: str, text: str = "text") -> None:
    """Writes a file of a user."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


class CommandCase(FolderTest):
    """A test that runs commands."""

    def error(self, *words: str) -> str:
        """Runs a command that must fail with one error, in this process, and returns the error."""
        printed = io.StringIO()
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
