"""The copy of Python that actions run."""

import subprocess
import sys
import sysconfig
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from tools.python import copy_interpreter


class CopyInterpreterTest(unittest.TestCase):
    def setUp(self) -> None:
        self.into = Path(tempfile.mkdtemp()) / "python"

    def test_the_copy_runs_alone(self) -> None:
        """Protects remote workers without this Python: the copy imports from its own folder only."""
        made = copy_interpreter.copy(str(self.into))
        self.assertEqual(set(made), {"interpreter", "library"}, made)
        code = "import os, sys; print(sys.prefix, os.__file__)"
        program = [str(self.into / made["interpreter"]), "-I", "-S", "-c", code]
        done = subprocess.run(program, env={}, capture_output=True, text=True, check=True)
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        self.assertEqual(done.stdout.split(), [str(self.into), str(self.into / made["library"] / version / "os.py")])
        self.assertFalse((self.into / made["library"] / version / "site-packages").exists())

    def test_a_library_from_elsewhere_is_an_error(self) -> None:
        """Protects remote workers from a copy that runs only on this machine: the error names the library."""
        check = copy_interpreter._CHECK.replace('"/usr/lib", "/lib", ', "")
        with mock.patch.object(copy_interpreter, "_CHECK", check):
            made = copy_interpreter.copy(str(self.into))
        self.assertRegex(made["error"], r"^it needs /.*/libc\.so\.6")

    def test_a_copy_that_does_not_run_is_an_error(self) -> None:
        """Protects users whose Python can't be copied: the build is told, and takes the original."""
        empty = Path(tempfile.mkdtemp())
        paths = {"stdlib": str(empty)}
        with mock.patch.object(sysconfig, "get_path", paths.__getitem__):
            made = copy_interpreter.copy(str(self.into))
        self.assertEqual(list(made), ["error"])
        self.assertTrue(made["error"])


if __name__ == "__main__":
    unittest.main()
