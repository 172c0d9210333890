"""The format's own Python library reads what the rules write, and vice versa: any dtype, scalars, and empty tensors.

Together with `//tests/runtime:exchange_test`, in which C++ reads and writes the rules' files byte by byte, this covers what
users do with weights in Python. complex128 is our own: the format has no such dtype.
"""

from __future__ import annotations

import os
import tempfile
import unittest
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.numpy

from tfaot.core import dtypes
from tfaot.core import safetensors as tfaot_safetensors

Tensors = dict[str, npt.NDArray[Any]]


def tensors() -> Tensors:
    """Returns values with arbitrary bits, of every dtype and several shapes; for bool, the two valid ones."""
    rng = np.random.default_rng(0)
    result: Tensors = {}
    for dtype in dtypes.ALL:
        for shape in ((), (3,), (4, 16), (0, 2), (5, 1, 3)):
            count = int(np.prod(shape))
            value = np.frombuffer(rng.bytes(count * dtype.bytes), dtype.numpy()).reshape(shape)
            if dtype.name == "bool":
                value = rng.integers(0, 2, shape).astype(np.bool_)
            result[f"{dtype.name}/{len(shape)}{count}"] = value
    return {name: value for name, value in result.items() if value.dtype != np.complex128}


class LibraryTest(unittest.TestCase):
    """The same tensors, with two writers and two readers."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "weights.safetensors")

    def check(self, found: Tensors) -> None:
        """Compares with what was written, bit by bit."""
        wanted = tensors()
        self.assertEqual(set(found), set(wanted))
        self.assertEqual(len(wanted), 5 * (len(dtypes.ALL) - 1))
        for name, value in wanted.items():
            self.assertEqual((found[name].dtype, found[name].shape), (value.dtype, value.shape), name)
            self.assertEqual(found[name].tobytes(), value.tobytes(), name)

    def test_read_by_the_library(self) -> None:
        """Protects exported weights: the library opens the rules' files, in either order of their tensors."""
        for aligned in (True, False):
            with open(self.path, "wb") as file:
                tfaot_safetensors.write(file, tensors(), aligned=aligned)
            self.check(safetensors.numpy.load_file(self.path))

    def test_written_by_the_library(self) -> None:
        """Protects imported weights: the rules read the library's files, with and without metadata."""
        for metadata in (None, {"format": "np"}):
            safetensors.numpy.save_file(tensors(), self.path, metadata)
            self.check(tfaot_safetensors.read(self.path))


if __name__ == "__main__":
    unittest.main()
