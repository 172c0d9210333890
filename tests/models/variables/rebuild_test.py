"""What is rebuilt when weights change: starts Bazel in a separate workspace, and reads what it ran.

The workspace consists of links to this one, plus a package whose files the test can change.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tfaot.core import safetensors
from tfaot.core.manifest import Manifest
from tfaot.explain import bazel as explain
from tfaot.explain import difference
from tfaot.explain.build import Build

RUNFILES = pathlib.Path(os.environ["TEST_SRCDIR"])
WORKSPACE = pathlib.Path(os.path.realpath(RUNFILES / os.environ["TEST_WORKSPACE"] / "MODULE.bazel")).parent

BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_library")
load("//rules:defs.bzl", "tf_aot_library")

[
    tf_aot_library(
        name = name,
        cpp_class = "t::" + name,
        embed_variables = embed_variables,
        frozen = frozen,
        model = "weighted.py",
        weights = "w.safetensors",
    )
    for name, frozen, embed_variables in [
        ("fed", [], True),
        ("frozen", None, True),
        ("stored", [], False),
    ]
]

tf_aot_library(name = "seeded", cpp_class = "t::seeded", model = "seeded.py")

cc_library(name = "user", srcs = ["user.cc"], linkstatic = True, deps = [":fed", ":seeded"])
"""

WEIGHTED = """\
import tensorflow as tf

kernel = tf.Variable(tf.zeros((4, 16)), name="kernel")
bias = tf.Variable(tf.zeros((16,)), name="bias")


@tf.function(input_signature=[tf.TensorSpec((4,), name="x")])
def model(x):
    return tf.linalg.matvec(kernel, x, transpose_a=True) + bias
"""

SEEDED = """\
import numpy as np
import tensorflow as tf

SEED = 7
kernel = tf.Variable(np.random.default_rng(SEED).standard_normal((4, 16)).astype("float32"), name="kernel")
steps = tf.Variable(0, dtype=tf.int64, name="steps")


@tf.function(input_signature=[tf.TensorSpec((4,), name="x")])
def model(x):
    steps.assign_add(1)
    return tf.linalg.matvec(kernel, x, transpose_a=True)
"""

USER = """\
#include "scratch/fed.h"
#include "scratch/seeded.h"

bool User(t::fed& fed, t::seeded& seeded) { return fed.Run() && seeded.Run(); }
"""

LIBRARIES = ("fed", "frozen", "seeded", "stored")
ACTION = re.compile(r"^SUBCOMMAND: # //scratch:(\S+) \[action '(.*?)'(?:, .*)?, mnemonic: (\w+)\]$", re.MULTILINE)


def weights(value: float) -> dict[str, npt.NDArray[np.float32]]:
    """Returns weights for `WEIGHTED`, multiples of a value."""
    return {
        name: np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape) * np.float32(value)
        for name, shape in (("kernel", (4, 16)), ("bias", (16,)))
    }


class Workspace:
    """A workspace with its own output base."""

    def __init__(self, folder: pathlib.Path) -> None:
        """Creates the workspace in an empty folder."""
        self._root, self._output_base = folder / "workspace", folder / "output_base"
        self._root.mkdir()
        for entry in WORKSPACE.iterdir():
            if entry.name not in (".git", "examples", "tests") and not entry.name.startswith("bazel-"):
                (self._root / entry.name).symlink_to(entry)
        self.package = self._root / "scratch"
        self.package.mkdir()
        # The wheel is already unpacked. Installing it again would test pip.
        (repository,) = (path for path in RUNFILES.iterdir() if path.name.endswith("tfaot_tensorflow"))
        unpacked = pathlib.Path(os.path.realpath(repository / "site-packages")).parent
        self._override = f"--override_repository={repository.name}={unpacked}"

    def write_weights(self, tensors: Mapping[str, npt.NDArray[np.float32]]) -> None:
        """Writes `w.safetensors`."""
        with open(self.package / "w.safetensors", "wb") as file:
            safetensors.write(file, tensors)

    def build(self) -> dict[str, set[tuple[str, str]]]:
        """Builds the entire package. Returns what it ran for each library: mnemonics and progress messages."""
        flags = [self._override, "--symlink_prefix=/", "--color=no", "--curses=no", "--subcommands"]
        # Cached outputs need not be written to the output tree.
        flags.append("--disk_cache=")
        done = subprocess.run(
            [*self._bazel(), "build", *flags, *(f"//scratch:{name}" for name in (*LIBRARIES, "user"))],
            cwd=self._root,
            capture_output=True,
            check=False,
            text=True,
            timeout=1200,
        )
        if done.returncode != 0:
            raise AssertionError(done.stderr[-8000:])
        ran: dict[str, set[tuple[str, str]]] = {name: set() for name in (*LIBRARIES, "user")}
        for target, action, mnemonic in ACTION.findall(done.stderr):
            ran[target.partition(".")[0]].add((mnemonic, action.rpartition("/")[2] if "/" in action else action))
        return ran

    def explained(self, target: str) -> Build:
        """Builds what `//tools:explain` reads of a target, as it does."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self._root.parent))
        flags = [self._override, "--symlink_prefix=/", "--disk_cache="]
        return explain.built(target, self._root, folder, name=target, bazel=self._bazel(), flags=flags)

    def output(self, name: str) -> bytes:
        """Returns the contents of one of the package's outputs."""
        (path,) = self._output_base.glob(f"execroot/*/bazel-out/*/bin/scratch/{name}")
        return path.read_bytes()

    def remove(self) -> None:
        """Stops Bazel and removes everything."""
        subprocess.run([*self._bazel(), "shutdown"], cwd=self._root, check=False, stdout=subprocess.DEVNULL)
        subprocess.run(["chmod", "-R", "u+w", self._output_base], check=True)
        shutil.rmtree(self._root.parent)

    def _bazel(self) -> list[str]:
        return [str(WORKSPACE / "bazelw"), f"--output_base={self._output_base}", "--max_idle_secs=60"]


class RebuildTest(unittest.TestCase):
    """One workspace, built repeatedly."""

    maxDiff = None

    def setUp(self) -> None:
        self.workspace = Workspace(pathlib.Path(tempfile.mkdtemp(dir=os.environ["TEST_TMPDIR"])))
        self.addCleanup(self.workspace.remove)
        for name, text in (
            ("BUILD", BUILD),
            ("weighted.py", WEIGHTED),
            ("seeded.py", SEEDED),
            ("user.cc", USER),
        ):
            (self.workspace.package / name).write_text(text)

    def manifest(self, name: str) -> Manifest:
        """Returns a library's manifest."""
        return Manifest.from_json(self.workspace.output(f"{name}.model.json").decode())

    def test_new_weights(self) -> None:
        """New values of fed weights compile only the file that embeds them. Those of frozen weights compile the code."""
        workspace = self.workspace
        workspace.write_weights(weights(1.25))
        first = workspace.build()
        for name in LIBRARIES:
            stages = {mnemonic for mnemonic, _ in first[name] if mnemonic.startswith("Tfaot")}
            self.assertLessEqual({"TfaotExport", "TfaotCompile", "TfaotRender"}, stages, name)
            self.assertIn(("CppCompile", f"{name}.cc"), first[name])
        self.assertEqual(first["user"], {("CppCompile", "user.cc"), ("CppArchive", "libuser.a")})
        nothing: dict[str, set[tuple[str, str]]] = {name: set() for name in first}
        self.assertEqual(workspace.build(), nothing)
        before = {name: self.manifest(name) for name in LIBRARIES}
        builds = {name: workspace.explained(f"//scratch:{name}") for name in ("fed", "frozen")}

        def taken_in(name: str) -> set[tuple[str, str]]:
            return {
                ("TfaotExport", f"scratch:{name}.export"),
                ("CppCompile", f"{name}.variables.S"),
                ("CppCompile", f"{name}.weights.S"),
                ("CppArchive", f"lib{name}.a"),
            }

        with self.subTest("a file of weights"):
            workspace.write_weights(weights(-3.5))
            ran = workspace.build()
            frozen = ran.pop("frozen")
            self.assertEqual(
                ran,
                {
                    "fed": taken_in("fed"),
                    "seeded": set(),
                    # Its program loads the file.
                    "stored": {("TfaotExport", "scratch:stored.export")},
                    "user": set(),
                },
            )
            self.assertTrue({"TfaotExport", "TfaotCompile"} <= {mnemonic for mnemonic, _ in frozen}, frozen)
            # The new fingerprint is no reason to compile C++.
            compiled = {file for mnemonic, file in frozen if mnemonic == "CppCompile"}
            self.assertEqual(compiled, {"frozen.fingerprint.S"})
            new, old = (weights(value)["bias"].tobytes() for value in (-3.5, 1.25))
            for output in ("libfed.a", "stored.variables.safetensors", "libfrozen.a"):
                data = workspace.output(output)
                self.assertEqual((new in data, old in data), (True, False), output)
            after = {name: self.manifest(name) for name in LIBRARIES}
            for name in ("fed", "seeded", "stored"):
                self.assertEqual(after[name], before[name])
                self.assertEqual((after[name].frozen, after[name].fingerprints.frozen), ((), ""))
            # Identifies the weights in a library that can't load others.
            for was, now in zip(before["frozen"].frozen, after["frozen"].frozen, strict=True):
                self.assertEqual((was.name, was.dtype, was.shape), (now.name, now.dtype, now.shape))
                self.assertNotEqual(was.sha256, now.sha256)
            self.assertEqual({frozen.name for frozen in after["frozen"].frozen}, {"kernel", "bias"})
            self.assertNotEqual(after["frozen"].fingerprints.frozen, before["frozen"].fingerprints.frozen)
            self.assertEqual(after["frozen"].fingerprints.config, before["frozen"].fingerprints.config)

        with self.subTest("the explanation"):
            others = {name: workspace.explained(f"//scratch:{name}") for name in builds}
            self.assertEqual(
                difference.text(builds["fed"], others["fed"]).splitlines()[-1],
                "2 of 2 variables have other initial values: kernel, bias. New values of variables compile no code.",
            )
            (found,) = difference.differences(builds["frozen"], others["frozen"])
            self.assertEqual(found.component, "constants")
            self.assertTrue(
                found.lines[0].startswith("the frozen variable 'kernel', float32[4, 16]: 64 of 64 values differ; ")
            )

        with self.subTest("the seed of initial values"):
            held = workspace.output("seeded.variables.safetensors")
            (workspace.package / "seeded.py").write_text(SEEDED.replace("SEED = 7", "SEED = 8"))
            self.assertEqual(workspace.build(), nothing | {"seeded": taken_in("seeded")})
            holds = workspace.output("seeded.variables.safetensors")
            self.assertNotEqual(held, holds)
            self.assertTrue(holds in workspace.output("libseeded.a"))
            self.assertEqual(self.manifest("seeded"), before["seeded"])

        with self.subTest("back to the first weights"):
            workspace.write_weights(weights(1.25))
            workspace.build()
            self.assertEqual({name: self.manifest(name) for name in LIBRARIES}, before)


if __name__ == "__main__":
    unittest.main()
