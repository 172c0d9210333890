"""Code that ships in users' programs compiles without warnings."""

from __future__ import annotations

import concurrent.futures
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

RUNTIME = Path(__file__).absolute().parents[2] / "runtime"

# What programs include, by name or through a generated class.
PUBLIC = (
    "bounded_view.h",
    "c_api.h",
    "collectives.h",
    "gradients.h",
    "half.h",
    "hooks.h",
    "info.h",
    "options.h",
    "status.h",
    "thread_pool.h",
    "thread_replicas.h",
    "threads.h",
    "view.h",
    "weights.h",
)

CLASS = """
#include "tfaot/info.h"
#include "tfaot/options.h"
#include "tfaot/status.h"
namespace tfaot {
class Hooks;
class ThreadPool;
}
struct Class {
  static Class Create(const tfaot::Options& options, tfaot::Status* status) noexcept;
  explicit operator bool() const noexcept;
  static const tfaot::ModelInfo& Info() noexcept;
  static const char* const* isas() noexcept;
  static std::uint64_t fingerprint() noexcept;
  const char* isa() const noexcept;
  const char* error() const noexcept;
  tfaot::Code error_code() const noexcept;
  void set_thread_pool(tfaot::ThreadPool* pool) noexcept;
  void set_hooks(const tfaot::Hooks* hooks) noexcept;
};
"""
"""A class as the render stage makes it, for the sources that each shared library and each library of ops compile anew."""


class WarningsTest(unittest.TestCase):
    """Every file, with a strict program's flags."""

    def test_warnings(self) -> None:
        """Protects users who compile our files with warnings as errors. A header that needs another includes it."""
        found = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
        assert found, "no C++ compiler on PATH"
        compiler = [found, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-I", str(RUNTIME), "-fsyntax-only"]
        compiler += ["-march=x86-64-v3"]  # kernels have more code for newer CPUs
        folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(shutil.rmtree, folder)
        class_ = Path(folder) / "class.h"
        class_.write_text(CLASS)
        tensorflow = importlib.util.find_spec("tensorflow")
        assert tensorflow is not None and tensorflow.submodule_search_locations
        compiler += ["-isystem", f"{tensorflow.submodule_search_locations[0]}/include"]
        compiler += ["-DTFAOT_CLASS=Class", f'-DTFAOT_CLASS_HEADER="{class_}"', "-DTFAOT_GET_API=tfaot_get_api"]

        def errors(path: Path) -> str:
            # Not the header itself, for which compilers warn about `#pragma once`.
            source = ["-include", str(path), "-x", "c++", "/dev/null"] if path.suffix == ".h" else [str(path)]
            done = subprocess.run([*compiler, *source], capture_output=True, check=False, text=True)
            return done.stderr if done.returncode else ""

        files = sorted(path for path in RUNTIME.rglob("*") if path.suffix in (".h", ".cc"))
        for name in ("gloo_replicas.h", "mpi_replicas.h"):  # need others' headers; examples/distributed compiles them
            files.remove(RUNTIME / "tfaot" / name)
        self.assertGreater(len(files), 30)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            for path, text in zip(files, pool.map(errors, files), strict=True):
                with self.subTest(path.relative_to(RUNTIME)):
                    self.assertEqual(text, "")

    def test_language_of_programs(self) -> None:
        """Protects programs in C++14, the default of Bazel 7: what they include needs nothing newer."""
        compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
        assert compiler, "no C++ compiler on PATH"
        flags = ["-std=c++14", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", str(RUNTIME), "-fsyntax-only"]
        # Members that a view instantiates only when a program calls them.
        uses = """
            float Use(tfaot::View<float, 2, 3> view, tfaot::BoundedView<float, 2, 3> bounded, tfaot::View<float> scalar) {
              static_assert(tfaot::View<float, 2, 3>::kSize == 6 && view.dim(1) == 3 && view.size_bytes() == 24, "");
              static_assert(bounded.bound_bytes() == 24 && bounded.bound(0) == 2, "");
              const tfaot::View<const float, 2, 3> constant = view;
              const std::size_t& size = view.kSize;
              const tfaot::List<tfaot::TensorInfo> none = {nullptr, 0};
              if (tfaot::Find(none, "x") != nullptr) return 0;
              return constant(1, 2) + bounded(1, 2) + bounded.end()[-1] + *scalar + scalar() + tfaot::Float16(view[size - 1]);
            }
        """
        source = "".join(f'#include "tfaot/{name}"\n' for name in PUBLIC) + uses
        done = subprocess.run(
            [compiler, *flags, "-x", "c++", "-"], input=source, capture_output=True, check=False, text=True
        )
        self.assertEqual(done.stderr, "")

    def test_ignored_results(self) -> None:
        """Protects programs from errors that nobody reads: since C++17, compilers warn about each result that is ignored."""
        ignored = """
            model.Run(); model.Load("w"); model.Load(source); model.Save("w"); model.SetWeights(weights); model.Follow(&live);
            model.set_x_data(nullptr); model.set_loss_data(nullptr); a::b::Small::Create(tfaot::Options());
            a::b::Small::LoadWeights(source, &weights); weights.Update(nullptr, 0, &weights); live.Swap(weights);
            live.Load(source); live.Update(nullptr, 0); live.Update({});
            tfaot::Call(model, entry); tfaot::Call(model, entry, 1); tfaot::Place(model, entry.inputs[0], nullptr);
            tfaot::Offer(model, entry, "x", tfaot::DType::kFloat32, {nullptr, 0}, nullptr);
        """
        header = RUNTIME.parent / "tests/render/goldens/small.h.golden"
        source = f"""
            #include "{header}"
            #include "tfaot/info.h"
            void Ignore(a::b::Small& model, const tfaot::Source& source, tfaot::Weights& weights, tfaot::LiveWeights& live,
                        const tfaot::EntryPointInfo& entry) {{ {ignored} }}
        """
        compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
        assert compiler, "no C++ compiler on PATH"
        flags = ["-std=c++17", "-I", str(RUNTIME), "-fsyntax-only", "-x", "c++", "-"]
        done = subprocess.run([compiler, *flags], input=source, capture_output=True, check=False, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(re.findall("warning: ignoring return", done.stderr)), ignored.count(";"), done.stderr)


if __name__ == "__main__":
    unittest.main()
