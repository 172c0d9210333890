import os
import shutil
import subprocess
import unittest
from pathlib import Path

import tools.bazelw.cache
from tests.tools.bazelw.scratch import ScratchTest

PACKAGE = Path(tools.bazelw.cache.__file__).parent
LAUNCHER = PACKAGE.parents[1] / "bazelw"


class LauncherTest(ScratchTest):
    def setUp(self) -> None:
        super().setUp()
        self.root = self.folder / "root"
        shutil.copytree(PACKAGE, self.root / "tools/bazelw", ignore=shutil.ignore_patterns("__pycache__", "BUILD"))
        shutil.copy(LAUNCHER, self.root / "bazelw")
        (self.root / ".bazelversion").write_text("7.7.1\n")
        self.program("bin/bazel", "echo bazel 7.7.1")

    def call(self, program: Path, path: str) -> "subprocess.CompletedProcess[str]":
        environ = {"PATH": path, "HOME": str(self.folder / "home")}
        return subprocess.run(
            [str(program), "version"], env=environ, cwd=self.folder, capture_output=True, text=True, check=False
        )

    def test_through_a_link_from_elsewhere(self) -> None:
        """Protects calls from nested workspaces and through a link in a user's bin folder."""
        link = self.folder / "elsewhere/bazelw"
        link.parent.mkdir()
        link.symlink_to(os.path.relpath(self.root / "bazelw", link.parent))
        for program in (self.root / "bazelw", link):
            done = self.call(program, f"{self.folder}/bin:/usr/bin:/bin")
            self.assertEqual((done.returncode, done.stdout), (0, "bazel 7.7.1\n"), done.stderr)

    def test_without_python(self) -> None:
        """Protects users of a bare machine: the error is useful."""
        tools = self.folder / "tools"
        tools.mkdir()
        for name in ("sh", "readlink"):
            (tools / name).symlink_to(shutil.which(name) or name)
        done = self.call(self.root / "bazelw", str(tools))
        self.assertEqual(done.returncode, 1)
        self.assertIn("install Python 3.10 or newer", done.stderr)


if __name__ == "__main__":
    unittest.main()
