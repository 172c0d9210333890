"""The object file of constants: as small as its values, and otherwise what the compiler wrote."""

from __future__ import annotations

import os
import random
import subprocess
import unittest
from pathlib import Path

from tests.stages.harness import StageTest
from tfaot.constants import ALIGNMENT, compacted

_MODEL = """\
import tensorflow as tf

table = tf.random.stateless_normal((1000, 33), seed=(1, 2))
small = tf.random.stateless_normal((7,), seed=(3, 4))


@tf.function(input_signature=[tf.TensorSpec((3,), tf.int32, "at")])
def model(at):
    return tf.gather(table, at), tf.gather(small, at)
"""


class ConstantsTest(StageTest):
    """What the compile stage gives the linker."""

    def objects(self) -> tuple[Path, bytes]:
        """Compiles a model with constants; the object file, and its bytes."""
        exported = self.export(_MODEL)
        self.compile(exported)
        path = Path(exported.path("constants"))
        return path, path.read_bytes()

    def tool(self, *command: str) -> str:
        """Runs one of the binutils."""
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout

    def test_no_padding(self) -> None:
        """A library with weights is not twice as large as its weights: constants end where their values do."""
        path, data = self.objects()
        values = 4 * (1000 * 33 + 7)
        self.assertLess(len(data), values + 1500)
        sections = self.tool("readelf", "-SW", str(path))
        line = next(line for line in sections.splitlines() if ".rodata" in line)
        self.assertEqual(line.split()[-1], str(ALIGNMENT))

    def test_symbols_and_values(self) -> None:
        """The linker finds each constant under its name, with its size before it, at a multiple of 64 bytes."""
        path, _ = self.objects()
        symbols = [line.split() for line in self.tool("readelf", "-sW", str(path)).splitlines() if " OBJECT " in line]
        self.assertEqual(len(symbols), 2)
        raw = Path(self.folder) / "rodata"
        self.tool("objcopy", "-O", "binary", "-j", ".rodata", str(path), str(raw))
        contents = raw.read_bytes()
        sizes = []
        for symbol in symbols:
            begin, size = int(symbol[1], 16), int(symbol[2], 0)
            self.assertEqual(begin % ALIGNMENT, 0)
            sizes.append(int.from_bytes(contents[begin : begin + 8], "little"))
            self.assertEqual(size, ALIGNMENT + sizes[-1])
        self.assertEqual(sorted(sizes), [4 * 7, 4 * 1000 * 33])

    def test_idempotent_and_linkable(self) -> None:
        """The file is a whole object file: a linker takes it, and there is nothing more to take out."""
        path, data = self.objects()
        self.assertEqual(compacted(data), data)
        self.tool("ld", "-r", str(path), "-o", str(Path(self.folder) / "linked.o"))

    def test_other_files_stay(self) -> None:
        """What is no object file of constants is left as it is: code, text, nothing, and files that are cut short."""
        path, data = self.objects()
        kernels = path.with_name("object").read_bytes()
        rng = random.Random(1)
        for other in (
            kernels,
            b"",
            b"\x7fELF",
            b"!<arch>\n",
            os.urandom(200),
            data[: rng.randrange(64, len(data) // 2)],
        ):
            self.assertEqual(compacted(other), other)


if __name__ == "__main__":
    unittest.main()
