"""A fault in the middle of a model is located: the first tap after it is the first to diverge."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest


class AlteredTest(unittest.TestCase):
    """Runs the taps' test on the original model, and on code for a graph with another constant in layer1."""

    def run_test(self, program: str) -> subprocess.CompletedProcess[str]:
        """Runs a generated test's program on the goldens."""
        return subprocess.run([program, GOLDENS], text=True, stdout=subprocess.PIPE, check=False)

    def test_passes_unharmed(self) -> None:
        """The test passes on the compiler's output for the exported graph, and names nothing."""
        result = self.run_test(UNHARMED)
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertNotIn("first to diverge", result.stdout)

    def test_names_the_first(self) -> None:
        """The tap after the altered constant is named with its Python line. Those before it pass."""
        result = self.run_test(ALTERED)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn(
            "\nfirst to diverge: layer1/activation:0 at tests/models/taps/layers.py:20, step 0\n", result.stdout
        )
        for tap in ("layer0/product:0", "layer0/activation:0", "layer1/product:0"):
            (line,) = (line for line in result.stdout.splitlines() if line.startswith("0 ") and tap in line)
            self.assertNotIn("FAILED", line)


if __name__ == "__main__":
    UNHARMED, ALTERED, GOLDENS = (os.path.abspath(path) for path in sys.argv[1:4])
    unittest.main(argv=sys.argv[:1])
