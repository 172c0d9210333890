"""Code that ships in users' programs compiles without warnings."""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import subprocess
import unittest
from pathlib import Path

RUNTIME = Path(__file__).absolute().parents[2] / "runtime"

# What programs include, by name or through a generated class.
PUBLIC = (
    "bounded_view.h",
    "half.h",
    "hooks.h",
    "options.h",
    "status.h",
    "thread_pool.h",
    "threads.h",
    "view.h",
    "weights.h",
)


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

    def test_language_of_programs(self) -> None:
        """Protects programs in C++14, the default of Bazel 7: what they include needs nothing newer."""
        found = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
        assert found, "no C++ compiler on PATH"
        flags = ["-std=c++14", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", str(RUNTIME), "-fsyntax-only"]
        # Members that a view instantiates only when a program calls them.
        uses = """
            float Use(tfaot::View<float, 2, 3> view, tfaot::BoundedView<float, 2, 3> bounded, tfaot::View<float> scalar) {
              static_assert(tfaot::View<float, 2, 3>::kSize == 6 && view.dim(1) == 3 && view.size_bytes() == 24, "");
              static_assert(bounded.bound_bytes() == 24 && bounded.bound(0) == 2, "");
              const tfaot::View<const float, 2, 3> constant = view;
              const std::size_t& size = view.kSize;
              return constant(1, 2) + bounded(1, 2) + bounded.end()[-1] + *scalar + scalar() + tfaot::Float16(view[size - 1]);
            }
        """
        source = "".join(f'#include "tfaot/{name}"\n' for name in PUBLIC) + uses
        done = subprocess.run(
            [found, *flags, "-x", "c++", "-"], input=source, capture_output=True, check=False, text=True
        )
        self.assertEqual(done.stderr, "")


if __name__ == "__main__":
    unittest.main()
