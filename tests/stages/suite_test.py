"""The runner of test files that share one TensorFlow."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import tempfile
import unittest
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

from tests.stages import suite

FIRST = """\
import os
import unittest

os.environ["LEFT"] = "1"


class FirstTest(unittest.TestCase):
    def note(self):
        with open("ran", "a") as file:
            file.write(self.id() + "\\n")

    def test_a(self):
        self.note()

    def test_b(self):
        self.note()

    def test_c(self):
        self.note()
"""

SECOND = FIRST.replace("FirstTest", "SecondTest").replace(
    'os.environ["LEFT"] = "1"', 'assert "LEFT" not in os.environ, "the first file left something"'
)


class SuiteTest(unittest.TestCase):
    """Two files with three tests each, which note that they ran."""

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        self.addCleanup(shutil.rmtree, self.folder)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        self.write("first", FIRST)
        self.write("second", SECOND)
        for patch in (mock.patch.object(sys, "path", [str(self.folder), *sys.path]), mock.patch.dict(os.environ)):
            patch.start()
            self.addCleanup(patch.stop)
        for name in ("TESTBRIDGE_TEST_ONLY", "TEST_TOTAL_SHARDS", "TEST_SHARD_INDEX", "TEST_SHARD_STATUS_FILE"):
            os.environ.pop(name, None)

    def write(self, name: str, text: str) -> None:
        """Writes a test file."""
        (self.folder / "folder").mkdir(exist_ok=True)
        (self.folder / f"folder/{name}_test.py").write_text(text)

    def ran(self, environment: Mapping[str, str] | None = None, *, wanted: int = 0) -> list[str]:
        """Runs both files in an environment, to a status. Returns the tests that ran, in order, such as `First.a`."""
        os.environ.update(environment or {})
        notes = self.folder / "ran"
        notes.write_text("")
        self.assertEqual(suite.run_all(["folder/first_test.py", "folder/second_test.py"]), wanted)
        return [line.partition("_test.")[2].replace("Test.test_", ".") for line in notes.read_text().splitlines()]

    ALL = ("First.a", "First.b", "First.c", "Second.a", "Second.b", "Second.c")

    def test_all(self) -> None:
        """Every test of every file runs, and no file sees what another one changed in its process."""
        self.assertEqual(self.ran(), [*self.ALL])
        self.assertNotIn("LEFT", os.environ)

    def test_filter(self) -> None:
        """A developer can run one file, class, or method, and a filter that fits nothing isn't a success."""
        for text, wanted in (
            ("second_test", "Second.a Second.b Second.c"),
            ("folder.first_test", "First.a First.b First.c"),
            ("FirstTest", "First.a First.b First.c"),
            ("FirstTest.test_b", "First.b"),
            ("second_test.SecondTest.test_c", "Second.c"),
            ("test_[ab]", "First.a First.b Second.a Second.b"),
            ("First*.test_a", "First.a"),
        ):
            with self.subTest(text):
                self.assertEqual(self.ran({"TESTBRIDGE_TEST_ONLY": text}), wanted.split())
        for text in ("third_test", "First", "FirstTest.test_d"):
            with self.subTest(text):
                self.assertEqual(self.ran({"TESTBRIDGE_TEST_ONLY": text}, wanted=1), [])

    def test_wide(self) -> None:
        """A test is in one of the two tiers, whether it or its class is marked, and in both without tiers."""
        mark = FIRST.replace("import os", "import os\nfrom tests.stages import harness", 1)
        self.write("first", mark.replace("    def test_b", "    @harness.wide\n    def test_b"))
        self.write(
            "second", mark.replace('["LEFT"]', '["SECOND"]').replace("class First", "@harness.wide\nclass Second")
        )
        wide = [name for name in self.ALL if name == "First.b" or name.startswith("Second")]
        self.assertEqual(self.ran({"TFAOT_WIDE": "1"}), wide)
        self.assertEqual(self.ran({"TFAOT_WIDE": "0"}), [name for name in self.ALL if name not in wide])
        del os.environ["TFAOT_WIDE"]
        self.assertEqual(self.ran(), [*self.ALL])

    def test_shards(self) -> None:
        """Shards together run each test once, also with a filter, and Bazel is told that there are shards."""
        status = self.folder / "status"
        shards = {"TEST_TOTAL_SHARDS": "4", "TEST_SHARD_STATUS_FILE": str(status)}
        runs = [self.ran(shards | {"TEST_SHARD_INDEX": str(index)}) for index in range(4)]
        self.assertEqual(sorted(itertools.chain(*runs)), [*self.ALL])
        self.assertLessEqual({len(tests) for tests in runs}, {1, 2})
        self.assertTrue(status.exists())
        runs = [
            self.ran(shards | {"TEST_SHARD_INDEX": str(index), "TESTBRIDGE_TEST_ONLY": "test_b"}) for index in range(4)
        ]
        self.assertEqual(sorted(itertools.chain(*runs)), ["First.b", "Second.b"])

    def test_failures(self) -> None:
        """A test that fails, and a file that ends, can't be read, or has no test, fails the suite. Other files still run."""
        for text in (
            FIRST.replace("def test_a(self):\n        self.note()", "def test_a(self):\n        self.fail()"),
            FIRST.replace("self.note()", "os.abort()"),
            FIRST.replace("self.note()", "os._exit(5)"),
            "import sys\n\nsys.exit(0)\n",
            "import no_such_module\n",
            "x = 1\n",
        ):
            with self.subTest(text):
                self.write("first", text)
                self.assertEqual(self.ran(wanted=1)[-3:], ["Second.a", "Second.b", "Second.c"])
        self.assertEqual(self.ran({"TESTBRIDGE_TEST_RUNNER_FAIL_FAST": "1"}, wanted=1), [])

    def test_slow(self) -> None:
        """The log of a slow suite names the tests that take the time, and no others."""
        self.write(
            "first",
            FIRST.replace("def test_b(self):", "def test_b(self):\n        time.sleep(1.1)").replace(
                "import unittest", "import time\nimport unittest"
            ),
        )
        log = self.folder / "log"
        kept = os.dup(2)
        self.addCleanup(os.close, kept)
        with log.open("wb") as file:
            os.dup2(file.fileno(), 2)
        try:
            with mock.patch.object(sys, "stderr", os.fdopen(os.dup(2), "w")) as stream:
                self.ran()
                stream.close()
        finally:
            os.dup2(kept, 2)
        lines = [line.lstrip(". ") for line in log.read_text().splitlines() if " s: " in line]
        self.assertEqual([line.split(" s: ")[1] for line in lines], ["folder.first_test.FirstTest.test_b"])
        self.assertGreaterEqual(float(lines[0].split(" s: ")[0]), 1.0)


if __name__ == "__main__":
    unittest.main()
