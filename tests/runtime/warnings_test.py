"""Code that ships in users' programs compiles without warnings."""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import subprocess
import unittest
from pathlib import Path

RUNTIME = Path(__file__).absolute().parents[2] / "runtime"


class WarningsTest(unittest.TestCase):
    """Every file, with a strict program's flags."""

    def test_warnings(self) -> None:
        """Protects users who compile our files with warnings as errors. A header that needs another includes it."""
        found = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
        assert found, "no C++ compiler on PATH"
        compiler = [found, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-I", str(RUNTIME), "-fsyntax-only"]
        compiler += ["-march=x86-64-v3"]  # kernels have more code for newer CPUs

        def errors(path: Path) -> str:
            # Not the header itself, for which compilers warn about `#pragma once`.
            source = ["-include", str(path), "-x", "c++", "/dev/null"] if path.suffix == ".h" else [str(path)]
            done = subprocess.run([*compiler, *source], capture_output=True, check=False, text=True)
            return done.stderr if done.returncode else ""

        files = sorted(path for path in RUNTIME.rglob("*") if path.suffix in (".h", ".cc"))
        self.assertGreater(len(files), 30)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            for path, text in zip(files, pool.map(errors, files), strict=True):
                with self.subTest(path.relative_to(RUNTIME)):
                    self.assertEqual(text, "")


if __name__ == "__main__":
    unittest.main()
