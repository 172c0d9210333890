import os
import signal
import subprocess
import sys
import unittest
from pathlib import Path

from tests.tools.bazelw.scratch import ScratchTest
from tools.bazelw import lock

_CHILD = """
import sys
from pathlib import Path
from tools.bazelw import lock, progress
with lock.held(Path(sys.argv[1]), progress.Progress()):
    print("held", flush=True)
    sys.stdin.readline()
"""


class LockTest(ScratchTest):
    def child(self) -> "subprocess.Popen[str]":
        root = Path(lock.__file__).parents[2]
        process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"},
        )

        def end() -> None:
            process.kill()
            process.communicate()

        self.addCleanup(end)
        return process

    def test_second_process_waits_and_says_so(self) -> None:
        """Protects the cache folder from two processes that set it up at once."""
        first = self.child()
        assert first.stdout and first.stdin
        self.assertEqual(first.stdout.readline(), "held\n")
        second = self.child()
        assert second.stdout and second.stderr and second.stdin
        said = second.stderr.readline()
        self.assertIn(f"process {first.pid}", said)
        self.assertIn("waiting for it", said)
        first.stdin.write("\n")
        first.stdin.flush()
        self.assertEqual(second.stdout.readline(), "held\n")

    def test_killed_holder_leaves_no_lock(self) -> None:
        """Protects against a lock that somebody has to remove manually."""
        first = self.child()
        assert first.stdout
        self.assertEqual(first.stdout.readline(), "held\n")
        first.send_signal(signal.SIGKILL)
        first.wait()
        with lock.held(self.folder, self.progress):
            self.assertEqual(self.heard.getvalue(), "")


if __name__ == "__main__":
    unittest.main()
