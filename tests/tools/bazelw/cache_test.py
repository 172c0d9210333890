import unittest
from pathlib import Path

from tests.tools.bazelw.scratch import ScratchTest
from tools.bazelw import cache, way
from tools.bazelw.errors import BazelwError


class CacheTest(ScratchTest):
    def test_order_of_the_variables(self) -> None:
        """Protects the documented location of the cache folder."""
        environ = {"HOME": "/h", "XDG_CACHE_HOME": "/x", "RULES_TFAOT_CACHE": "/r"}
        self.assertEqual(cache.usable(environ), Path("/r"))
        del environ["RULES_TFAOT_CACHE"]
        self.assertEqual(cache.usable(environ), Path("/x/rules_tfaot"))
        del environ["XDG_CACHE_HOME"]
        self.assertEqual(cache.usable(environ), Path("/h/.cache/rules_tfaot"))

    def test_folder_under_tmp_is_refused(self) -> None:
        """Protects against builds that fail mysteriously because the sandbox hides /tmp, even if a link leads there."""
        link = self.folder / "link"
        link.symlink_to("/tmp")
        for path in ("/tmp", "/tmp/a/b", str(link / "c")):
            with self.subTest(path), self.assertRaisesRegex(BazelwError, "under /tmp.*set RULES_TFAOT_CACHE"):
                cache.usable({"RULES_TFAOT_CACHE": path})

    def test_no_folder_named(self) -> None:
        """Protects against writing to a place that nobody named."""
        with self.assertRaisesRegex(BazelwError, "set RULES_TFAOT_CACHE"):
            cache.usable({})

    def test_what_is_remembered_is_recalled_until_it_is_removed(self) -> None:
        """Protects later calls from repeating the setup, and from running a Bazel that is gone."""
        program = self.program("bazel", "")
        bazel = way.Bazel(str(program), ("--a",), ("B=c",))
        way.remember(self.folder, "debian", "7.7.1", bazel)
        self.assertEqual(way.recall(self.folder, "debian", "7.7.1"), bazel)
        self.assertIsNone(way.recall(self.folder, "official", "7.7.1"))
        self.assertIsNone(way.recall(self.folder, "debian", "7.8.0"))
        program.unlink()
        self.assertIsNone(way.recall(self.folder, "debian", "7.7.1"))

    def test_moved_folder_is_not_trusted(self) -> None:
        """Protects against programs that contain the folder's old path."""
        way.remember(self.folder / "a", "debian", "7.7.1", way.Bazel(str(self.program("bazel", ""))))
        (self.folder / "a").rename(self.folder / "b")
        self.assertIsNone(way.recall(self.folder / "b", "debian", "7.7.1"))

    def test_damaged_file_counts_as_none(self) -> None:
        """Protects a call from what a full disk or a crash left behind."""
        (self.folder / "x.json").write_text("{")
        self.assertEqual(cache.read_json(self.folder / "x.json"), {})


if __name__ == "__main__":
    unittest.main()
