"""What the installation of TensorFlow refuses, in a workspace of its own."""

from __future__ import annotations

import hashlib
import os
import pathlib
import unittest
import zipfile

import inner

MODULE = """\
bazel_dep(name = "rules_tfaot", version = "0.1.0")
local_path_override(module_name = "rules_tfaot", path = "{root}")
tfaot = use_extension("@rules_tfaot//rules:extensions.bzl", "tfaot")
use_repo(tfaot, "tfaot_tensorflow")
"""
LOCKED = 'tfaot.tensorflow(requirements_lock = "//:my.lock")\n'


def wheel(folder: pathlib.Path) -> str:
    """Writes a wheel with an empty module, and returns its line in a lock file."""
    path = folder / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny.py", "")
        archive.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny-1.0.dist-info/RECORD", "tiny.py,,\n")
    return f"tiny==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


class SetupTest(unittest.TestCase):
    """One server for all workspaces."""

    def setUp(self) -> None:
        self.workspace = pathlib.Path(os.environ["TEST_TMPDIR"]) / "workspace"
        self.workspace.mkdir()
        (self.workspace / "BUILD").write_text("")
        (self.workspace / ".bazelrc").write_text("common --lockfile_mode=off\n")
        self.tiny = wheel(self.workspace)
        # No network: the packages are here, or nowhere.
        self.bazel = inner.Bazel(
            self.workspace, "--repo_env=PIP_NO_INDEX=1", f"--repo_env=PIP_FIND_LINKS={self.workspace}"
        )
        self.addCleanup(self.bazel.remove)

    def refused(self, module: str, lock: str = "") -> str:
        """Returns what Bazel says about a MODULE.bazel with these lines and this lock file."""
        (self.workspace / "MODULE.bazel").write_text(MODULE.format(root=inner.ROOT) + module)
        (self.workspace / "my.lock").write_text(lock)
        said = self.bazel.refused("build", "--nobuild", "@tfaot_tensorflow//:packages")
        self.assertEqual(said.count("Error in fail: "), 1, said)
        return said.partition("Error in fail: ")[2]

    def test_refused(self) -> None:
        """Protects users who choose packages of their own: each mistake has an error that names it, before a model is built."""
        with self.subTest("two tags"):
            self.assertIn(
                "tfaot.tensorflow() is declared 2 times in the root module: the whole build uses one TensorFlow, so keep only one",
                self.refused("tfaot.tensorflow()\n" * 2),
            )
        with self.subTest("no TensorFlow in the lock"):
            self.assertRegex(
                self.refused(LOCKED, self.tiny),
                r"//:my\.lock doesn't name tensorflow-cpu==VERSION: start from tools/python/requirements\.in",
            )
        with self.subTest("a version that doesn't exist"):
            said = self.refused(LOCKED, f"tensorflow-cpu==2.0.0.1 --hash=sha256:{'0' * 64}\n")
            self.assertRegex(said, r"pip of \S+ couldn't install \S*//:my\.lock:\n(.|\n)*tensorflow-cpu==2\.0\.0\.1")
            self.assertIn("\npip.conf or PIP_INDEX_URL sets the index that pip uses.", said)
        with self.subTest("a lock for another Python"):
            said = self.refused(
                LOCKED, f'{self.tiny}tensorflow-cpu==2.21.0 ; python_version < "3" --hash=sha256:{"0" * 64}\n'
            )
            self.assertRegex(said, r"couldn't byte-compile TensorFlow \S+ with \S+:")


if __name__ == "__main__":
    unittest.main()
