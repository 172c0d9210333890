"""Packages: the command and Bazel make the same bytes, and programs that Bazel doesn't build use them."""

from __future__ import annotations

import os
import shlex
import subprocess
import tarfile
import tempfile
import unittest
from pathlib import Path

import cmake
import numpy as np
import pkgconf
from running import run

from tfaot import run as tfaot_run

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "examples/fc/fc_aot.package.tar.gz"
PROGRAM = ROOT / "examples/embedding/cmake"
REPLICAS = ROOT / "examples/distributed"


def executed(*command: str, cwd: Path, **env: str) -> str:
    """Runs a program that must succeed, and returns its output."""
    done = subprocess.run(
        command, capture_output=True, check=False, cwd=cwd, env={"PATH": "/usr/bin:/bin", **env}, text=True
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


class PackageTest(unittest.TestCase):
    """The package of examples/fc."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def unpacked(self, package: Path = PACKAGE) -> Path:
        """Unpacks the archive, and returns the package's folder."""
        with tarfile.open(package) as archive:
            archive.extractall(self.folder, filter="data")
        return self.folder / package.name.partition(".")[0]

    def built(self, program: Path, package: Path, target: str, *flags: str) -> str:
        """Builds a program for a package with CMake, and returns its path."""
        tool = str(Path(cmake.CMAKE_BIN_DIR) / "cmake")
        build = str(self.folder / "build")
        tools = [f"-DCMAKE_MAKE_PROGRAM={Path(cmake.__file__).parents[1] / 'bin/ninja'}", "-GNinja"]
        executed(tool, f"-S{program}", f"-B{build}", *tools, f"-DCMAKE_PREFIX_PATH={package}", *flags, cwd=self.folder)
        executed(tool, "--build", build, "--target", target, cwd=self.folder)
        return f"{build}/{target}"

    def test_the_command_writes_the_same_bytes(self) -> None:
        """Protects the promise that Bazel and the command run one implementation with one set of flags."""
        out = self.folder / "out"
        flags = ("--cpp-class=examples::fc::Fc", "--name=fc_aot", "--header-folder=examples/fc", f"--out={out}")
        done = run("compile", "examples/fc/model.py", *flags, cwd=ROOT, env={"TMPDIR": str(self.folder)})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, f"wrote {out}\n")
        # A log has plain lines.
        self.assertRegex(
            done.stderr, r"\Aexporting the graph: \d+\.\d s\ncomputing TensorFlow's numbers: \d+\.\d s\ncompiling Run: "
        )
        self.assertNotIn("\x1b", done.stderr)
        self.assertIn("\nrunning the test: ", done.stderr)
        self.assertNotIn("NOT VERIFIED", done.stderr)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["out"])  # and no temporary files
        made = {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}
        other = self.unpacked()
        packed = {path.relative_to(other).as_posix(): path.read_bytes() for path in other.rglob("*") if path.is_file()}
        self.assertIn(b"lib/libfc_aot.a", made.pop(".tfaot.json"))  # hashes, for the command alone
        self.assertEqual(made.keys(), packed.keys())
        self.assertEqual([name for name in made if made[name] != packed[name]], [])

    def test_the_archive_names_nobody(self) -> None:
        """Protects reproducible builds: entries are sorted, and have no time, owner, or path of a machine."""
        with tarfile.open(PACKAGE) as archive:
            entries = archive.getmembers()
            library = archive.extractfile("fc_aot/lib/libfc_aot.a")
            assert library is not None
            data = library.read()
        self.assertEqual([entry.name for entry in entries], sorted(entry.name for entry in entries))
        self.assertEqual({(entry.mtime, entry.uid, entry.gid, entry.uname) for entry in entries}, {(0, 0, 0, "")})
        for word in (b"bazel-out", b"execroot", str(ROOT).encode()):
            self.assertNotIn(word, data)

    def test_cmake(self) -> None:
        """Protects users of CMake: the program of examples/embedding/cmake builds, and learns."""
        program = self.built(PROGRAM, self.unpacked(), "train")
        self.assertIn("after 30 steps", executed(program, cwd=self.folder))

    def test_cmake_of_replicas(self) -> None:
        """Protects users of CMake who train with several replicas: the programs of examples/distributed build, and learn."""
        flags = (
            "-DPACKAGE=fc_2_aot",
            "-DHEADER=examples/distributed/fc_2_aot.h",
            "-DCLASS=examples::distributed::Fc2",
        )
        package = self.unpacked(REPLICAS / "fc_2_aot.package.tar.gz")
        program = self.built(REPLICAS, package, "train_threads", *flags)
        losses = [float(line.split()[1]) for line in executed(program, "12", cwd=self.folder).splitlines()]
        self.assertEqual(len(losses), 12)
        self.assertLess(losses[-1], losses[0] - 0.1)

    def test_pkg_config(self) -> None:
        """Protects users of pkg-config: its flags build the same program, wherever the package is, and it names the weights."""
        package = self.unpacked().rename(self.folder / "moved")

        def asked(*what: str) -> list[str]:
            tool = str(pkgconf.get_executable())
            return shlex.split(
                executed(tool, *what, "fc_aot", cwd=self.folder, PKG_CONFIG_PATH=f"{package}/lib/pkgconfig")
            )

        program = str(self.folder / "train")
        flags = asked("--cflags", "--libs")
        executed("c++", "-Wall", "-Werror", str(PROGRAM / "train.cc"), *flags, "-o", program, cwd=self.folder)
        self.assertIn("after 30 steps", executed(program, cwd=self.folder))
        (weights,) = asked("--variable=weights")
        self.assertTrue(Path(weights).is_file())

    def test_headers(self) -> None:
        """Protects programs that use more than the class: a package has the headers for hooks, names, and threads, in C++14."""
        include = self.unpacked() / "include"
        headers = sorted(path.relative_to(include).as_posix() for path in include.rglob("*.h"))
        self.assertLessEqual({"tfaot/hooks.h", "tfaot/info.h", "tfaot/threads.h"}, {*headers})
        headers.remove("tfaot/mpi_replicas.h")  # needs a library of MPI
        uses = "examples::fc::Fc model; tfaot::Cancellation cancel; model.set_hooks(&cancel); "
        uses += "return model.Info().variables.size() != 10;"
        for header in headers:
            (self.folder / "one.cc").write_text(f'#include "{header}"\n')
            executed("c++", "-std=c++14", "-fsyntax-only", f"-I{include}", "one.cc", cwd=self.folder)
        every = "".join(f'#include "{header}"\n' for header in headers)
        (self.folder / "all.cc").write_text(every + f"int main() {{ {uses} }}\n")
        flags = ("-std=c++14", f"-I{include}", f"{include.parent}/lib/libfc_aot.a", "-pthread", "-o", "all")
        executed("c++", "all.cc", *flags, cwd=self.folder)
        executed("./all", cwd=self.folder)

    def test_shared_library(self) -> None:
        """Protects programs that load a model: the shared library has one symbol, and runs without anything beside it."""
        library = self.unpacked() / "lib/libfc_aot_shared.so"
        symbols = executed("nm", "-D", "--defined-only", "--format=posix", str(library), cwd=self.folder)
        self.assertEqual([line.split()[0] for line in symbols.splitlines()], ["tfaot_get_api"])
        model = tfaot_run.load(str(library))
        out = model.run(x=np.ones((64, 784), np.float32), y=np.eye(10, dtype=np.float32)[np.zeros(64, int)])
        self.assertGreater(out["loss"], 0)

    def test_inspect(self) -> None:
        """Protects readers of a package: the command says what is in the archive and in its folder."""
        for path in (PACKAGE, self.unpacked()):
            done = run("inspect", str(path), cwd=self.folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("\n  input x: float32[64, 784] (x:0)\n", done.stdout)
            self.assertIn("\n10 variables of 1,603,624 bytes, 10 of them written\n", done.stdout)


if __name__ == "__main__":
    unittest.main()
