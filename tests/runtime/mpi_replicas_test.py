"""Runs a program in processes of MPI. The arguments are MPI's program that starts processes, and the program."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest
from pathlib import Path


class MpiReplicasTest(unittest.TestCase):
    """Processes on this machine."""

    paths: tuple[str, ...] = ()

    def test_exchanges(self) -> None:
        """Each collective gives 1, 2, 3, and 4 processes what the interface says."""
        mpiexec, program = self.paths
        library = Path(mpiexec).resolve().parents[1] / "lib"
        for size in (1, 2, 3, 4):
            with self.subTest(size):
                done = subprocess.run(
                    [mpiexec, "-n", str(size), "-host", "localhost", program],
                    capture_output=True,
                    check=False,
                    env=os.environ | {"LD_LIBRARY_PATH": str(library)},
                    text=True,
                    timeout=100,
                )
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                lines = sorted(done.stdout.splitlines())
                self.assertEqual(lines, [f"replica {rank} of {size}: right" for rank in range(size)])


if __name__ == "__main__":
    MpiReplicasTest.paths = tuple(os.path.abspath(path) for path in sys.argv[1:])
    unittest.main(argv=sys.argv[:1])
