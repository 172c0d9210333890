"""Runs test files one after another, each in a child of one process that has imported TensorFlow.

`suite.py FILE…`, with paths from the root of the repository; `//tests/stages:suite.bzl` makes a test of it. Nothing that a
file changes in its process is seen by another file. Bazel's flags for tests work:

- `--test_filter=TEXT` selects tests by a part of `FILE.CLASS.METHOD`, such as `names_test` or `NamesTest.test_un*`.
- Shards (`shard_count`) deal tests out, one by one.
- `--test_runner_fail_fast` stops at the first failure.

With `TFAOT_WIDE=0` in the environment, it leaves out tests that `harness.wide` marks. With `TFAOT_WIDE=1`, it runs no others.
"""

from __future__ import annotations

import fnmatch
import gc
import importlib
import os
import sys
import tempfile
import time
import traceback
import unittest
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.stages import harness

PASSED, FAILED, NONE = "passed", "failed", "has no such test"
"""What a child says about its file. A child that ends before it says something has failed."""


def tests_of(suite: Iterable[unittest.TestCase | unittest.TestSuite]) -> Iterator[unittest.TestCase]:
    """Yields the tests in a suite, in order."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from tests_of(test)
        else:
            yield test


def matches(name: str, wanted: str) -> bool:
    """Returns whether consecutive parts of a test's full name match a filter, which can have `*` in each part."""
    parts, patterns = name.split("."), wanted.split(".")
    return any(
        all(map(fnmatch.fnmatchcase, parts[start:], patterns)) for start in range(len(parts) - len(patterns) + 1)
    )


class _Result(unittest.TextTestResult):
    """Notes how long tests take, so that the log of a slow suite says where to look."""

    SLOW = 1.0
    """Seconds from which a test is worth a line."""

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802 (unittest's name)
        self._start = time.monotonic()
        super().startTest(test)

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802 (unittest's name)
        super().stopTest(test)
        took = time.monotonic() - self._start
        if took >= self.SLOW:
            self.stream.writeln(f" {took:.1f} s: {test.id()}")


def _wanted() -> str:
    """Returns the filter."""
    return os.environ.get("TESTBRIDGE_TEST_ONLY", "*")


def _in_tier(test: unittest.TestCase) -> bool:
    """Returns whether a test is in the tiers that the environment asks for: all if it names none."""
    wide = hasattr(test, "wide") or hasattr(getattr(test, test.id().rpartition(".")[2], None), "wide")
    return os.environ.get("TFAOT_WIDE", str(int(wide))) == str(int(wide))


def _fail_fast() -> bool:
    """Returns whether the first failure ends the run."""
    return os.environ.get("TESTBRIDGE_TEST_RUNNER_FAIL_FAST") == "1"


def run(file: str, number: int) -> str:
    """Runs the tests of a file that are asked for, and returns how it went.

    Args:
      file: the path from the root of the repository.
      number: where the file is in the list, so that short files don't all start with the first shard.
    """
    module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    tests = list(tests_of(unittest.defaultTestLoader.loadTestsFromModule(module)))
    if not tests:
        print(f"error: {file} has no tests", file=sys.stderr)
        return FAILED
    chosen = [test for test in tests if _in_tier(test) and matches(test.id(), _wanted())]
    if not chosen:
        return NONE
    shards = int(os.environ.get("TEST_TOTAL_SHARDS", "1"))
    shard = int(os.environ.get("TEST_SHARD_INDEX", "0"))
    mine = [test for index, test in enumerate(chosen, number) if index % shards == shard]
    print(f"\n{file}: {len(mine)} of {len(tests)} tests", file=sys.stderr, flush=True)
    result = unittest.TextTestRunner(failfast=_fail_fast(), resultclass=_Result).run(unittest.TestSuite(mine))  # type: ignore[arg-type]
    return PASSED if result.wasSuccessful() else FAILED


def in_child(file: str, number: int) -> str:
    """Calls `run` in a child process."""
    with tempfile.TemporaryFile() as answer:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            try:
                answer.write(run(file, number).encode())
                answer.flush()
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)  # skips TensorFlow's destructors
        _, status = os.waitpid(pid, 0)
        answer.seek(0)
        return answer.read().decode() or f"ended early, with status {os.waitstatus_to_exitcode(status)}"


def run_all(files: Sequence[str]) -> int:
    """Runs files, each in a child, and returns the exit status of the whole."""
    if status_file := os.environ.get("TEST_SHARD_STATUS_FILE"):
        Path(status_file).touch()  # tells Bazel that this program knows about shards
    ended: dict[str, str] = {}
    for number, file in enumerate(files):
        ended[file] = in_child(file, number)
        if ended[file] not in (PASSED, NONE) and _fail_fast():
            break
    print("\n" + "\n".join(f"{file}: {how}" for file, how in ended.items()), file=sys.stderr)
    if {*ended.values()} == {NONE}:
        print(f"error: no test matches the filter {_wanted()!r}", file=sys.stderr)
        return 1
    return 0 if {*ended.values()} <= {PASSED, NONE} else 1


def main() -> int:
    """Imports what tests share, and runs the files that the command names."""
    harness.warm()
    gc.collect()
    gc.freeze()  # a collection in a child would copy what it only looks at
    return run_all(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
