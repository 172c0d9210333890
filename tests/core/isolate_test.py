"""Children that hang, and parents that must not fork."""

import contextlib
import io
import os
import subprocess
import tempfile
import threading
import time
import unittest

from tfaot.core import isolate
from tfaot.core.errors import TfaotError

LIMIT = 0.3


def _runs(path: str) -> int:
    """Returns how often children have called this with the same path."""
    with open(path, "ab") as file:
        file.write(b"x")
    return os.path.getsize(path)


def _burn(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


class StandsStillTest(unittest.TestCase):
    """A child that waits forever must not keep a build waiting."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.count = os.path.join(folder.name, "count")

    def stuck(self, function: object) -> str:
        """Returns the error for a child that hangs, after checking that it was tried twice."""
        assert callable(function)
        with contextlib.redirect_stderr(io.StringIO()) as warned, self.assertRaises(TfaotError) as raised:
            isolate.run_isolated(function, what="waiting", idle_seconds=LIMIT)
        self.assertEqual(os.path.getsize(self.count), 2)
        self.assertIn("warning: waiting: used no CPU time for 0.3 s; trying again\nprocess ", warned.getvalue())
        return str(raised.exception)

    def test_a_deadlock(self) -> None:
        """A child that waits for a lock is ended twice, and the error names the work and shows the stack."""

        def deadlock() -> None:
            _runs(self.count)
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()

        text = self.stuck(deadlock)
        self.assertIn("waiting: the process hung twice: it used no CPU time for 0.3 s\n", text)
        self.assertRegex(text, r'isolate_test\.py", line \d+ in deadlock\n')
        self.assertIn("  to do: if the stack above ends in your code, don't wait there; otherwise, report", text)

    def test_a_child_of_the_child(self) -> None:
        """The outermost parent watches the whole tree: both stacks appear, and the grandchild is gone afterwards."""

        def sleep() -> None:
            _runs(self.count)
            with open(self.count + ".pid", "w") as file:
                file.write(str(os.getpid()))
            time.sleep(1000)

        def nested() -> None:
            isolate.run_isolated(sleep, what="sleeping", idle_seconds=1000)

        text = self.stuck(nested)
        self.assertRegex(text, r"line \d+ in nested\n")
        self.assertRegex(text, r"line \d+ in sleep\n")
        with open(self.count + ".pid") as file:
            pid = int(file.read())
        for _ in range(100):  # it no longer has a parent that would wait for it
            if not os.path.exists(f"/proc/{pid}") or isolate._stat(f"/proc/{pid}/stat")[:1] == ["Z"]:
                break
            time.sleep(0.05)
        else:
            self.fail("the child of the child lives on")

    def test_only_once(self) -> None:
        """A child that hangs once is tried again: the result is the second child's, and the first one's stack is a warning."""

        def once() -> str:
            if _runs(self.count) == 1:
                time.sleep(1000)
            return "done"

        with contextlib.redirect_stderr(io.StringIO()) as warned:
            self.assertEqual(isolate.run_isolated(once, what="waiting", idle_seconds=LIMIT), "done")
        self.assertRegex(warned.getvalue(), r"line \d+ in once\n")

    def test_whoever_works_is_left_alone(self) -> None:
        """A child can exceed the limit with its own work, a child's, or that of a program that it started."""

        def child() -> None:
            isolate.run_isolated(lambda: _burn(3 * LIMIT), what="burning")

        def program() -> None:
            subprocess.run(["timeout", str(3 * LIMIT), "sh", "-c", "while :; do :; done"], check=False)

        for function in (lambda: _burn(3 * LIMIT), child, program):
            isolate.run_isolated(function, what="working", idle_seconds=LIMIT)


class ThreadsTest(unittest.TestCase):
    """A child inherits the locks that its parent's threads hold, but not the threads that would release them."""

    def test_refused(self) -> None:
        """Forking while another thread runs is always an error, rather than an occasional hang."""
        stop = threading.Event()
        thread = threading.Thread(target=stop.wait)
        thread.start()
        try:
            with self.assertRaisesRegex(RuntimeError, r"^working: this process forks while it runs other threads \("):
                isolate.run_isolated(lambda: None, what="working")
        finally:
            stop.set()
            thread.join()
        isolate.run_isolated(lambda: None, what="working")


class LastWordsTest(unittest.TestCase):
    """What an error quotes of a child that died."""

    def test_the_line_that_names_the_fault(self) -> None:
        """Protects the cause, whatever surrounds it: stacks of C++ and of Python, and all that is printed before and after."""
        frames = [f"    @     0x7f5ef4acd5{number:02} absl::LogMessage::Flush()" for number in range(30)]
        stack = ["Fatal Python error: Aborted", "", "Current thread (most recent call first):", *['  File "x.py"'] * 60]
        for fault in (
            "F0000 00:00:1795640219.4 15980 literal.cc:1297] Check failed: dynamic_size >= 0 (-1 vs. 0)",
            "LLVM ERROR: out of memory",
            "  what():  std::bad_alloc",
            "program: graph.cc:3: void f(): Assertion `ok' failed.",
            "free(): invalid pointer",
            "*** stack smashing detected ***: terminated",
        ):
            for after in (frames + stack, ["noise"] * 99, stack, ["noise"] * 40 + stack + ["noise"] * 9):
                with self.subTest(fault, after=after[0]):
                    words = isolate.last_words("\n".join(["before"] * 50 + [fault] + after))
                    self.assertEqual(words.count(fault), 1)
                    self.assertLessEqual(len(words), 40)
                    self.assertFalse([line for line in words if "absl" in line])


if __name__ == "__main__":
    unittest.main()
