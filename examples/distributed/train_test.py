"""Trains with processes of MPI. The arguments are MPI's program that starts processes, and programs to start."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

STEPS = 12
LAST = 8
SECONDS = 100
"""How long a run may take, also one whose process is killed."""


class TrainTest(unittest.TestCase):
    """Programs of two and four processes on this machine."""

    mpiexec = ""
    pair = ""
    threads = ""
    programs: tuple[str, ...] = ()

    def setUp(self) -> None:
        """Makes a folder for checkpoints."""
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def checkpoint(self, program: str) -> Path:
        """Returns the file for a program's checkpoint."""
        return self.folder / f"{Path(program).name}.safetensors"

    def run_program(self, program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Runs a program in as many processes as its name says."""
        return self.run_in(program[-1], program, *arguments)

    def run_in(self, processes: str, program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Runs a program in a number of processes."""
        library = Path(self.mpiexec).resolve().parents[1] / "lib"
        command = [self.mpiexec, "-n", processes, "-host", "localhost", program, *map(str, arguments)]
        environment = os.environ | {"LD_LIBRARY_PATH": str(library)}
        try:
            return subprocess.run(
                command, capture_output=True, check=False, env=environment, text=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired as error:
            raise AssertionError(
                f"{error}; standard output: {error.stdout!r}; standard error: {error.stderr!r}"
            ) from None

    def test_loss(self) -> None:
        """The loss over all replicas' rows falls, and a second training gives the same bits."""
        for program in self.programs:
            with self.subTest(program):
                done = self.run_program(program, STEPS)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                losses = [float(line.split()[1]) for line in done.stdout.splitlines()]
                self.assertEqual(len(losses), STEPS)
                self.assertLess(losses[-1], losses[0] - 0.1)
                self.assertEqual(self.run_program(program, STEPS).stdout, done.stdout)

    def test_pair(self) -> None:
        """A program that reduces gradients by itself, in one buffer, learns what a step with reductions learns."""
        for program in (program for program in self.programs if Path(program).name.startswith("train_fc_")):
            with self.subTest(program):
                done = self.run_in(program[-1], self.pair, STEPS)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                wanted = self.run_program(program, STEPS).stdout.splitlines()
                self.assertEqual(len(wanted), STEPS)
                for line, other in zip(done.stdout.splitlines(), wanted, strict=True):
                    self.assertAlmostEqual(float(line.split()[1]), float(other.split()[1]), places=5)

    def test_threads(self) -> None:
        """Threads learn what processes learn."""
        (program,) = (program for program in self.programs if Path(program).name == "train_fc_2")
        wanted = self.run_program(program, STEPS).stdout.splitlines()
        done = subprocess.run([self.threads, str(STEPS)], capture_output=True, check=True, text=True, timeout=SECONDS)
        self.assertEqual(len(wanted), STEPS)
        for line, other in zip(done.stdout.splitlines(), wanted, strict=True):
            self.assertAlmostEqual(float(line.split()[1]), float(other.split()[1]), places=5)

    def test_killed(self) -> None:
        """If a process dies, all end soon. From the last checkpoint, training continues as if nothing had happened, bit by bit."""
        for program in self.programs:
            with self.subTest(program):
                whole = self.run_program(program, STEPS).stdout.splitlines()
                begin = time.monotonic()
                killed = self.run_program(program, STEPS, self.checkpoint(program), LAST)
                self.assertNotEqual(killed.returncode, 0)
                self.assertLess(time.monotonic() - begin, SECONDS / 2)
                continued = self.run_program(program, STEPS, self.checkpoint(program))
                self.assertEqual(continued.stdout.splitlines(), whole[5:], continued.stderr)

    def test_canceled(self) -> None:
        """If a process cancels its run, all end soon, and the text says which one it was."""
        for program in self.programs:
            with self.subTest(program):
                begin = time.monotonic()
                done = self.run_program(program, STEPS, self.checkpoint(program), LAST, "cancel")
                self.assertLess(time.monotonic() - begin, SECONDS / 2)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn("replica 1: its run has ended; all processes end", done.stderr)
                # MPI's own texts can be among the losses. The last loss can be lost, as rank 0 may end before it prints it.
                self.assertIn(
                    len(re.findall(r"^\d+ \d\.\d+$", done.stdout, re.MULTILINE)), (LAST - 1, LAST), done.stdout
                )


if __name__ == "__main__":
    TrainTest.mpiexec, TrainTest.pair, TrainTest.threads, *programs = (os.path.abspath(path) for path in sys.argv[1:])
    TrainTest.programs = tuple(programs)
    unittest.main(argv=sys.argv[:1])
