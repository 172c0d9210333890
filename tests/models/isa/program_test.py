"""What is in a program with a model for several CPU levels: weights once, and for each level only its own instructions."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

LEVELS = ("x86-64", "x86-64-v3", "x86-64-v4")


class ProgramTest(unittest.TestCase):
    """The linked program, and the library's object files."""

    def test_weights_are_there_once(self) -> None:
        """Protects the size of programs: code for three levels reads one copy of the constants."""
        program = Path(PROGRAM).read_bytes()
        rows = [[(64 * row + column) % 7 - 3 for column in range(64)] for row in range(128)]
        # In panels of 16 columns: py/tfaot/compile/program/packing/prepack.py.
        panels = [row[at : at + 16] for at in range(0, 64, 16) for row in rows]
        for matrix, times in ((panels, 1), (rows, 0)):
            values = [value for row in matrix for value in row]
            self.assertEqual(program.count(struct.pack("<8192f", *values)), times)

    def test_no_other_levels_instructions(self) -> None:
        """Protects old CPUs: code for a level, and the class around it, use no registers of a higher level."""
        seen = {level: set[str]() for level in ("", *LEVELS)}
        for path in (LIBRARY, *KERNELS):
            with tempfile.TemporaryDirectory() as folder:
                subprocess.run(["ar", "x", path.resolve()], check=True, cwd=folder)
                members = sorted(Path(folder).iterdir())
                for member in members:
                    level = next((level for level in LEVELS[::-1] if level in f"{path.name} {member.name}"), "")
                    listed = subprocess.run(
                        ["objdump", "-d", member], check=True, stdout=subprocess.PIPE, text=True
                    ).stdout
                    used = set(re.findall(r"%([xyz]mm)\d", listed))
                    seen[level] |= used
                    if re.search(r"\s(vmov|vadd|vmul|vfmadd)", listed):
                        self.assertIn(level, LEVELS[1:], f"{path.name} {member.name}")
            if path == LIBRARY:
                # Kernels and the executor for each level, constants, the class, the fingerprint of weights, and the
                # variables, of which there are none.
                self.assertEqual(len(members), 2 * len(LEVELS) + 4, members)
        self.assertEqual(max(seen["x86-64"]), "xmm")
        self.assertEqual(max(seen["x86-64-v3"]), "ymm")
        self.assertEqual(max(seen["x86-64-v4"]), "zmm")
        self.assertLessEqual(seen[""], {"xmm"})


if __name__ == "__main__":
    PROGRAM = sys.argv[1]
    LIBRARY, *KERNELS = (Path(path) for path in sys.argv[2:] if path.endswith(".a"))
    unittest.main(argv=sys.argv[:1])
