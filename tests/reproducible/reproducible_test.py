"""Builds examples/fc twice, with bzlmod and workers and with WORKSPACE and none, and compares every output."""

from __future__ import annotations

import hashlib
import os
import pathlib
import subprocess
import tempfile
import unittest

GROUPS = (
    "graph",
    "config",
    "manifest",
    "object",
    "header",
    "sources",
    "variables",
    "hlo",
    "optimized_hlo",
    "stablehlo",
    "hlo_graph",
    "goldens",
)

RUNFILES = pathlib.Path(os.environ["TEST_SRCDIR"])
WORKSPACE = pathlib.Path(os.path.realpath(RUNFILES / os.environ["TEST_WORKSPACE"] / "MODULE.bazel")).parent


def wheel() -> tuple[str, pathlib.Path]:
    """Returns the repository that the wheel was unpacked in, by canonical name. Installing it twice more would test pip."""
    (repository,) = (path for path in RUNFILES.iterdir() if path.name.endswith("tfaot_tensorflow"))
    return repository.name, pathlib.Path(os.path.realpath(repository / "site-packages")).parent


def build(output_base: pathlib.Path, *mode: str) -> dict[str, bytes]:
    """Builds fc in a separate output base, and returns its outputs by path."""
    bazel = [str(WORKSPACE / "bazelw"), f"--output_base={output_base}", "--max_idle_secs=5"]
    flags = [*mode, "--symlink_prefix=/", "--color=no", "--curses=no", "//examples/fc:fc_aot"]
    try:
        subprocess.run(
            [*bazel, "build", f"--output_groups={','.join(GROUPS)}", *flags], cwd=WORKSPACE, check=True, timeout=800
        )
        shown = subprocess.run(
            [*bazel, "cquery", "--output=files", f"--output_groups={','.join(GROUPS)}", *flags],
            cwd=WORKSPACE,
            check=True,
            timeout=800,
            stdout=subprocess.PIPE,
            text=True,
        )
        execroot = next((output_base / "execroot").iterdir())
        return {path: (execroot / path).read_bytes() for path in shown.stdout.split()}
    finally:
        subprocess.run([*bazel, "shutdown"], cwd=WORKSPACE, check=False, stdout=subprocess.DEVNULL)


class ReproducibleTest(unittest.TestCase):
    """Nothing in a build can depend on where, when, or how it is set up."""

    def test_two_output_bases(self) -> None:
        """Graph, config, manifest, objects, and sources are the same bytes in another folder, the other mode, and no worker."""
        with tempfile.TemporaryDirectory(dir=os.environ["TEST_TMPDIR"]) as folder:
            base = pathlib.Path(folder)
            name, repository = wheel()
            modules = build(base / "one", f"--override_repository={name}={repository}")
            workspace = build(
                base / "another" / "deeper",
                "--config=workspace",
                "--spawn_strategy=sandboxed",
                f"--override_repository=tfaot_tensorflow={repository}",
            )
            subprocess.run(["chmod", "-R", "u+w", folder], check=True)
        self.assertGreaterEqual(len(modules), 10)
        self.assertEqual(digests(modules), digests(workspace))
        for path, data in modules.items():
            for word in (str(WORKSPACE), os.environ.get("HOME", WORKSPACE.as_posix()), "bazel-out", "sandbox"):
                self.assertNotIn(word.encode(), data, f"{path} names {word}")


def digests(files: dict[str, bytes]) -> dict[str, str]:
    """Returns SHA-256 by path."""
    return {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}


if __name__ == "__main__":
    unittest.main()
