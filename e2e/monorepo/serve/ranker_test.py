"""Calls the compiled model from Python, and compares it with NumPy."""

import ctypes
import json
import sys
import unittest

import numpy as np

LIBRARY, *FILES = sys.argv[1:]


class RankerTest(unittest.TestCase):
    """One shared library."""

    def test_scores(self):
        """The library computes what the model says."""
        items = np.arange(12, dtype=np.float32).reshape(4, 3)
        scores = np.zeros(4, np.float32)
        pointer = ctypes.POINTER(ctypes.c_float)
        library = ctypes.CDLL(f"./{LIBRARY}")
        library.Rank.restype = ctypes.c_bool
        self.assertTrue(library.Rank(items.ctypes.data_as(pointer), scores.ctypes.data_as(pointer)))
        np.testing.assert_allclose(scores, items @ np.array([0, 1, 2], np.float32) / 3, rtol=1e-6)

    def test_manifest(self):
        """The manifest names the input."""
        (path,) = (file for file in FILES if file.endswith(".model.json"))
        with open(path, encoding="utf-8") as file:
            self.assertIn('"items', json.dumps(json.load(file)))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
