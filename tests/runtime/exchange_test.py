"""Weights go from Python to C++ and back: both sides read and write the same files."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tfaot.core import dtypes, safetensors

Tensors = Mapping[str, npt.NDArray[Any]]


def written(tensors: Tensors, *, aligned: bool = True) -> bytes:
    file = io.BytesIO()
    safetensors.write(file, tensors, aligned=aligned)
    return file.getvalue()


def values(dtype: dtypes.DType, *shape: int) -> npt.NDArray[Any]:
    """Returns values with arbitrary bits, including NaNs with payloads; for bool, the two valid ones."""
    count = int(np.prod(shape))
    rng = np.random.default_rng(count)
    if dtype.name == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    return np.frombuffer(rng.bytes(count * dtype.bytes), dtype.numpy()).reshape(shape)


class ExchangeTest(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        self.addCleanup(shutil.rmtree, self.folder)

    def run_exchange(
        self, content: bytes, model: Tensors, *, reverse: Collection[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Runs C++ with variables like `model` on a file `in`, which writes `out`."""
        (self.folder / "in").write_bytes(content)
        (self.folder / "out").unlink(missing_ok=True)  # its contents would stay
        arguments = []
        for name, value in model.items():
            code = dtypes.BY_NAME[str(value.dtype)].safetensors
            shape = ",".join(map(str, value.shape))
            arguments += [name, code, shape, str(value.nbytes), str(int(name in reverse))]
        return subprocess.run(
            [EXCHANGE, "in", "out", *arguments], capture_output=True, check=False, cwd=self.folder, text=True
        )

    def exchanged(self, content: bytes, model: Tensors, *, reverse: Collection[str] = ()) -> bytes:
        """Returns what C++ saves after it loads `content`."""
        result = self.run_exchange(content, model, reverse=reverse)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        return (self.folder / "out").read_bytes()

    def test_every_dtype(self) -> None:
        """Protects weights of every dtype: C++ reads them, and saves exactly the bytes that Python writes."""
        tensors = {
            f"{dtype.name}/{shape}": values(dtype, *shape)
            for dtype in dtypes.ALL
            for shape in ((), (3,), (4, 16), (0, 2), (5, 1, 3))
        }
        self.assertEqual(self.exchanged(written(tensors), tensors), written(tensors))
        # From files with them in another order, and at odd offsets.
        self.assertNotEqual(written(tensors, aligned=False), written(tensors))
        self.assertEqual(self.exchanged(written(tensors, aligned=False), tensors), written(tensors))
        backwards = dict(reversed(tensors.items()))
        self.assertEqual(self.exchanged(written(backwards), tensors), written(tensors))

    def test_trained_values_return(self) -> None:
        """Protects training: Python reads the values that C++ wrote, and the others didn't change."""
        tensors = {f"{dtype.name}/{n}": values(dtype, n) for dtype in dtypes.ALL for n in (1, 7, 64)}
        reverse = list(tensors)[::2]
        self.exchanged(written(tensors), tensors, reverse=reverse)
        read = safetensors.read(self.folder / "out")
        self.assertEqual(set(read), set(tensors))
        for name, value in tensors.items():
            self.assertEqual((read[name].dtype, read[name].shape), (value.dtype, value.shape))
            bytes_ = value.tobytes()
            self.assertEqual(read[name].tobytes(), bytes_[::-1] if name in reverse else bytes_, name)

    def test_any_name(self) -> None:
        """Protects names: TensorFlow accepts any text, and JSON has several ways to write it."""
        names = [
            "",
            " ",
            "a/b:0",
            "größe",
            "\U0001f600",
            "'\"\\/",
            "\x01\x1f\x7f\x80",
            "\b\f\n\r\t",
            "\u2028\uffff",
            "名前",
        ]
        tensors = {name: np.array(index, np.int16) for index, name in enumerate(names)}
        tensors["".join(map(chr, range(1, 0x300)))] = np.array(-1, np.int16)
        self.assertEqual(self.exchanged(written(tensors), tensors), written(tensors))
        # A writer that escapes as little as possible.
        content = written(tensors)
        (length,) = struct.unpack("<Q", content[:8])
        header = json.dumps(json.loads(content[8 : 8 + length]), ensure_ascii=False).encode()
        raw = struct.pack("<Q", len(header)) + header + content[8 + length :]
        self.assertEqual(self.exchanged(raw, tensors), content)

    def test_any_sizes(self) -> None:
        """Protects the layout, which both sides compute: tensors of all sizes, including none, in all orders."""
        rng = random.Random(0)
        for _ in range(30):
            tensors = {
                f"v{index}": np.arange(
                    rng.choice((0, 0, 1, 3, 16, 32, 63, 64, 65, 128)), dtype=rng.choice(("u1", "f4"))
                )
                for index in range(rng.randrange(12))
            }
            self.assertEqual(self.exchanged(written(tensors), tensors), written(tensors))

    def test_sizes_are_checked(self) -> None:
        """Protects memory: C++ knows every dtype's name and size, and refuses a tensor with another size."""
        for dtype in dtypes.ALL:
            entry = {"dtype": dtype.safetensors, "shape": [3], "data_offsets": [0, 3 * dtype.bytes - 1]}
            header = json.dumps({"x": entry}).encode()
            content = struct.pack("<Q", len(header)) + header + bytes(100)
            result = self.run_exchange(content, {"x": values(dtype, 3)})
            self.assertEqual(
                (result.returncode, result.stdout),
                (
                    1,
                    "in contradicts itself\n"
                    f"  found: x is at bytes 0 to {3 * dtype.bytes - 1}, which isn't the size of {dtype.name}[3]\n"
                    "  to do: write it again\n",
                ),
            )


if __name__ == "__main__":
    EXCHANGE = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1])
