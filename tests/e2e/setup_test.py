"""How TensorFlow is installed, in workspaces of their own."""

from __future__ import annotations

import concurrent.futures
import fcntl
import hashlib
import os
import pathlib
import shutil
import time
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


def wheel(folder: pathlib.Path, name: str, version: str) -> str:
    """Writes a wheel with an empty package, and returns its line in a lock file."""
    stem, package = f"{name.replace('-', '_')}-{version}", name.partition("-")[0]
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{package}/__init__.py", "")
        archive.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{stem}.dist-info/RECORD", f"{package}/__init__.py,,\n")
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


def waiting(file: int) -> int:
    """Returns how many processes wait for the lock of an open file."""
    lines = pathlib.Path("/proc/locks").read_text().splitlines()
    return sum(" -> FLOCK " in line and f":{os.fstat(file).st_ino} " in line for line in lines)


class SetupTest(unittest.TestCase):
    """No network: the packages are in a folder, or nowhere."""

    def setUp(self) -> None:
        self.folder = pathlib.Path(os.environ["TEST_TMPDIR"]) / self._testMethodName
        self.cache = self.folder / "cache"
        self.workspace, self.bazel = self.started("workspace")
        self.tiny = wheel(self.folder, "tiny", "1.0")

    def started(self, name: str) -> tuple[pathlib.Path, inner.Bazel]:
        """Returns a new workspace, and its Bazel."""
        workspace = self.folder / name
        workspace.mkdir(parents=True)
        (workspace / "BUILD").write_text("")
        (workspace / ".bazelrc").write_text("common --lockfile_mode=off\n")
        environment = {"PIP_FIND_LINKS": self.folder, "PIP_NO_INDEX": 1, "RULES_TFAOT_CACHE": self.cache}
        bazel = inner.Bazel(workspace, *(f"--repo_env={name}={value}" for name, value in environment.items()))
        self.addCleanup(bazel.remove)
        return workspace, bazel

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

    def test_shared(self) -> None:
        """Protects disks: workspaces share what one of them has installed, and Bazel notices what changes."""
        lock = self.tiny + wheel(self.folder, "tensorflow-cpu", "2.0.0.1")
        # Of Bazel 9. Before, files that a repository rule asks for by label are watched without a word.
        flag = "--incompatible_no_implicit_watch_label"
        both = [(self.workspace, self.bazel), self.started("other")]
        for workspace, _ in both:
            tag = LOCKED.replace(")", ', python_interpreter = "//:python")')
            (workspace / "MODULE.bazel").write_text(MODULE.format(root=inner.ROOT) + tag)
            (workspace / "my.lock").write_text(lock)
            (workspace / "python").write_text(f'#!/bin/sh\nexec {shutil.which("python3")} "$@"\n')
            (workspace / "python").chmod(0o755)

        def installs(bazel: inner.Bazel, *flags: str) -> int:
            """Builds, and returns how often pip installed something, which is one line of the log."""
            said = bazel.run("build", flag, *flags, "@tfaot_tensorflow//:site_packages")[1]
            for noise in ("Successfully installed", "Processing", '"folder"', "unsound"):
                self.assertNotIn(noise, said)
            return said.count("rules_tfaot: installing TensorFlow 2.0.0.1 (304 MB to download, 1.5 GB on disk) ")

        with self.subTest("two at once"):
            (self.cache / "packages").mkdir(parents=True)
            with concurrent.futures.ThreadPoolExecutor() as pool, open(self.cache / "packages/lock", "w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                counts = [pool.submit(installs, bazel) for _, bazel in both]
                end = time.monotonic() + 200
                while waiting(file.fileno()) < 2 and time.monotonic() < end:
                    time.sleep(0.1)
                fcntl.flock(file, fcntl.LOCK_UN)
                self.assertEqual(1, sum(count.result() for count in counts))
                self.assertLess(time.monotonic(), end, "a build didn't wait for the lock")
            (packages,) = self.cache.glob("packages/tensorflow-*/")
        with self.subTest("one is removed"):
            self.bazel.run("clean", "--expunge")
            self.assertTrue((packages / "site-packages/tensorflow/__init__.py").exists())
            self.assertEqual(0, installs(both[1][1]))
        with self.subTest("the folder is removed"):
            shutil.rmtree(packages)
            self.assertEqual(1, installs(both[1][1]))
        with self.subTest("another lock"):
            (self.workspace / "my.lock").write_text(lock + wheel(self.folder, "more", "1.0"))
            self.assertEqual(1, installs(self.bazel))
            self.assertEqual(2, len([*self.cache.glob("packages/tensorflow-*/")]))
        with self.subTest("another Python"):
            (self.workspace / "python").write_text("#!/bin/sh\necho broken >&2; exit 1\n")
            said = self.bazel.refused("build", flag, "@tfaot_tensorflow//:site_packages")
            self.assertIn("python doesn't run: broken. TensorFlow needs", said)
        with self.subTest("not shared"):
            self.assertEqual(1, installs(both[1][1], "--repo_env=TFAOT_SHARE=0"))
            self.assertEqual(2, len([*self.cache.glob("packages/tensorflow-*/")]))


if __name__ == "__main__":
    unittest.main()
