import os
import unittest
from pathlib import Path

from tests.tools.bazelw.scratch import ScratchTest
from tools.bazelw import find
from tools.bazelw.errors import WayFailed
from tools.bazelw.way import Bazel


class FindTest(ScratchTest):
    def find(self, *folders: str, **environ: str) -> Bazel:
        path = os.pathsep.join([*(str(self.folder / name) for name in folders), "/usr/bin", "/bin"])
        return find.find(
            self.folder / "cache", {"PATH": path, **environ}, self.folder / "bazelw", "7.7.1", self.progress
        )

    def test_first_that_fits_wins(self) -> None:
        """Protects the user's order of PATH, in which a Bazel that doesn't fit is only skipped."""
        self.program("a/bazel", "echo bazel 6.5.0")
        self.program("b/bazelisk", "echo bazel 7.7.1")
        self.program("c/bazel", "echo bazel 7.7.0")
        self.assertEqual(self.find("a", "b", "c").program, str(self.folder / "b/bazelisk"))
        self.assertEqual(self.find("a", "c", "b").program, str(self.folder / "c/bazel"))

    def test_says_what_was_found_instead(self) -> None:
        """Protects users from guessing why the Bazel on PATH isn't used."""
        self.program("a/bazel", "echo bazel no_version")
        with self.assertRaisesRegex(WayFailed, r"no Bazel on PATH fits 7\.7\.1: .*a/bazel \(bazel no_version\)"):
            self.find("a")

    def test_never_itself(self) -> None:
        """Protects against an endless chain if bazelw is on PATH under Bazel's name, as itself or as a link."""
        self.program("bazelw", "echo bazel 7.7.1")
        (self.folder / "a").mkdir()
        (self.folder / "a/bazel").symlink_to("../bazelw")
        with self.assertRaises(WayFailed):
            self.find("a")

    def test_never_a_script_that_calls_it(self) -> None:
        """Protects against the same chain through a script, which can detect that only its version is requested."""
        self.program("a/bazel", 'test -n "$BAZELW_PROBE" && exit 1; echo bazel 7.7.1')
        with self.assertRaises(WayFailed):
            self.find("a")

    def test_bazelisk_without_network_is_passed_over(self) -> None:
        """Protects machines with a Bazelisk whose download host is blocked: it is asked once a day."""
        self.program("a/bazelisk", f"echo asked >> {self.folder}/log; echo could not download >&2; exit 1")
        for _ in range(2):
            with self.assertRaisesRegex(WayFailed, r"bazelisk \(it doesn't run\)"):
                self.find("a")
        self.assertEqual((self.folder / "log").read_text(), "asked\n")

    def test_answer_is_kept_until_the_program_changes(self) -> None:
        """Protects each call from the cost of starting Bazel twice, and from a stale answer after an upgrade."""
        self.program("a/bazel", f"echo asked >> {self.folder}/log; echo bazel 7.7.1")
        self.find("a")
        self.find("a")
        self.assertEqual((self.folder / "log").read_text(), "asked\n")
        self.program("a/bazel", "echo bazel 8.0.0")
        with self.assertRaises(WayFailed):
            self.find("a")

    def test_bazelisk_is_told_the_version(self) -> None:
        """Protects workspaces without a .bazelversion from Bazelisk's default, the newest Bazel."""
        self.program("a/bazelisk", 'echo "bazel $USE_BAZEL_VERSION"')
        bazel = self.find("a")
        self.assertIn("USE_BAZEL_VERSION=7.7.1", bazel.environ)
        self.assertIn(f"BAZELISK_HOME={self.folder}/cache/bazelisk", bazel.environ)
        with self.assertRaises(WayFailed):
            self.program("a/bazelisk", 'echo "bazel $USE_BAZEL_VERSION" # changed')
            self.find("a", USE_BAZEL_VERSION="9.0.0")

    def test_relative_entries_are_passed_over(self) -> None:
        """Protects against a program named bazel in the current directory."""
        self.assertEqual(list(find.programs(f".{os.pathsep}{os.pathsep}a", Path("/bazelw"))), [])


if __name__ == "__main__":
    unittest.main()
