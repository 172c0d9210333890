"""Builds examples/fc again, with WORKSPACE and no worker, and compares every output with the files of this build.

By default, this build has bzlmod and workers.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import inner

GROUPS, *FILES = sys.argv[1:]
"""Output groups, separated by commas, and their files from the build that this test is part of."""


def build(output_base: pathlib.Path, *flags: str) -> dict[str, bytes]:
    """Builds fc in a separate output base, and returns the contents of `FILES` there, by path."""
    bazel = [str(inner.ROOT / "bazelw"), f"--output_base={output_base}", *inner.STARTUP]
    own = ["--disk_cache=", "--symlink_prefix=/", "--color=no", "--curses=no", f"--output_groups={GROUPS}"]
    try:
        subprocess.run([*bazel, "build", *flags, *own, "//examples/fc:fc_aot"], cwd=inner.ROOT, check=True, timeout=800)
        digests = {}
        for path in FILES:
            (file,) = output_base.glob(f"execroot/*/bazel-out/*/bin/{path}")
            digests[path] = file.read_bytes()
        return digests
    finally:
        subprocess.run([*bazel, "shutdown"], cwd=inner.ROOT, check=False, stdout=subprocess.DEVNULL)


class ReproducibleTest(unittest.TestCase):
    """Nothing in a build can depend on where, when, or how it is set up."""

    def test_another_output_base(self) -> None:
        """Graph, config, manifest, objects, and sources are the same bytes in another folder, the other mode, and no worker."""
        with tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"]) as folder:
            workspace = build(
                pathlib.Path(folder) / "another" / "deeper",
                "--config=workspace",
                "--spawn_strategy=sandboxed",
                f"--override_repository=tfaot_tensorflow={inner.tensorflow()[1]}",
            )
            subprocess.run(["chmod", "-R", "u+w", folder], check=True)
        modules = {path: pathlib.Path(path).read_bytes() for path in FILES}
        self.assertGreaterEqual(len(modules), 10)
        self.assertEqual(digests(modules), digests(workspace))
        for path, data in modules.items():
            for word in (str(inner.ROOT), os.environ.get("HOME", inner.ROOT.as_posix()), "bazel-out", "sandbox"):
                self.assertNotIn(word.encode(), data, f"{path} names {word}")


def digests(files: dict[str, bytes]) -> dict[str, str]:
    """Returns SHA-256 by path."""
    return {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
