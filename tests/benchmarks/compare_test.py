"""The main that compares peers, as far as it refuses what it is asked."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

from benchmarks import compare


class CompareTest(unittest.TestCase):
    """No test builds or measures. All of them see two cores."""

    def refused(self, *words: str) -> str:
        """Returns the last line of what the main says to these words."""
        said = io.StringIO()
        with (
            mock.patch.object(sys, "argv", ["compare.py", *words]),
            mock.patch("os.sched_getaffinity", return_value={0, 1}),
            mock.patch("subprocess.run", side_effect=AssertionError("it started something")),
            mock.patch("benchmarks.compare.machine", return_value={"cpu": "A CPU"}),
            contextlib.redirect_stderr(said),
            self.assertRaises(SystemExit) as raised,
        ):
            compare.main()
        self.assertEqual(raised.exception.code, 2)
        return said.getvalue().splitlines()[-1].partition("error: ")[2]

    def test_more_threads_than_cores(self) -> None:
        """Protects figures from two threads on one core."""
        self.assertEqual(self.refused("--threads=3"), "--threads: 3 threads need 3 cores, and this process can use 2")

    def test_what_is_for_one_thread(self) -> None:
        """Protects the user from flags that would be ignored."""
        self.assertEqual(self.refused("--threads=2", "--cpu=0"), "--cpu is for one thread")
        self.assertRegex(self.refused("--threads=0", "--converge=10"), "^--converge is for one thread: ")

    def test_add(self) -> None:
        """Protects pages: results on different numbers of threads never end up in the same run."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "results.json")
            for before, asked, said in (
                (1, 2, "1 thread, and these would be of 2"),
                (2, 1, "2 threads, and these would be of 1"),
            ):
                file.write_text(json.dumps({"threads": before}), encoding="utf-8")
                self.assertEqual(
                    self.refused(f"--threads={asked}", "--add", f"--out={file}"), f"--add: {file} has results of {said}"
                )


if __name__ == "__main__":
    unittest.main()
