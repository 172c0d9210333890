import os
import unittest
from pathlib import Path

from tests.tools.bazelw.scratch import ScratchTest
from tools.bazelw import prefix
from tools.bazelw.errors import WayFailed


class PrefixTest(ScratchTest):
    def file(self, path: str, text: str = "") -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def test_absolute_links_point_into_the_folder(self) -> None:
        """Protects against mixing in the machine's own libraries. Relative links work as they are."""
        tree, final = self.folder / "tree", Path("/cache/prefix")
        self.file("tree/usr/lib/a", "")
        (tree / "absolute").symlink_to("/usr/lib/a")
        (tree / "relative").symlink_to("usr/lib/a")
        (tree / "folder").symlink_to("/usr/lib")
        for _ in range(2):
            prefix.relink(tree, final)
        self.assertEqual(os.readlink(tree / "absolute"), "/cache/prefix/usr/lib/a")
        self.assertEqual(os.readlink(tree / "folder"), "/cache/prefix/usr/lib")
        self.assertEqual(os.readlink(tree / "relative"), "usr/lib/a")

    def test_classpath(self) -> None:
        """Protects the server's start: jars are in the folder, the omitted one is added, and absent ones are dropped."""
        for name in ("a.jar", "b.jar", "perfmark-api.jar"):
            self.file(f"tree/usr/share/java/{name}")
        text = "/usr/share/java/a.jar\n/usr/share/java/absent.jar\n/usr/share/java/b.jar\n"
        self.assertEqual(
            prefix.classpath(text, self.folder / "tree", Path("/p")),
            "/p/usr/share/java/a.jar\n/p/usr/share/java/b.jar\n/p/usr/share/java/perfmark-api.jar\n",
        )

    def test_bazel_knows_its_version(self) -> None:
        """Protects rules that depend on Bazel's version: they treat an unknown one as the newest."""
        self.file("tree/usr/share/bazel/build-label.txt", "7.7.1\n")
        entry = prefix.label(self.folder / "tree")
        text = (self.folder / "tree" / entry / "build-data.properties").read_text()
        self.assertEqual(text, "build.label=7.7.1\n")

    def test_programs_behind_links_are_adapted_once(self) -> None:
        """Protects Bazel's helpers, which are links in its data folder, and files outside the folder."""
        real = self.file("tree/usr/libexec/bazel/linux-sandbox")
        data = self.folder / "tree/usr/share/bazel"
        data.mkdir(parents=True)
        (data / "linux-sandbox").symlink_to("../../libexec/bazel/linux-sandbox")
        outside = self.file("outside")
        (data / "daemonize").symlink_to(outside)
        programs, shared = prefix.elf_files(self.folder / "tree", Path("usr/lib/jvm/java"))
        self.assertEqual(programs, [real])
        self.assertEqual(shared, [])

    def test_missing_file_is_named(self) -> None:
        """Protects users when a package has changed its layout: the error is useful."""
        with self.assertRaisesRegex(WayFailed, r"don't contain usr/lib/\*/libc\.so\.6"):
            prefix.one(self.folder, "usr/lib/*/libc.so.6")

    def test_failed_command_tells_why(self) -> None:
        """Protects users of an error: it contains the line that matters, not the last line of output."""
        script = self.program("apt-get", "echo 'E: no such suite' >&2; echo 'some advice' >&2; exit 100")
        with self.assertRaisesRegex(WayFailed, "^apt-get failed: E: no such suite$"):
            prefix.run([str(script)])


if __name__ == "__main__":
    unittest.main()
