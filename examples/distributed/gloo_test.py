"""Trains with processes of Gloo. The argument is the program to start."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import unittest

STEPS = 8
SECONDS = 60


class GlooTest(unittest.TestCase):
    """Two processes on this machine, which find each other through a folder."""

    program = ""

    def run_program(self, *arguments: object) -> list[subprocess.CompletedProcess[str]]:
        """Runs both processes. Returns what became of each."""
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
            processes = [
                subprocess.Popen(
                    [self.program, str(rank), "2", folder, str(STEPS), *map(str, arguments)],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                for rank in range(2)
            ]
            texts = [process.communicate(timeout=SECONDS) for process in processes]
        return [
            subprocess.CompletedProcess(process.args, process.returncode, *both)
            for process, both in zip(processes, texts, strict=True)
        ]

    def test_loss(self) -> None:
        """The loss over both processes' rows falls, and a second training gives the same bits."""
        first, second = self.run_program(), self.run_program()
        self.assertEqual([done.returncode for done in first], [0, 0], first)
        losses = [float(line.split()[1]) for line in first[0].stdout.splitlines()]
        self.assertEqual(len(losses), STEPS)
        self.assertLess(losses[-1], losses[0] - 0.1)
        self.assertEqual(first[0].stdout, second[0].stdout)

    def test_canceled(self) -> None:
        """If a run of one process is canceled, that of the other one fails, and soon."""
        begin = time.monotonic()
        other, canceled = self.run_program(3)
        self.assertLess(time.monotonic() - begin, SECONDS / 2)
        self.assertEqual((other.returncode, canceled.returncode), (1, 1))
        self.assertIn("hooks ended the run", canceled.stderr)
        self.assertIn("train(): ", other.stderr)
        self.assertEqual(len(other.stdout.splitlines()), 3)


if __name__ == "__main__":
    GlooTest.program = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1])
