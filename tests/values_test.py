"""Lists of values, and comparisons of them: what users look at to find where numbers go wrong."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tfaot import values
from tfaot.core import safetensors
from tfaot.core.errors import TfaotError


class ValuesTest(unittest.TestCase):
    """Files with a few tensors."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def file(self, name: str, **tensors: npt.NDArray[Any]) -> str:
        """Writes a file, and returns its path."""
        path = self.folder / name
        with path.open("wb") as file:
            safetensors.write(file, tensors)
        return str(path)

    def test_list(self) -> None:
        """The list is in the file's order, counts NaN and infinities apart, and names the first tensor that has some."""
        path = self.file(
            "f",
            b=np.array([[1.0, 3.0]], np.float32),
            a=np.array([np.nan, np.inf, -np.inf, 2.0], np.float64),
            c=np.array([True, False]),
            empty=np.zeros([0, 2], np.int64),
            z=np.array([3 + 4j], np.complex64),
        )
        head, *rows, last = values.lines(path)
        self.assertEqual(head.split(), ["name", "type", "min", "max", "mean", "std", "NaN", "inf"])
        self.assertEqual([row.split()[0] for row in rows], ["b", "a", "c", "empty", "z"])
        self.assertEqual(rows[0].split()[1:], ["float32[1,", "2]", "1", "3", "2", "1", "-", "-"])
        self.assertEqual(rows[1].split()[1:], ["float64[4]", "2", "2", "2", "0", "1", "2"])
        self.assertIn("nan", rows[3])
        self.assertEqual(rows[4].split()[2], "5")
        self.assertEqual(last, "first with NaN or infinity: a")

    def test_compare(self) -> None:
        """The first tensor that diverges is named in the order of the first file; NaN equals NaN, and an infinity only itself."""
        ones = np.ones(4, np.float32)
        ours = self.file("ours", a=ones, n=np.array([np.nan, 1.0]), b=ones * 1.001, c=ones * 2, only=ones)
        theirs = self.file("theirs", c=ones, b=ones, a=ones + 1e-7, n=np.array([np.nan, 1.0]))
        table, first = values.compared(ours, theirs)
        self.assertEqual(first, "b")
        self.assertEqual([row.split()[0] for row in table if row.endswith("DIVERGES")], ["b", "c"])
        self.assertIn(f"only in {ours}: only", table[-1])
        self.assertEqual(values.compared(ours, theirs, tolerance=0.01)[1], "c")
        for strange in (np.nan, np.inf):
            other = self.file("other", a=np.array([strange, 1, 1, 1], np.float32))
            self.assertEqual(values.compared(other, ours)[1], "a")
            self.assertEqual(values.compared(ours, other)[1], "a")

    def test_bad_files(self) -> None:
        """A file that isn't there, one of another kind, and two files of different models are errors that say so."""
        path = self.file("ours", a=np.ones(2))
        with self.assertRaisesRegex(TfaotError, "none isn't a file"):
            values.lines(str(self.folder / "none"))
        (self.folder / "text").write_text("text")
        with self.assertRaisesRegex(TfaotError, "isn't a safetensors file"):
            values.lines(str(self.folder / "text"))
        with self.assertRaisesRegex(TfaotError, "have no tensor in common"):
            values.compared(path, self.file("theirs", b=np.ones(2)))


if __name__ == "__main__":
    unittest.main()
