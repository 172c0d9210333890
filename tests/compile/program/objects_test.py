"""Object files for other systems: constants in Mach-O and COFF are those of ELF, under the names that C has for them."""

from __future__ import annotations

import re
import subprocess
import unittest
from pathlib import Path

from tests.compile.program.constants_test import MODEL
from tests.stages.harness import StageTest
from tfaot import starlark
from tfaot.compile.program.objects import constants, files

_ROOT = Path(__file__).absolute().parents[3]
_STARTS = {"macos": b"\xcf\xfa\xed\xfe", "windows": b"\x64\x86", "android": b"\x7fELF", "linux": b"\x7fELF"}


class ObjectsTest(StageTest):
    """What the compile stage makes for each platform."""

    def test_all_platforms(self) -> None:
        """Protects programs for other systems: each gets objects in its format, with the same constants and names that link."""
        exported = self.export(MODEL)
        found = {}
        for name, platform in starlark.execute(_ROOT, "runtime/copts.bzl")["PLATFORMS"].items():
            self.compile(exported, isa=(platform.defaults[0],), target_triple=platform.triple)
            start = _STARTS[name.partition("_")[0]]
            data = Path(exported.path("constants")).read_bytes()
            kernels = Path(exported.path("object")).read_bytes()
            self.assertTrue(data.startswith(start) and kernels.startswith(start), name)
            held = constants.values(data)
            source = Path(exported.path("source")).read_text()
            self.assertEqual(set(held), set(re.findall(r"extern const unsigned char (\w+)\[\]", source)))
            prefix = b"_" if name.startswith("macos") else b""
            for kernel in re.findall(r"::tfaot::Kernel (\w+);", source):
                self.assertIn(b"\0" + prefix + kernel.encode() + b"\0", kernels)
            for constant in held:
                self.assertIn(b"\0" + prefix + constant.encode() + b"\0", data)
            found[name] = sorted(bytes(value) for value in held.values())
            self.assertEqual(held, constants.values(constants.merged([data])), "a file of our own is one, too")
        self.assertEqual([len(value) for value in found["linux_x86_64"]], [4 * 7, 4 * 1000 * 33])
        self.assertEqual(set(map(tuple, found.values())), {tuple(found["linux_x86_64"])})

    def test_coff_is_what_others_read(self) -> None:
        """Protects Windows programs from a file that only our own reader reads: GNU binutils find the values at their symbols."""
        exported = self.export(MODEL)
        self.compile(exported, target_triple="x86_64-pc-windows-gnu")
        path, raw = exported.path("constants"), Path(self.folder) / "raw"
        nm = subprocess.run(["nm", "--target=pe-x86-64", path], check=True, capture_output=True, text=True).stdout
        subprocess.run(["objcopy", "-I", "pe-x86-64", "-O", "binary", "-j", ".rdata", path, str(raw)], check=True)
        contents = raw.read_bytes()
        held = constants.values(Path(path).read_bytes())
        symbols = dict(re.findall(r"(?m)^([0-9a-f]+) R (\w+)$", nm))
        self.assertEqual(set(symbols.values()), set(held))
        for address, symbol in symbols.items():
            start = int(address, 16) + files.ALIGNMENT
            self.assertEqual(int(address, 16) % files.ALIGNMENT, 0)
            self.assertEqual(contents[start : start + len(held[symbol])], held[symbol])


if __name__ == "__main__":
    unittest.main()
