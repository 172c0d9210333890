"""`//tools:explain -- --commits` in a repository of a user, with Git and Bazel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

import inner


class CommitsTest(unittest.TestCase):
    def test_commits(self) -> None:
        """Protects the command for reviews: it builds a target at two commits, and names the line that made the difference."""
        user = Path(os.environ["TEST_TMPDIR"]) / "user"
        shutil.copytree(inner.ROOT / "e2e/smoke", user, ignore=shutil.ignore_patterns("bazel-*"))
        module = user / "MODULE.bazel"
        module.write_text(module.read_text(encoding="utf-8").replace('"../.."', f'"{inner.ROOT}"'), encoding="utf-8")
        with open(user / ".bazelrc", "a", encoding="utf-8") as file:
            file.writelines(f"startup {option}\n" for option in inner.STARTUP)
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com"]
        subprocess.run([*git, "init", "--quiet"], cwd=user, check=True)
        for old, new, title in (("", "", "Score"), ("relu(", "tanh(", "Squash")):
            model = user / "scorer.py"
            model.write_text(model.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
            subprocess.run([*git, "add", "--all"], cwd=user, check=True)
            subprocess.run([*git, "commit", "--quiet", "--message", title], cwd=user, check=True)
        done = subprocess.run(
            [
                sys.executable,
                str(inner.ROOT / "tools/explain.py"),
                *("--commits", "HEAD~1", "HEAD", "//:scorer_aot", "--", *inner.installed(), *inner.SHARED),
            ],
            cwd=user,
            env={
                **os.environ,
                "BAZEL": str(inner.ROOT / "bazelw"),
                "BUILD_WORKSPACE_DIRECTORY": str(user),
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
            check=False,
            capture_output=True,
            text=True,
        )
        self.assertEqual(0, done.returncode, done.stderr[-4000:])
        for word in ("(Score)", "(Squash)", "Relu", "Tanh", "scorer.py:11"):
            self.assertIn(word, done.stdout)


if __name__ == "__main__":
    unittest.main()
