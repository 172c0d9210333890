"""The object file with constants: as small as its values, shared by all CPU levels, and otherwise as the compiler wrote it."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import unittest
from pathlib import Path

from tests.stages.harness import PREAMBLE, StageTest
from tfaot.compile.program.objects.constants import merged
from tfaot.compile.program.objects.files import ALIGNMENT
from tfaot.core import elf

MODEL = """\
import tensorflow as tf

table = tf.random.stateless_normal((1000, 33), seed=(1, 2))
small = tf.random.stateless_normal((7,), seed=(3, 4))


@tf.function(input_signature=[tf.TensorSpec((3,), tf.int32, "at")])
def model(at):
    return tf.gather(table, at), tf.gather(small, at)
"""


class ConstantsTest(StageTest):
    """What the compile stage passes to the linker."""

    def objects(self) -> tuple[Path, bytes]:
        """Compiles a model with constants. Returns the object file and its bytes."""
        exported = self.export(MODEL)
        self.compile(exported)
        path = Path(exported.path("constants"))
        return path, path.read_bytes()

    def tool(self, *command: str) -> str:
        """Runs one of the binutils."""
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout

    def test_no_padding(self) -> None:
        """A library with weights isn't twice as large as its weights: constants end where their values do."""
        path, data = self.objects()
        values = 4 * (1000 * 33 + 7)
        self.assertLess(len(data), values + 1500)
        sections = self.tool("readelf", "-SW", str(path))
        line = next(line for line in sections.splitlines() if ".rodata" in line)
        self.assertEqual(line.split()[-1], str(ALIGNMENT))

    def test_symbols_and_values(self) -> None:
        """The linker finds each constant by its name, preceded by its size, at a multiple of 64 bytes."""
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
        """The file is a valid object file: a linker accepts it, and there is nothing more to remove."""
        path, data = self.objects()
        self.assertEqual(elf.hidden(merged([data])), data)
        self.tool("ld", "-r", str(path), "-o", str(Path(self.folder) / "linked.o"))

    def test_huge_pages(self) -> None:
        """Protects first results: Linux can map many constants in huge pages, and a program grows by less than one of these."""
        _, data = self.objects()
        huge = 1 << 21
        for size, alignment in ((16 * huge, huge), (15 * huge, ALIGNMENT)):
            path, program = Path(self.folder) / "many.o", Path(self.folder) / "program"
            many = merged([data], added={"many": bytes(size)})
            self.assertEqual(merged([many]), many)
            self.assertLess(len(many), len(data) + size + 1000)
            path.write_bytes(many)
            (Path(self.folder) / "main.c").write_text(
                "extern const char many[]; const char other[100] = {1}; int main(int n, char** v) { return many[n] + other[n]; }"
            )
            self.tool("cc", str(Path(self.folder) / "main.c"), str(path), "-o", str(program))
            self.assertLess(program.stat().st_size, len(many) + huge + 30_000)
            lines = [
                line.split() for line in self.tool("readelf", "-lW", str(program)).splitlines() if " LOAD " in line
            ]
            loads = {int(line[-1], 16) for line in lines}
            self.assertEqual(huge in loads, alignment == huge)
            address = next(
                line for line in self.tool("nm", str(program)).splitlines() if line.endswith(" many")
            ).split()[0]
            self.assertEqual(int(address, 16) % ALIGNMENT, 0)
            for line in lines:
                self.assertEqual((int(line[1], 16) - int(line[2], 16)) % int(line[-1], 16), 0)

    def test_several(self) -> None:
        """Constants that two levels share are stored once, under both names. Those of only one level are also there."""
        source = Path(self.folder) / "m.S"
        objects = []
        for level, values in (("v2", ("1.5", "2.5")), ("v3", ("1.5", "4.5, 5.5"))):
            text = ".section .rodata\n"
            for index, value in enumerate(values):
                text += f".balign 64\n.globl {level}_{index}\n.type {level}_{index}, @object\n{level}_{index}:\n"
                text += f".quad 8 * {len(value.split())}\n.zero 56\n.double {value}\n.size {level}_{index}, . - {level}_{index}\n"
            source.write_text(text)
            self.tool("cc", "-c", str(source), "-o", str(source.with_suffix(".o")))
            objects.append(source.with_suffix(".o").read_bytes())
        both = Path(self.folder) / "both.o"
        both.write_bytes(merged(objects))
        self.tool("ld", "-r", str(both), "-o", str(Path(self.folder) / "linked.o"))
        lines = [line.split() for line in self.tool("nm", "-S", str(both)).splitlines()]
        self.assertEqual(
            {line[3]: (int(line[0], 16), int(line[1], 16)) for line in lines},
            {"v2_0": (0, 72), "v2_1": (128, 72), "v3_0": (0, 72), "v3_1": (256, 80)},
        )
        raw = Path(self.folder) / "rodata"
        self.tool("objcopy", "-O", "binary", "-j", ".rodata", str(both), str(raw))
        contents = raw.read_bytes()
        self.assertEqual(len(contents), 256 + 80)
        values = [struct.unpack_from("<d", contents, at)[0] for at in (64, 128 + 64, 256 + 64, 256 + 72)]
        self.assertEqual(values, [1.5, 2.5, 4.5, 5.5])

    def test_none(self) -> None:
        """A model without constants has a file without constants, which links."""
        exported = self.export(PREAMBLE + "def model_fn(x, n):\n    return x + x\n")
        self.compile(exported, isa=("x86-64-v2", "x86-64-v3"))
        self.assertEqual(self.tool("nm", exported.path("constants")), "")
        self.tool("ld", "-r", exported.path("constants"), "-o", str(Path(self.folder) / "linked.o"))

    def test_other_files(self) -> None:
        """Protects against a compiler with different output: a file other than an object with constants is refused."""
        path, data = self.objects()
        for other in (
            b"",
            b"\x7fELF",
            b"!<arch>\n",
            os.urandom(200),
            data[: random.Random(1).randrange(64, len(data) // 2)],
        ):
            self.assert_error(
                self.error_of(merged, [data, other]),
                """
                tfcompile's object file of constants isn't one that the rules know: it isn't a 64-bit object file
                  to do: use the TensorFlow that tools/python/requirements.lock names, or extend \
py/tfaot/compile/program/objects/files.py
                """,
            )
        kernels = path.with_name("object").read_bytes()
        self.assertIn("the rules know: it has something in it besides constants\n", self.error_of(merged, [kernels]))
        size = data.index(struct.pack("<Q", 4 * 7))
        wrong = data[:size] + struct.pack("<Q", 1000) + data[size + 8 :]
        self.assertIn("the rules know: a constant of 1064 bytes has room for 92\n", self.error_of(merged, [wrong]))


if __name__ == "__main__":
    unittest.main()
