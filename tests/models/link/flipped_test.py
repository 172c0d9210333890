"""Tests the generated test: the smallest possible error in a weight makes it fail, and nothing else does."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest


class FlippedTest(unittest.TestCase):
    """Runs the generated test for a model as it is, and for the same model with one flipped bit."""

    def run_test(self, program: str) -> subprocess.CompletedProcess[str]:
        """Runs a generated test's program on the goldens."""
        return subprocess.run([program, GOLDENS], text=True, stdout=subprocess.PIPE, check=False)

    def test_passes_unharmed(self) -> None:
        """The generated test passes on the compiler's output, or the next test would mean nothing."""
        result = self.run_test(UNHARMED)
        self.assertEqual((result.returncode, "FAILED" in result.stdout), (0, False), result.stdout)

    def test_one_bit(self) -> None:
        """One flipped mantissa bit in one weight, far below every tolerance, fails the test and names the weight."""
        result = self.run_test(FLIPPED)
        self.assertEqual(result.returncode, 1, result.stdout)
        failures = [line for line in result.stdout.splitlines() if line.endswith("FAILED")]
        self.assertIn("w ", failures[0])
        self.assertIn("isn't TensorFlow's initial value", failures[0])

    def test_no_goldens(self) -> None:
        """A test without its goldens fails with a sentence instead of comparing nothing."""
        result = subprocess.run([UNHARMED, "missing"], text=True, capture_output=True, check=False)
        self.assertEqual(result.returncode, 2)
        self.assertIn("missing can't be read", result.stderr)


if __name__ == "__main__":
    UNHARMED, FLIPPED, GOLDENS = (os.path.abspath(path) for path in sys.argv[1:4])
    unittest.main(argv=sys.argv[:1])
