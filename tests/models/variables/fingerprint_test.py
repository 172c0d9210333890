"""What identifies a build is the same in its JSON file, in its library's symbols, and at run time."""

from __future__ import annotations

import re
import subprocess
import sys
import unittest
from pathlib import Path

from tfaot.core.fingerprint import Stamp
from tfaot.core.manifest import Manifest


class FingerprintTest(unittest.TestCase):
    """The model of `class_test`, whose variables are fed."""

    def test_everywhere(self) -> None:
        """Protects those who ask which build runs: a program prints the values that `nm` shows of the library."""
        stamp = Stamp.from_json(Path(path("mixer_aot.fingerprint.json")).read_text(), path="stamp")
        manifest = Manifest.from_json(Path(path("mixer_aot.model.json")).read_text())
        self.assertEqual(stamp.components.graph, manifest.fingerprints.graph)
        ran = subprocess.run([path("fingerprint")], check=True, stdout=subprocess.PIPE, text=True).stdout
        code, weights = ran.split()
        self.assertEqual(code, stamp.fingerprint)
        for files in (("libmixer_aot.a", "libmixer_aot.fingerprint.lo"), ("fingerprint",)):
            listed = subprocess.run(["nm", *map(path, files)], check=True, stdout=subprocess.PIPE, text=True).stdout
            symbols = re.findall(r"^[0-9a-f]+ [rR] tfaot_M5tests5Mixer_(\w+)_([0-9a-f]{16})$", listed, re.MULTILINE)
            self.assertEqual(sorted(symbols), [("fingerprint", code), ("weights", weights)], files)


def path(name: str) -> str:
    """Returns the file with this name among those that the test was given."""
    (found,) = [file for file in FILES if Path(file).name == name]
    return found


if __name__ == "__main__":
    FILES = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
