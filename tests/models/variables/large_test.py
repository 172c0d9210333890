"""Weights of more than 5 GB: a file is created, loaded, used, and saved in C++, read in Python, and removed.

Not part of `//...`: `./bazelw test //tests/models/variables:large_test` (docs/measured/large_models.md lists its requirements).
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import unittest
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from tfaot.core import safetensors

ROWS, CLASSES, WIDTH = 18_000_000, 2_000_000, 64
"""From large.py."""
PLACES = [0, 1, ROWS // 2, 2**32 // (4 * WIDTH) - 1, 2**32 // (4 * WIDTH), ROWS - 3, ROWS - 2, ROWS - 1]
"""The rows in use: from the first to the last, and on both sides of 4 GB."""
COLUMNS = [0, CLASSES // 2, CLASSES - 2, CLASSES - 1]
"""All of them are beyond 4 GB."""
PROGRAM = os.path.join(os.path.dirname(__file__), "large")

Array = npt.NDArray[np.float32]


class LargeTest(unittest.TestCase):
    """One file, mostly zeros except for a few rows. Zeros take no space on the disk."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.weights, self.saved = (os.path.join(folder.name, name) for name in ("weights", "saved"))
        rng = np.random.default_rng(0)
        self.rows, self.columns = (rng.integers(-9, 9, (n, WIDTH)).astype(np.float32) for n in (8, 4))
        table, classes = np.zeros((ROWS, WIDTH), np.float32), np.zeros((CLASSES, WIDTH), np.float32)
        table[PLACES], classes[COLUMNS] = self.rows, self.columns
        with open(self.weights, "wb") as file:
            tensors: dict[str, npt.NDArray[Any]] = {"table": table, "classes": classes, "calls": np.array(40, np.int64)}
            entries = safetensors.write(file, tensors, aligned=True)
        self.assertGreater(os.path.getsize(self.weights), 5e9)
        self.assertGreater(min(entry.offset for entry in entries if entry.name != "table"), 2**32)

    def test_made_loaded_used_saved(self) -> None:
        """Values beyond 4 GB are used in place in the file, changed, saved, and read by the format's own library."""
        done = subprocess.run(
            [PROGRAM, self.weights, self.saved, *map(str, PLACES + COLUMNS)],
            capture_output=True,
            check=False,
            text=True,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        printed = [line.split() for line in done.stdout.splitlines()]

        def values(key: str) -> list[Array]:
            return [np.array(line[1:], np.float32) for line in printed if line[0] == key]

        for scores, found in zip(values("scores"), values("found"), strict=True):
            np.testing.assert_array_equal(scores.reshape(8, 4), self.rows @ self.columns.T)  # exact for small integers
            np.testing.assert_array_equal(found, self.rows[-1])
        self.assertEqual([line[1] for line in printed if line[0] == "calls"], ["41", "42", "43"])

        # In kB: the maximum, and after each of three runs, memory other than the file's own pages.
        (most,) = (int(line[1]) for line in printed if line[0] == "VmHWM:")
        anonymous = [int(line[1]) for line in printed if line[0] == "RssAnon:"]
        print(f"memory after the first run: {most:,} kB in all; not of the file, after each run: {anonymous} kB")
        self.assertLess(most, 100_000)
        self.assertEqual(len(anonymous), 3)
        self.assertLess(max(anonymous), 50_000)

        # The loaded file didn't change, and the saved one has the new count.
        for path, calls in ((self.weights, 40), (self.saved, 42)):
            with safe_open(path, "numpy") as file:
                table, classes = file.get_slice("table"), file.get_slice("classes")
                self.assertEqual((table.get_shape(), classes.get_shape()), ([ROWS, WIDTH], [CLASSES, WIDTH]))
                for place, row in zip(PLACES, self.rows, strict=True):
                    np.testing.assert_array_equal(table[place : place + 1], row[None])
                for place, row in zip(COLUMNS, self.columns, strict=True):
                    np.testing.assert_array_equal(classes[place : place + 1], row[None])
                self.assertEqual(file.get_tensor("calls"), calls)
        self.assertEqual(os.path.getsize(self.saved), os.path.getsize(self.weights))


if __name__ == "__main__":
    unittest.main()
