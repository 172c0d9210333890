"""A fault in the middle of a model is located: the first tap after it is the first to diverge."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import unittest

from tfaot import values


class AlteredTest(unittest.TestCase):
    """Runs the taps' test on the original model, and on code for a graph with another constant in layer1."""

    def run_test(self, program: str, *flags: str) -> subprocess.CompletedProcess[str]:
        """Runs a generated test's program on the goldens."""
        return subprocess.run([program, GOLDENS, *flags], text=True, stdout=subprocess.PIPE, check=False)

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

    def test_values(self) -> None:
        """Both programs write all compared values, in the order of execution, and comparing the files names the same tap."""
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for name, program in (("altered", ALTERED), ("unharmed", UNHARMED)):
                paths.append(os.path.join(folder, name))
                self.run_test(program, f"--values={paths[-1]}")
            self.assertEqual(
                [line.split()[0] for line in values.lines(paths[0])[1:6]],
                [f"step0/layer{index}/{part}:0" for index in range(2) for part in ("product", "activation")]
                + ["step0/layer2/product:0"],
            )
            _, first = values.compared(*paths)
            self.assertEqual(first, "step0/layer1/activation:0")
            self.assertEqual(values.compared(paths[1], paths[1])[1], "")

    def test_values_cannot_be_written(self) -> None:
        """A path that can't be written fails the test, which says so."""
        result = self.run_test(UNHARMED, "--values=/nonexistent/values")
        self.assertEqual(result.returncode, 1)
        self.assertIn("/nonexistent/values can't be written  FAILED", result.stdout)


if __name__ == "__main__":
    UNHARMED, ALTERED, GOLDENS = (os.path.abspath(path) for path in sys.argv[1:4])
    unittest.main(argv=sys.argv[:1])
