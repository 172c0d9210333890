"""Builds for explanations: temporary worktrees of a real Git repository, and what is said if Bazel fails.

`//tests/models/variables:rebuild_test` explains builds of a real Bazel.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path
from unittest import mock

from tfaot.core.errors import TfaotError
from tfaot.explain import bazel

WAITS = """\
import sys, time
from pathlib import Path
from tfaot.explain import bazel

with bazel.worktree(Path(sys.argv[1])) as tree:
    tree.show("HEAD")
    print(tree.top, flush=True)
    time.sleep(60)
"""
"""A program that holds a worktree until something stops it."""


class WorktreeTest(unittest.TestCase):
    """A repository with two commits, whose workspace is a folder in it. No test here runs Bazel."""

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))).resolve()
        self.addCleanup(shutil.rmtree, self.folder)
        self.top = self.folder / "repository"
        self.workspace = self.top / "inner"
        self.workspace.mkdir(parents=True)
        self.temporary = self.folder / "temporary"
        self.temporary.mkdir()
        for variable in (
            mock.patch.dict(os.environ, {"BAZEL": "true"}),
            mock.patch.object(tempfile, "tempdir", str(self.temporary)),
        ):
            variable.start()
            self.addCleanup(variable.stop)
        self.git("init", "--quiet")
        self.hashes = [self.commit(text) for text in ("one", "two")]

    def git(self, *arguments: str) -> str:
        """Runs Git in the repository."""
        names = ("-c", "user.name=t", "-c", "user.email=t@example.com")
        done = subprocess.run(["git", *names, *arguments], cwd=self.top, check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout.strip()

    def commit(self, text: str) -> str:
        """Commits a file with a text, and returns the commit's short hash."""
        (self.workspace / "file").write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", f"Write {text}")
        return self.git("log", "-1", "--format=%h")

    def assert_clean(self) -> None:
        """Checks that no worktree and no temporary file is left, and that the repository is as it was."""
        self.assertEqual(len(self.git("worktree", "list").splitlines()), 1)
        self.assertEqual([*self.temporary.iterdir()], [])
        self.assertEqual((self.workspace / "file").read_text(), "two")
        self.assertEqual(self.git("status", "--porcelain"), "")

    def test_commits(self) -> None:
        """Each commit's files are seen, without what the last build left behind, and nothing stays at the end."""
        with bazel.worktree(self.workspace) as tree:
            for text, commit, ref in zip(("one", "two"), self.hashes, ("HEAD~1", "HEAD"), strict=True):
                self.assertEqual(tree.show(ref), f"{commit} (Write {text})")
                self.assertEqual((tree.workspace / "file").read_text(), text)
                self.assertEqual([path.name for path in tree.workspace.iterdir()], ["file"])
                (tree.workspace / "file").write_text("changed")
                (tree.workspace / "left").write_text("")
            output = Path(tree.bazel[1].partition("=")[2])
            output.mkdir()
            (output / "read_only").mkdir(mode=0o500)
        self.assert_clean()

    def test_error(self) -> None:
        """An error leaves nothing behind."""
        with self.assertRaises(ZeroDivisionError), bazel.worktree(self.workspace) as tree:
            tree.show("HEAD")
            raise ZeroDivisionError
        self.assert_clean()

    def test_signal(self) -> None:
        """A program that is interrupted or stopped leaves nothing behind."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with subprocess.Popen(
                [sys.executable, "-c", WAITS, str(self.workspace)],
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path if path),
                    "TMPDIR": str(self.temporary),
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            ) as program:
                assert program.stdout is not None
                tree = Path(program.stdout.readline().strip())
                self.assertEqual((tree / "inner/file").read_text(), "two")
                program.send_signal(number)
                self.assertNotEqual(program.wait(timeout=60), 0)
            self.assert_clean()

    def test_unknown_commit(self) -> None:
        """A commit that isn't there is an error that lists the latest ones."""
        with self.assertRaises(TfaotError) as raised, bazel.worktree(self.workspace) as tree:
            tree.show("--all")
        self.assertEqual(
            str(raised.exception),
            f"'--all' isn't a commit of {self.workspace}\n"
            f"  found: the latest are {', '.join(self.hashes[::-1])}\n"
            "  to do: name a commit, a branch, or a tag",
        )
        self.assert_clean()

    def test_no_repository(self) -> None:
        """A folder that isn't in a repository is an error that shows what Git says."""
        with (
            mock.patch.dict(os.environ, {"GIT_CEILING_DIRECTORIES": str(self.folder)}),
            self.assertRaises(TfaotError) as raised,
            bazel.worktree(self.temporary),
        ):
            pass
        self.assertIn("git rev-parse failed\n\n    fatal: not a git repository", str(raised.exception))
        self.assertIn(
            f"to do: repair what the command says above, which ran in {self.temporary}", str(raised.exception)
        )


class CommandTest(unittest.TestCase):
    """Which Bazel is run, and what is said if it fails."""

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        self.addCleanup(shutil.rmtree, self.folder)

    def script(self, name: str, text: str) -> str:
        """Writes a shell script, and returns its path."""
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    def test_which(self) -> None:
        """The workspace's own bazelw comes first, then $BAZEL, then the PATH."""
        with mock.patch.dict(os.environ, {"PATH": str(self.folder)}):
            os.environ.pop("BAZEL", None)
            with self.assertRaises(TfaotError) as raised:
                bazel.command(self.folder)
            self.assertEqual(
                str(raised.exception),
                f"{self.folder} needs Bazel\n"
                "  found: no bazelw in the workspace, no $BAZEL, and no bazel or bazelisk on PATH\n"
                "  to do: install Bazel, or set BAZEL to its path",
            )
            for name in ("bazelisk", "bazel"):
                path = self.script(name, "")
                self.assertEqual(bazel.command(self.folder), [path])
            os.environ["BAZEL"] = "/my/bazel"
            self.assertEqual(bazel.command(self.folder), ["/my/bazel"])
            own = self.script("bazelw", "")
            self.assertEqual(bazel.command(self.folder), [own])

    def built(self, script: str) -> str:
        """Returns the error for a command that does what a script says."""
        copy = Path(tempfile.mkdtemp(dir=self.folder))
        with self.assertRaises(TfaotError) as raised:
            bazel.built("//a", self.folder, copy, name="//a", bazel=[self.script("fails", script)], flags=())
        return str(raised.exception)

    def test_failures(self) -> None:
        """A target that doesn't build shows the command's last words, and one without outputs says what to name."""
        self.assertEqual(
            self.built("echo 'ERROR: no such package' >&2; exit 1"),
            textwrap.dedent(
                f"""\
                building //a failed

                    ERROR: no such package

                  to do: repair what the command says above, which ran in {self.folder}"""
            ),
        )
        self.assertEqual(
            self.built("test $1 != cquery"),
            f"listing outputs of //a failed\n  to do: repair what the command says above, which ran in {self.folder}",
        )
        self.assertEqual(
            self.built('if [ "$1" = info ]; then echo /; fi'),
            "//a has no output group explain\n  found: nothing\n"
            "  to do: name one tf_aot_library, of a version of rules_tfaot that has this output group",
        )
        with self.assertRaises(TfaotError) as raised:
            bazel.built("//a", self.folder, self.folder, name="//a", bazel=["/no/bazel"], flags=())
        self.assertEqual(
            str(raised.exception),
            "building //a failed: [Errno 2] No such file or directory: '/no/bazel'\n  to do: make sure that /no/bazel can run",
        )

    def test_labels(self) -> None:
        """Labels are told apart from paths."""
        for text in ("//a:b", "@r//a", ":b", "a/b:c"):
            self.assertTrue(bazel.is_label(text), text)
        for text in ("x.model.json", "bazel-bin/a/x.model.json", str(self.folder)):
            self.assertFalse(bazel.is_label(text), text)


if __name__ == "__main__":
    unittest.main()
