"""Builds targets with the caller's Bazel, in the caller's workspace or in one of its commits, and reads the results."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from tfaot.core.errors import TfaotError, listed

if TYPE_CHECKING:
    from tfaot.explain.build import Build

_GROUP = "explain"
_QUIET = ("--ui_event_filters=-info", "--noshow_progress", "--color=no", "--curses=no")


def is_label(text: str) -> bool:
    """Returns whether text names a target, not a file."""
    return text.startswith(("//", "@", ":")) or not (text.endswith(".json") or os.path.exists(text))


def command(workspace: Path) -> list[str]:
    """Returns the Bazel of a workspace: its `bazelw`, $BAZEL, or the one on PATH.

    Raises:
      TfaotError: there is none.
    """
    own = workspace / "bazelw"
    for command in (
        str(own) if os.access(own, os.X_OK) else None,
        os.environ.get("BAZEL"),
        shutil.which("bazel"),
        shutil.which("bazelisk"),
    ):
        if command:
            return [command]
    raise TfaotError(
        f"{workspace} needs Bazel",
        exists="no bazelw in the workspace, no $BAZEL, and no bazel or bazelisk on PATH",
        do="install Bazel, or set BAZEL to its path",
    )


def built(
    target: str, workspace: Path, folder: Path, *, name: str, bazel: Sequence[str], flags: Sequence[str]
) -> Build:
    """Builds a target, and reads a copy of its outputs, which a later build doesn't change.

    Args:
      target: a label, absolute or relative to the workspace's root.
      workspace: where to build it.
      folder: an empty folder for the copy.
      name: what the user calls the build.
      bazel: the command, with startup options.
      flags: flags of `bazel build`.

    Raises:
      TfaotError: the target doesn't build, or isn't a tf_aot_library.
    """
    group = f"--output_groups={_GROUP}"
    _run([*bazel, "build", group, *_QUIET, *flags, "--", target], workspace, f"building {name}")
    listed_ = _run(
        [*bazel, "cquery", "--output=files", group, *_QUIET, *flags, "--", target],
        workspace,
        f"listing outputs of {name}",
    )
    root = Path(_run([*bazel, "info", "execution_root"], workspace, "finding Bazel's outputs").strip())
    for file in listed_.split():
        shutil.copyfile(root / file, folder / Path(file).name)
    manifests = [*folder.glob("*.model.json")]
    if len(manifests) != 1:
        raise TfaotError(
            f"{name} has no output group {_GROUP}",
            exists=listed(sorted(path.name for path in manifests)),
            do="name one tf_aot_library, of a version of rules_tfaot that has this output group",
        )
    # Later, because it imports TensorFlow.
    from tfaot.explain.build import read

    return read(str(manifests[0]), name)


@dataclasses.dataclass(frozen=True)
class Worktree:
    """A temporary worktree of the caller's repository, with its own Bazel server."""

    repository: Path
    """The caller's workspace."""
    top: Path
    workspace: Path
    """The same workspace in the worktree."""
    bazel: tuple[str, ...]
    """The command that runs Bazel in it."""

    def show(self, commit: str) -> str:
        """Checks a commit out, and returns its short hash and title.

        Raises:
          TfaotError: the repository has no such commit.
        """
        try:
            commit_id = _git(
                self.repository, "rev-parse", "--verify", "--quiet", "--end-of-options", commit + "^{commit}"
            )
        except TfaotError:
            raise TfaotError(
                f"{commit!r} isn't a commit of {self.repository}",
                exists="the latest are " + listed(_git(self.repository, "log", "-5", "--format=%h").split()),
                do="name a commit, a branch, or a tag",
            ) from None
        _git(self.top, "checkout", "--quiet", "--detach", "--force", commit_id.strip())
        _git(self.top, "clean", "--quiet", "-ffdx")
        return _git(self.repository, "log", "-1", "--format=%h (%s)", commit_id.strip()).strip()


@contextlib.contextmanager
def worktree(repository: Path) -> Iterator[Worktree]:
    """Makes a temporary worktree, and removes it at the end, also after an error or a signal other than SIGKILL.

    After SIGKILL, a folder stays among the system's temporary files. The next call makes Git forget it once it is gone.

    Args:
      repository: the caller's workspace.

    Raises:
      TfaotError: it isn't in a Git repository, or there is no Bazel.
    """
    repository = repository.resolve()
    top = Path(_git(repository, "rev-parse", "--show-toplevel").strip()).resolve()
    own = command(repository)
    folder = Path(tempfile.mkdtemp(prefix="tfaot_explain."))
    tree, base = folder / "worktree", folder / "output_base"
    # An idle server ends by itself even if nobody stops it.
    bazel = (*own, f"--output_base={base}", "--max_idle_secs=60")
    handlers = {number: signal.signal(number, _stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        _git(top, "worktree", "prune")
        _git(top, "worktree", "add", "--quiet", "--detach", "--no-checkout", str(tree), "HEAD")
        yield Worktree(repository, tree, tree / repository.relative_to(top), bazel)
    finally:
        workspace = tree / repository.relative_to(top)
        if base.exists() and workspace.exists():
            subprocess.run([*bazel, "shutdown"], cwd=workspace, check=False, capture_output=True)
        subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=top, check=False, capture_output=True)
        # Bazel's outputs are read-only.
        subprocess.run(["chmod", "-R", "u+w", str(folder)], check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run(["git", "worktree", "prune"], cwd=top, check=False, capture_output=True)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _stop(number: int, frame: FrameType | None) -> None:
    del frame
    sys.exit(128 + number)


def _git(folder: Path, *arguments: str) -> str:
    return _run(["git", *arguments], folder, f"git {arguments[0]}")


def _run(arguments: Sequence[str], folder: Path, what: str) -> str:
    """Runs a command, and returns its output.

    Raises:
      TfaotError: it failed.
    """
    try:
        done = subprocess.run(arguments, cwd=folder, check=False, capture_output=True, text=True)
    except OSError as error:
        raise TfaotError(f"{what} failed: {error}", do=f"make sure that {arguments[0]} can run") from None
    if done.returncode:
        raise TfaotError(
            f"{what} failed",
            details="\n".join(done.stderr.splitlines()[-20:]),
            do="repair what the command says above, which ran in " + str(folder),
        )
    return done.stdout
