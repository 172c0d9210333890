"""Runs Bazel in a workspace that uses the rules, with the TensorFlow that this repository's tests have already installed."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

RUNFILES = pathlib.Path(os.environ["TEST_SRCDIR"])
ROOT = pathlib.Path(os.path.realpath(RUNFILES / os.environ["TEST_WORKSPACE"] / "MODULE.bazel")).parent

UNOPTIMIZED = r"--per_file_copt=runtime/tfaot/kernels/.*\.cc@-O0"
"""Compiles the kernels in a quarter of the time. Other tests are about their code, and none of these about their speed."""

RULE_SETS = os.environ.get("TFAOT_RULE_SETS")
"""A bazelrc that has Bazel use official rule sets, from `//tools/dev:try_rule_sets`."""

STARTUP = (
    "--max_idle_secs=60",
    "--host_jvm_args=-XX:TieredStopAtLevel=1",
    "--digest_function=BLAKE3",
    *([f"--bazelrc={RULE_SETS}"] if RULE_SETS else []),
)
"""Startup options. A server of a few short builds saves 3 s if it optimizes its own code less. SHA-256 would then be slow."""

CACHE = pathlib.Path(os.environ["TEST_TMPDIR"]).parent / "inner.cache"
"""A disk cache for all these tests, below the output base that runs them. Most of their workspaces compile the same C++."""

SHARED = (
    UNOPTIMIZED,
    f"--disk_cache={CACHE}",
    "--experimental_disk_cache_gc_max_age=7d",
    "--experimental_disk_cache_gc_idle_delay=0s",
)
"""Flags of builds that take from each other what isn't their test's subject."""


def tensorflow() -> tuple[str, pathlib.Path]:
    """Returns the canonical name and the folder of the repository that TensorFlow was installed into."""
    (repository,) = (path for path in RUNFILES.iterdir() if path.name.endswith("tfaot_tensorflow"))
    # Where the repository is, not the packages, which workspaces share.
    link = pathlib.Path(os.readlink(repository / "site-packages"))
    return repository.name, pathlib.Path(os.path.realpath(link.parent))


def installed() -> list[str]:
    """Returns flags that give a workspace the installed TensorFlow, with MODULE.bazel and with WORKSPACE."""
    name, folder = tensorflow()
    # With bzlmod, `~` or `+` separates the parts of names, and the root module's own part is empty or `_main`.
    extension = name.removeprefix("_main")
    return [
        f"--override_repository={repository}={folder}"
        for repository in (f"rules_tfaot{extension[0]}{extension}", "tfaot_tensorflow")
    ]


class Bazel:
    """Bazel in one workspace, with an output base of its own."""

    def __init__(self, workspace: str | pathlib.Path, *flags: str) -> None:
        """Takes a folder, which can be relative to `e2e/`, and flags for all builds."""
        self._workspace = ROOT / "e2e" / workspace
        self._base = pathlib.Path(os.environ["TEST_TMPDIR"]) / f"{self._workspace.name}.base"
        self._flags = ["--symlink_prefix=/", "--color=no", "--noshow_progress", *SHARED, *flags]

    def run(self, command: str, *arguments: str) -> tuple[str, str]:
        """Runs a command. Returns its standard output and what Bazel said; if it fails, raises AssertionError with both."""
        done = self._run(command, *arguments)
        if done.returncode != 0:
            raise AssertionError(f"bazel {command} {' '.join(arguments)}\n{done.stdout[-4000:]}{done.stderr[-12000:]}")
        return done.stdout, done.stderr

    def refused(self, command: str, *arguments: str) -> str:
        """Runs a command that must fail. Returns what Bazel said."""
        done = self._run(command, *arguments)
        if done.returncode == 0:
            raise AssertionError(
                f"bazel {command} {' '.join(arguments)} should fail, but it succeeded\n{done.stderr[-4000:]}"
            )
        return done.stderr

    def fetched(self, repository: str) -> bool:
        """Returns whether a repository was fetched, by the end of its canonical name."""
        return any(self._base.glob(f"external/*{repository}"))

    def remove(self) -> None:
        """Stops Bazel, and removes its outputs."""
        subprocess.run([*self._bazel(), "shutdown"], cwd=self._workspace, check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["chmod", "-R", "u+w", self._base], check=False)
        shutil.rmtree(self._base, ignore_errors=True)

    def _run(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._bazel(), command, *self._flags, *arguments],
            cwd=self._workspace,
            capture_output=True,
            check=False,
            text=True,
            timeout=800,
        )

    def _bazel(self) -> list[str]:
        return [str(ROOT / "bazelw"), f"--output_base={self._base}", *STARTUP]
