"""Drawn values, beside those that the generated test draws."""

from __future__ import annotations

import re
import unittest
import zlib
from pathlib import Path

import numpy as np

from tfaot.core import drawn, dtypes

CHECKSUMS = Path(__file__).parents[1] / "runtime/drawn_test.cc"
SEED = 4294967303


class DrawnTest(unittest.TestCase):
    def test_same_values_in_cpp(self) -> None:
        """Protects numerics tests of models with large inputs: both languages draw the same values of every dtype."""
        text = CHECKSUMS.read_text(encoding="utf-8")
        wanted = dict(re.findall(r"Drawn<([\w:]+(?:<\w+>)?)>\((0x\w{8}), (?:100|2)\);", text))
        for dtype in dtypes.ALL:
            values = drawn.values(dtype.name, (10, 100), drawn.Draw(SEED, 2 if dtype.name == "bool" else 100))
            self.assertEqual((values.dtype, values.shape), (dtype.numpy(), (10, 100)))
            self.assertEqual(zlib.crc32(values.tobytes()), int(wanted[dtype.cpp.removeprefix("::")], 16), dtype.name)

    def test_distribution(self) -> None:
        """Protects what tests see: floats are centered and spread like a normal distribution, and tensors are independent."""
        size = 1 << 18  # several chunks
        values = [drawn.values("float64", (size,), drawn.Draw(seed)) for seed in (1 << 32, 1 << 32 | 1, 2 << 32)]
        for value in values:
            self.assertLess(abs(value.mean()), 0.01)
            self.assertLess(abs(value.std() - 1), 0.01)
            self.assertLess(np.abs(value).max(), 3.5)
            self.assertLess(abs(float(np.mean(value[1:] * value[:-1]))), 0.01)
        for first, second in ((0, 1), (0, 2), (1, 2)):
            self.assertLess(abs(float(np.mean(values[first] * values[second]))), 0.01)


if __name__ == "__main__":
    unittest.main()
