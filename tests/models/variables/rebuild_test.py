"""What is rebuilt after a change: starts Bazel in a separate workspace, and reads the events of its builds.

The workspace consists of links to this one, plus packages whose files the tests can change. All tests share the workspace
and its server, and each has a package of its own.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
from collections.abc import Mapping

import inner
import numpy as np
import numpy.typing as npt

from tfaot.core import safetensors
from tfaot.core.manifest import Manifest
from tfaot.explain import bazel as explain
from tfaot.explain import difference
from tfaot.explain.build import Build

BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_library")
load("//rules:defs.bzl", "tf_aot_library", "tf_model")

MODELS = {"fed": [], "frozen": None, "stored": []}

[
    tf_model(name = name + ".model", frozen = frozen, source = "weighted.py", weights = "w.safetensors")
    for name, frozen in MODELS.items()
]

[
    tf_aot_library(name = name, cpp_class = "t::" + name, embed_variables = name != "stored", model = name + ".model")
    for name in MODELS
]

tf_aot_library(name = "seeded", cpp_class = "t::seeded", model = "seeded.py")

cc_library(name = "user", srcs = ["user.cc"], linkstatic = True, deps = [":fed", ":seeded"])
"""

ONE = """\
load("//rules:defs.bzl", "tf_aot_library")

tf_aot_library(name = "seeded", cpp_class = "t::seeded", model = "seeded.py")
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
    product = tf.linalg.matvec(kernel, x, transpose_a=True)
    return product
"""

USER = """\
#include "scratch/fed.h"
#include "scratch/seeded.h"

bool User(t::fed& fed, t::seeded& seeded) { return fed.Run() && seeded.Run(); }
"""

LIBRARIES = ("fed", "frozen", "seeded", "stored")
MODELS = 6
MANY = """\
load("//rules:defs.bzl", "tf_aot_library", "tf_model")

[tf_model(name = "m%%d.model" %% n, signature = {"x": "float32[2]"}, source = "m%%d.py" %% n) for n in range(%d)]

[tf_aot_library(name = "m%%d" %% n, cpp_class = "m::M%%d" %% n, model = "m%%d.model" %% n) for n in range(%d)]
"""

MEMORY = """\
load("//rules:defs.bzl", "tf_aot_library", "tf_model")

[
    [
        tf_model(name = "%s%d.model" % (name, n), signature = {"x": "float32[2]"}, source = "%s%d.py" % (name, n), tags = tags),
        tf_aot_library(name = name + str(n), cpp_class = "m::" + name, model = "%s%d.model" % (name, n)),
    ]
    for name, tags in [
        ("large", ["resources:memory:6000"]),
        ("small", []),
    ]
    for n in range(2)
]
"""


def weights(value: float) -> dict[str, npt.NDArray[np.float32]]:
    """Returns weights for `WEIGHTED`, multiples of a value."""
    return {
        name: np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape) * np.float32(value)
        for name, shape in (("kernel", (4, 16)), ("bias", (16,)))
    }


class Workspace:
    """A workspace with its own output base and server."""

    def __init__(self, folder: pathlib.Path) -> None:
        """Creates the workspace in an empty folder, which contains it and its output base."""
        self._root, self._output_base = folder / "workspace", folder / "output_base"
        self._root.mkdir(parents=True)
        for entry in inner.ROOT.iterdir():
            if entry.name not in (".git", "examples", "tests") and not entry.name.startswith("bazel-"):
                (self._root / entry.name).symlink_to(entry)
        # The wheel is already unpacked. Installing it again would test pip.
        name, unpacked = inner.tensorflow()
        self._override = f"--override_repository={name}={unpacked}"

    def package(self, name: str, **files: str) -> pathlib.Path:
        """Creates a package with a BUILD file and Python or C++ files, whose names have `_` for the dot. Returns its folder."""
        folder = self._root / name
        folder.mkdir()
        for file, text in files.items():
            (folder / file.replace("_", ".")).write_text(text)
        return folder

    def build(self, *, cached: bool = False) -> dict[str, set[tuple[str, str]]]:
        """Builds all of `//scratch`. Returns what it ran for each library: mnemonics and what they made."""
        ran: dict[str, set[tuple[str, str]]] = {name: set() for name in (*LIBRARIES, "user")}
        for action in self.actions(*(f"//scratch:{name}" for name in ran), cached=cached).done:
            target = action.label.removeprefix("//scratch:")
            if target.partition(".")[0] in ran:
                ran[target.partition(".")[0]].add((action.mnemonic, action.made))
        return ran

    def actions(self, *arguments: str, cached: bool = False) -> Actions:
        """Builds targets, and returns what Bazel did.

        Args:
          *arguments: targets and flags.
          cached: whether to use the disk cache. For that, Bazel reads the list of TensorFlow's files.
        """
        # An execution log would list these files for each stage, which takes longer than most stages.
        path = self._root.parent / "events.json"
        flags = [
            self._override,
            *inner.SHARED,
            "--symlink_prefix=/",
            "--color=no",
            "--curses=no",
            *([] if cached else ["--disk_cache="]),
            "--remote_download_outputs=all",
            f"--build_event_json_file={path}",
            "--build_event_publish_all_actions",
        ]
        done = subprocess.run(
            [*self._bazel(), "build", *flags, *arguments],
            cwd=self._root,
            capture_output=True,
            check=False,
            text=True,
            timeout=1200,
        )
        if done.returncode != 0:
            raise AssertionError(done.stderr[-8000:])
        return read(path.read_text())

    def explained(self, target: str) -> Build:
        """Builds what `//tools:explain` reads of a target, as it does."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self._root.parent))
        flags = [self._override, inner.UNOPTIMIZED, "--symlink_prefix=/", "--disk_cache="]
        return explain.built(target, self._root, folder, name=target, bazel=self._bazel(), flags=flags)

    def output(self, name: str) -> bytes:
        """Returns the contents of an output of `//scratch`."""
        (path,) = self._output_base.glob(f"execroot/*/bazel-out/*/bin/scratch/{name}")
        return path.read_bytes()

    def remove(self) -> None:
        """Stops Bazel and removes everything."""
        subprocess.run([*self._bazel(), "shutdown"], cwd=self._root, check=False, stdout=subprocess.DEVNULL)
        subprocess.run(["chmod", "-R", "u+w", self._output_base], check=True)
        shutil.rmtree(self._root.parent)

    def _bazel(self) -> list[str]:
        return [str(inner.ROOT / "bazelw"), f"--output_base={self._output_base}", *inner.STARTUP]


@dataclasses.dataclass(frozen=True)
class Action:
    """An action that Bazel ran, or took from the disk cache."""

    mnemonic: str
    label: str
    """The target."""
    made: str
    """What it is about: a C++ source, a library, or a stage's target."""


@dataclasses.dataclass(frozen=True)
class Actions:
    """What a build did."""

    done: tuple[Action, ...]
    """All that wasn't up to date."""
    runners: Mapping[str, int]
    """How many of them ran in a worker, came from the disk cache, and so on."""


def read(text: str) -> Actions:
    """Reads the events of a build, one a line."""
    done, runners = [], {}
    for line in text.splitlines():
        event = json.loads(line)
        if "action" in event:
            assert event["action"].get("success"), event
            mnemonic, label = event["action"]["type"], event["id"]["actionCompleted"].get("label", "")
            made = label.removeprefix("//")
            if mnemonic == "CppCompile":
                arguments = event["action"]["commandLine"]
                made = arguments[arguments.index("-c") + 1].rpartition("/")[2]
            elif mnemonic == "CppArchive":
                made = event["id"]["actionCompleted"]["primaryOutput"].rpartition("/")[2]
            # Bazel itself writes files and links. Only what it ran makes a difference.
            if mnemonic in ("CppArchive", "CppCompile", "CppLink") or mnemonic.startswith("Tfaot"):
                done.append(Action(mnemonic, label, made))
        elif "buildMetrics" in event:
            counts = event["buildMetrics"]["actionSummary"].get("runnerCount", [])
            runners = {count["name"]: count["count"] for count in counts}
    return Actions(tuple(done), runners)


class RebuildTest(unittest.TestCase):
    """Several builds of a package, one after another."""

    maxDiff = None

    folder: pathlib.Path
    workspace: Workspace

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ["TEST_TMPDIR"]))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.workspace = cls.checkout("one")

    @classmethod
    def checkout(cls, name: str) -> Workspace:
        """Returns a workspace in a folder of its own."""
        workspace = Workspace(cls.folder / name)
        cls.addClassCleanup(workspace.remove)
        return workspace

    def manifest(self, name: str) -> Manifest:
        """Returns a library's manifest."""
        return Manifest.from_json(self.workspace.output(f"{name}.model.json").decode())

    def test_new_weights(self) -> None:
        """New values of fed weights compile only the file that embeds them. Those of frozen weights compile the code."""
        workspace = self.workspace
        package = workspace.package("scratch", BUILD=BUILD, weighted_py=WEIGHTED, seeded_py=SEEDED, user_cc=USER)

        def write_weights(value: float) -> None:
            with open(package / "w.safetensors", "wb") as file:
                safetensors.write(file, weights(value))

        write_weights(1.25)
        first = workspace.build(cached=True)
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
                ("TfaotExport", f"scratch:{name}.model"),
                ("TfaotName", f"scratch:{name}.export"),
                ("CppCompile", f"{name}.variables.S"),
                ("CppCompile", f"{name}.weights.S"),
                ("CppArchive", f"lib{name}.a"),
            }

        with self.subTest("a file of weights"):
            write_weights(-3.5)
            ran = workspace.build()
            frozen = ran.pop("frozen")
            self.assertEqual(
                ran,
                {
                    "fed": taken_in("fed"),
                    "seeded": set(),
                    # Its program loads the file.
                    "stored": {("TfaotExport", "scratch:stored.model"), ("TfaotName", "scratch:stored.export")},
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
            (change,) = difference.differences(builds["frozen"], others["frozen"])
            self.assertEqual(change.component, "constants")
            self.assertTrue(
                change.lines[0].startswith("the frozen variable 'kernel', float32[4, 16]: 64 of 64 values differ; ")
            )

        with self.subTest("the seed of initial values"):
            held = workspace.output("seeded.variables.safetensors")
            (package / "seeded.py").write_text(SEEDED.replace("SEED = 7", "SEED = 8"))
            self.assertEqual(workspace.build(), nothing | {"seeded": taken_in("seeded")})
            holds = workspace.output("seeded.variables.safetensors")
            self.assertNotEqual(held, holds)
            self.assertTrue(holds in workspace.output("libseeded.a"))
            self.assertEqual(self.manifest("seeded"), before["seeded"])

        exported = nothing | {"seeded": {("TfaotExport", "scratch:seeded.model")}}
        text = (package / "seeded.py").read_text()
        with self.subTest("a comment that moves all lines"):
            (package / "seeded.py").write_text("# A comment.\n\n" + text)
            self.assertEqual(workspace.build(), exported)

        with self.subTest("a renamed local of the model's code"):
            (package / "seeded.py").write_text(text.replace("product", "renamed"))
            self.assertEqual(workspace.build(), exported)

        with self.subTest("a moved file"):
            (package / "seeded.py").rename(package / "moved.py")
            (package / "BUILD").write_text(BUILD.replace("seeded.py", "moved.py"))
            self.assertEqual(workspace.build(), exported)

        with self.subTest("back to the first weights"):
            write_weights(1.25)
            workspace.build(cached=True)
            self.assertEqual({name: self.manifest(name) for name in LIBRARIES}, before)

    def test_another_folder(self) -> None:
        """A checkout in another folder, with another output base, gets everything from the cache that the first one filled."""
        first = self.built(self.workspace)
        own = [action for action in first.done if action.label.startswith("//other:")]
        self.assertLessEqual({"TfaotExport", "TfaotCompile", "TfaotVerify"}, {action.mnemonic for action in own})
        again = self.built(self.checkout("two/deeper"))
        self.assertLessEqual({*own}, {*again.done})
        self.assertLessEqual(len(own), again.runners.get("disk cache hit", 0))
        self.assertLessEqual(again.runners.keys(), {"total", "internal", "disk cache hit"})

    def built(self, workspace: Workspace) -> Actions:
        """Builds a package that has one model."""
        workspace.package("other", BUILD=ONE, seeded_py=SEEDED)
        return workspace.actions("//other:seeded", "//other:seeded_test", cached=True)

    def test_one_of_many(self) -> None:
        """A change in one of many models runs the export of this one, and nothing of the others."""
        models = {f"m{number}_py": f"def model(x):\n    return x + {number}.0\n" for number in range(MODELS)}
        package = self.workspace.package("many", BUILD=MANY % (MODELS, MODELS), **models)
        flags = ["--output_groups=graph", *(f"//many:m{number}" for number in range(MODELS))]
        self.assertEqual(len(self.workspace.actions(*flags).done), MODELS)
        self.assertEqual(self.workspace.actions(*flags).done, ())
        (package / "m4.py").write_text("def model(x):\n    return x - 17.0\n")
        self.assertEqual([action.made for action in self.workspace.actions(*flags).done], ["many:m4.model"])

    def test_memory(self) -> None:
        """Stages that don't fit into memory together run one after the other: by their kind, or by the target's tag."""
        models = {
            f"{name}{n}_py": f"def model(x):\n    return x * {n}.5\n" for name in ("large", "small") for n in range(2)
        }
        self.workspace.package("memory", BUILD=MEMORY, **models)
        profile = pathlib.Path(self.folder, "profile.json")
        flags = ("--output_groups=graph", "--jobs=2", "--local_cpu_resources=2", f"--profile={profile}")
        for name, memory in (("small", 1400), ("large", 8000)):
            targets = [f"//memory:{name}{n}" for n in range(2)]
            self.workspace.actions(*flags, f"--local_ram_resources={memory}", *targets)
            events = json.loads(profile.read_text())["traceEvents"]
            work = sorted(
                (e["ts"], e["ts"] + e["dur"]) for e in events if e["name"].endswith(" working") and "dur" in e
            )
            (_, end), (start, _) = work
            self.assertLessEqual(end, start, work)


if __name__ == "__main__":
    unittest.main()
