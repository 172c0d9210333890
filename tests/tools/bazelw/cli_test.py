import os
import shutil
import signal
import subprocess
import sys
import unittest
from pathlib import Path

import tools.bazelw.cache
from tests.tools.bazelw.scratch import ScratchTest

PACKAGE = Path(tools.bazelw.cache.__file__).parent


class CliTest(ScratchTest):
    """Runs bazelw as a separate process, from a copy, with a script as the Bazel on PATH."""

    def setUp(self) -> None:
        super().setUp()
        self.root = self.folder / "root"
        shutil.copytree(PACKAGE, self.root / "tools/bazelw", ignore=shutil.ignore_patterns("__pycache__", "BUILD"))
        (self.root / ".bazelversion").write_text("7.7.1\n")
        self.environ = {"PATH": f"{self.folder}/bin:/usr/bin:/bin", "HOME": str(self.folder / "home")}
        self.cache = self.folder / "home/.cache/rules_tfaot"

    def start(self, *arguments: str, **environ: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(self.root / "tools/bazelw/__main__.py"), *arguments],
            env={**self.environ, **environ},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def call(self, *arguments: str, **environ: str) -> "tuple[int, str, str]":
        process = self.start(*arguments, **environ)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def bazel(self, script: str) -> None:
        self.program("bin/bazel", f'case "$1" in --version) echo bazel 7.7.1; exit;; esac\n{script}')

    def test_arguments_folder_and_exit_code(self) -> None:
        """Protects using bazelw like Bazel: same arguments, directory, and exit code, all in one folder."""
        self.bazel('pwd; for each; do echo "<$each>"; done; exit 37')
        code, out, _ = self.call("build", "//a b:c")
        self.assertEqual(code, 37)
        self.assertEqual(
            out.splitlines(), [str(self.folder), f"<--output_user_root={self.cache}/bazel>", "<build>", "<//a b:c>"]
        )

    def test_second_call_is_quiet(self) -> None:
        """Protects scripts that read Bazel's output."""
        self.bazel("")
        self.call("info")
        self.assertEqual(self.call("info"), (0, "", ""))

    def test_signals_reach_bazel(self) -> None:
        """Protects Ctrl-C and time limits: the process is Bazel itself, with signals in their initial state."""
        self.bazel("echo ready; exec sleep 60")
        process = self.start("build")
        assert process.stdout
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, -signal.SIGTERM)

    def test_nothing_is_written_beside_the_code(self) -> None:
        """Protects the repository from byte code and other generated files."""
        self.bazel("")
        before = sorted(self.root.rglob("*"))
        self.call("info")
        self.assertEqual(sorted(self.root.rglob("*")), before)
        self.assertTrue((self.cache / "pycache").is_dir())

    def test_cache_under_tmp(self) -> None:
        """Protects against builds that fail mysteriously: one sentence, a way out, no traceback, nothing written."""
        self.bazel("")
        refused = Path(f"/tmp/bazelw_test_refused.{os.getpid()}")
        code, out, err = self.call("build", RULES_TFAOT_CACHE=str(refused))
        self.assertEqual((code, out), (1, ""))
        self.assertRegex(err, f"^bazelw: the cache folder {refused} is under /tmp.*set RULES_TFAOT_CACHE.*\n$")
        self.assertFalse(refused.exists())

    def test_cache_that_cannot_be_written(self) -> None:
        """Protects users with a full disk or another user's folder: no traceback, but a way out."""
        self.bazel("")
        file = self.folder / "file"
        file.touch()
        code, _, err = self.call("build", RULES_TFAOT_CACHE=str(file / "cache"))
        self.assertEqual(code, 1)
        self.assertRegex(err.splitlines()[-1], "Not a directory.*set RULES_TFAOT_CACHE to another folder")

    def test_nothing_to_be_had(self) -> None:
        """Protects users without Bazel and network: what was tried, and what to do."""
        self.program("bin/bazel", "echo bazel 6.0.0")
        code, _, err = self.call("build", BAZELW_WAYS="path")
        self.assertEqual(code, 1)
        last = err.splitlines()[-1]
        self.assertIn("no Bazel 7.7.1: no Bazel on PATH fits 7.7.1: ", last)
        self.assertIn("bin/bazel (bazel 6.0.0)", last)
        self.assertIn("Put a Bazel 7.7.1 or Bazelisk on PATH, or connect", last)

    def test_unknown_way(self) -> None:
        """Protects against a misspelled variable that would silently skip a way."""
        code, _, err = self.call("build", BAZELW_WAYS="path,offical")
        self.assertEqual(code, 1)
        self.assertIn("BAZELW_WAYS names 'offical'; it takes a list of path, official, debian", err)

    def test_script_on_path_that_calls_bazelw(self) -> None:
        """Protects against an endless chain."""
        main = self.root / "tools/bazelw/__main__.py"
        self.program("bin/bazel", f'exec {sys.executable} -I -S {main} "$@"')
        code, _, err = self.call("build", BAZELW_WAYS="path")
        self.assertEqual(code, 1)
        self.assertIn("bin/bazel (it doesn't run)", err)

    def test_interrupted_set_up(self) -> None:
        """Protects an interrupted setup: it ends quietly, and no half-made Bazel counts as ready."""
        self.program("bin/apt-get", "echo up >&2; kill -INT $PPID; exec sleep 60")
        for tool in ("apt-cache", "apt-config", "dpkg-deb"):
            self.program(f"bin/{tool}", "")
        code, _, err = self.call("build", BAZELW_WAYS="debian")
        self.assertEqual(code, 130)
        self.assertIn("interrupted; the next call continues from here", err)
        self.assertNotIn("Traceback", err)
        self.assertFalse((self.cache / "ready").exists())


if __name__ == "__main__":
    unittest.main()
