"""Explanations of real models, word by word."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
import textwrap
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from tests.core.manifest_test import MANIFEST
from tests.stages.harness import Exported, StageTest, run_main
from tfaot.core import fingerprint, version
from tfaot.core.manifest import Fingerprints, Frozen, Manifest

MODEL = """\
import tensorflow as tf

kernel = tf.Variable(tf.ones((3, 2)), name="kernel")
bias = tf.Variable(tf.zeros((2,)), name="bias")


@tf.function(input_signature=[tf.TensorSpec((4, 3), name="x")])
def model(x):
    hidden = tf.matmul(x, kernel) + bias
    hidden = tf.nn.relu(hidden)
    return {"y": tf.identity(hidden * 0.5)}
"""

LOOP = """\
import tensorflow as tf


@tf.function(input_signature=[tf.TensorSpec((3,), name="x")])
def model(x):
    for _ in tf.range(3):
        x = tf.tanh(x) * 0.5
    return {"y": x}
"""

SPECIALIZED = """\
import numpy as np
import tensorflow as tf

table = np.arange(20000, dtype=np.float32)
small = np.arange(16000, dtype=np.float32)


@tf.function(input_signature=[tf.TensorSpec((2,), tf.int32, name="i"), tf.TensorSpec((2,), tf.int32, name="seed")])
def model(i, seed):
    fixed = tf.random.stateless_uniform([2], seed=[1, 2])
    free = tf.random.stateless_uniform([2], seed=seed) + tf.random.uniform([2], seed=5)
    return {"y": tf.gather(table, i) + tf.gather(small, i) + fixed + free}
"""

WEIGHTS = {"kernel": np.arange(6, dtype=np.float32).reshape(3, 2), "bias": np.ones(2, np.float32)}

FILES = {"manifest": "model.json", "graph": "pb", "sources": "sources.json", "variables": "variables.safetensors"}

STAMPED: dict[str, Any] = {"isa": ("x86-64-v3",), "xla_flags": (), "passes": ("erfc",)}
"""What the compile stage is asked for, if a test doesn't say otherwise."""


class FIRST:
    """Where the model is that others are compared with."""

    folder: Path | None = None


class ExplainTest(StageTest):
    """Each test lays files out as the rules do, and reads them as the tool does."""

    def laid_out(self, exported: Exported, manifest: Manifest | None = None, **changes: Any) -> str:
        """Copies an exported model, with a changed manifest or other flags. Returns the manifest's path."""
        manifest = manifest or exported.manifest
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        for output, name in FILES.items():
            shutil.copyfile(exported.path(output), folder / f"m.{name}")
        (folder / "m.model.json").write_text(manifest.to_json())
        # The compile stage writes the same, as its own test shows.
        (folder / "m.fingerprint.json").write_text(fingerprint.stamp(manifest, **STAMPED | changes).to_json())
        return str(folder / "m.model.json")

    def exported(self, model: str, **changes: Any) -> str:
        """Exports a model and lays it out."""
        return self.laid_out(self.export(model, **{"frozen": ()} | changes))

    @property
    def first(self) -> Exported:
        """The model that others are compared with, exported once."""
        if FIRST.folder is None:
            exported = self.export(MODEL, frozen=())
            FIRST.folder = Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
            unittest.addModuleCleanup(shutil.rmtree, FIRST.folder)
            shutil.copytree(exported.folder, FIRST.folder, dirs_exist_ok=True)
        return Exported(FIRST.folder)

    def text(self, old: str, new: str) -> str:
        """Returns what the tool prints about two builds."""
        from tfaot.explain import build, difference

        return difference.text(build.read(old, "OLD"), build.read(new, "NEW"))

    def lines(self, component: str, old: str, new: str) -> list[str]:
        """Returns what is said about a component, which must be the only one that differs."""
        from tfaot.explain import build, difference

        (only,) = difference.differences(build.read(old, "OLD"), build.read(new, "NEW"))
        self.assertEqual(only.component, component)
        return list(only.lines)

    def changed(self, component: str, change: Callable[[Manifest], Manifest]) -> list[str]:
        """Returns what is said if a part of the manifest changes that the export stage would fingerprint."""
        new = change(MANIFEST)
        prints = {"shapes": fingerprint.shapes(new, "0"), "config": fingerprint.config(new)}
        old = {"shapes": fingerprint.shapes(MANIFEST, "0"), "config": fingerprint.config(MANIFEST)}
        one, two = (
            dataclasses.replace(manifest, fingerprints=Fingerprints(graph="0", constants="0", frozen="", **values))
            for manifest, values in ((MANIFEST, old), (new, prints))
        )
        return self.lines(component, self.bare(one), self.bare(two))

    def bare(self, manifest: Manifest) -> str:
        """Lays out a handwritten manifest with an empty graph."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        (folder / "m.model.json").write_text(manifest.to_json())
        (folder / "m.pb").write_bytes(b"")
        return str(folder / "m.model.json")


class DifferenceTest(ExplainTest):
    """Two builds."""

    def test_graph(self) -> None:
        """Names the first nodes that differ, with their lines and what they were, and only counts what follows from them."""
        old = self.laid_out(self.first)
        for before, after, wanted in (
            (
                "tf.nn.relu(hidden)",
                "tf.nn.softplus(hidden)",
                [
                    "'Softplus' at model.py:10: the op is Softplus, was Relu; it was 'Relu' at model.py:10",
                    "what follows from there differs, too: 4 nodes",
                ],
            ),
            (
                "    hidden = tf.nn.relu(hidden)\n",
                "",
                [
                    "'mul' at model.py:10: it takes 'add' and 'mul/y', took 'Relu' and 'mul/y'",
                    "'Relu' at model.py:10 (Relu) is gone",
                    "what follows from there differs, too: 3 nodes",
                ],
            ),
            (
                "tf.nn.relu(hidden)",
                "tf.nn.relu(hidden + hidden)",
                [
                    "'add_1' at model.py:10 (AddV2) is new: it takes 'add' and 'add'",
                    "what follows from there differs, too: 5 nodes",
                ],
            ),
            (
                "(x, kernel)",
                "(x, kernel, grad_a=True)",
                [
                    "'MatMul' at model.py:9: the attribute grad_a is True, was False",
                    "what follows from there differs, too: 6 nodes",
                ],
            ),
        ):
            with self.subTest(after):
                self.assertIn(before, MODEL)
                self.assertEqual(self.lines("graph", old, self.exported(MODEL.replace(before, after))), wanted)

    def test_graph_without_other_nodes(self) -> None:
        """Says what differs if no node does: how often there is one, or which one makes an output."""
        two = MODEL.replace("{", '{"z": tf.identity(hidden), ')
        swapped = MODEL.replace(
            '"y": tf.identity(hidden * 0.5)', '"y": tf.identity(hidden), "z": tf.identity(hidden * 0.5)'
        )
        self.assertEqual(
            self.lines("graph", self.exported(two), self.exported(swapped)),
            ["output y comes from 'y', came from another node", "output z comes from 'z', came from another node"],
        )

    def test_loops(self) -> None:
        """Looks into the bodies of loops, and doesn't report the loop itself as another difference."""
        old = self.exported(LOOP)
        self.assertEqual(
            self.lines("graph", old, self.exported(LOOP.replace("tanh", "sin"))),
            [
                "'while_body_17/while/Sin' at model.py:7: the op is Sin, was Tanh; it was 'while_body_17/while/Tanh' at "
                "model.py:7",
                "what follows from there differs, too: 4 nodes",
            ],
        )
        self.assertEqual(
            self.lines("constants", old, self.exported(LOOP.replace("0.5", "0.25"))),
            ["'while_body_17/while/mul/y' at model.py:7, float32[]: 0.25, was 0.5"],
        )

    def test_frozen(self) -> None:
        """A frozen variable whose value changes gets the advice to feed it, and freezing itself is named."""
        old = self.laid_out(self.export(MODEL, weights=WEIGHTS, frozen=("*",)))
        other = WEIGHTS | {"bias": np.zeros(2, np.float32), "kernel": 2 * WEIGHTS["kernel"]}
        why = "it is a constant, so that each change compiles the code again. To do, if it changes often: frozen = "
        self.assertEqual(
            self.lines("constants", old, self.laid_out(self.export(MODEL, weights=other, frozen=("*",)))),
            [
                f'the frozen variable \'kernel\', float32[3, 2]: 5 of 6 values differ; {why}["*", "!kernel"] on the target',
                f'the frozen variable \'bias\', float32[2]: [0., 0.], was [1., 1.]; {why}["*", "!bias"] on the target',
            ],
        )
        fed = self.laid_out(self.first)
        self.assertIn("  * the variable 'bias' is frozen, was fed: it is a constant of the code\n", self.text(fed, old))
        self.assertIn("  * the variable 'bias' is fed, was frozen\n", self.text(old, fed))
        self.assertIn("  * variable kernel, float32[3, 2], is gone\n", self.text(fed, old))
        self.assertIn(
            "constants:\n  * constants are new, gone, or in another place: see graph and shapes\n", self.text(fed, old)
        )

    def test_compile_stage(self) -> None:
        """Flags, passes, versions, and levels are named as the target names them."""
        old = self.laid_out(self.first, xla_flags=("--a=1", "--b"))
        for component, change, wanted in (
            ("flags", {"passes": ("winograd",)}, ["the pass winograd is on, was off", "the pass erfc is off, was on"]),
            ("flags", {"xla_flags": ("--b", "--c")}, ["the XLA flag --c is new", "the XLA flag --a=1 is gone"]),
            ("flags", {"xla_flags": ("--b", "--a=1")}, ["XLA's flags are --b --a=1, were --a=1 --b"]),
            (
                "isa",
                {"isa": ("x86-64", "x86-64-v2", "x86-64-v3")},
                ["the code is for x86-64, x86-64-v2, and x86-64-v3, was for x86-64-v3"],
            ),
        ):
            new = self.laid_out(self.first, **{"xla_flags": ("--a=1", "--b")} | change)
            self.assertEqual(self.lines(component, old, new), wanted)
        with mock.patch.object(version, "RULES", "99"):
            manifest = dataclasses.replace(self.first.manifest, tensorflow="3.0")
            new = self.laid_out(self.first, manifest, xla_flags=("--a=1", "--b"))
        self.assertEqual(
            self.lines("compiler", old, new),
            ["TensorFlow is 3.0, was 2.21.0", f"rules_tfaot is 99, was {version.RULES}"],
        )

    def test_shapes(self) -> None:
        """Names what has another shape, dtype, or batch."""
        for change, wanted in (
            (lambda m: _input(m, shape=(5, 3)), ["input x is float32[5, 3], was float32[2, 3]"]),
            (
                lambda m: _input(m, dtype="bfloat16", stored="uint16"),
                ["input x is bfloat16[2, 3] as uint16, was float32[2, 3]"],
            ),
            (lambda m: _input(m, batched=True), ["input x is float32[2, 3], batched, was float32[2, 3]"]),
            (lambda m: _variable(m, shape=(4,)), ["variable w is float32[4], was float32[3]"]),
            (lambda m: dataclasses.replace(m, variables=m.variables[1:]), ["variable w, float32[3], is gone"]),
            (lambda m: dataclasses.replace(m, max_batch=65), ["the largest batch is 65, was 64"]),
            (
                lambda m: _entry(m, 1, batch_sizes=(1, 4, 8)),
                ["Look is compiled for batches of 1, 4, and 8, was for batches of 1 and 8"],
            ),
            (lambda m: _entry(m, 1, batch_sizes=()), ["Look is compiled for no batches, was for batches of 1 and 8"]),
        ):
            with self.subTest(wanted[0]):
                if "is gone" in wanted[0]:
                    self.assertIn(wanted[0], self.both(change))
                else:
                    self.assertEqual(self.changed("shapes", change), wanted)

    def both(self, change: Callable[[Manifest], Manifest]) -> list[str]:
        """Returns what is said about shapes if config differs, too."""
        from tfaot.explain import build, difference

        new = change(MANIFEST)
        prints = Fingerprints("0", "1", "0", "1", "")
        one, two = self.bare(MANIFEST), self.bare(dataclasses.replace(new, fingerprints=prints))
        return [
            line for part in difference.differences(build.read(one, ""), build.read(two, "")) for line in part.lines
        ]

    def test_config(self) -> None:
        """Names what is called otherwise, and what is written now."""
        for change, wanted in (
            (lambda m: dataclasses.replace(m, cpp_class="a::C"), ["the class is a::C, was a::B"]),
            (lambda m: _input(m, cpp_name="image"), ["input image was called x"]),
            (lambda m: _variable(m, name="weight"), ["variable weight was called w"]),
            (lambda m: _variable(m, cpp_name="weight"), ["variable w is weight() in C++, was w()"]),
            (lambda m: _variable(m, written=False), ["the model only reads variable w, wrote it before"]),
            (lambda m: _entry(m, 0, cpp_name="Learn"), ["entry point Learn was called Train"]),
            (lambda m: dataclasses.replace(m, random_state="w"), ["the model draws random numbers"]),
            (
                lambda m: _entry(m, 1, variables=m.entry_points[1].variables[::-1]),
                ["which variables an entry point uses or writes, or in which order, differs"],
            ),
            (
                lambda m: _entry(m, 0, inputs=m.entry_points[0].inputs[::-1]),
                ["the order of inputs is n, x, Look_z, was x, n, Look_z"],
            ),
        ):
            with self.subTest(wanted[0]):
                lines = self.both(change) if "order of inputs" in wanted[0] else self.changed("config", change)
                for line in wanted:
                    self.assertIn(line, lines)

    def test_whole_text(self) -> None:
        """The tool itself prints components that differ, then those that don't, and advice about the new build."""
        old = self.laid_out(self.first)
        text = (
            MODEL.replace("(x, kernel)", "(x, kernel, grad_a=True)").replace("0.5", "0.25").replace("(4, 3)", "(5, 3)")
        )
        exported = self.export(text, frozen=(), weights=WEIGHTS)
        new = self.laid_out(exported, isa=("x86-64-v2", "x86-64-v4"))
        done = run_main("explain", old, new)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(
            done.stdout.replace(old, "OLD").replace(new, "NEW"),
            textwrap.dedent(
                """\
                These builds differ in graph, shapes, constants, and isa:
                  old: OLD
                  new: NEW

                graph:
                  * 'MatMul' at model.py:9: the attribute grad_a is True, was False
                  * what follows from there differs, too: 6 nodes

                shapes:
                  * input x is float32[5, 3], was float32[4, 3]
                  * output y is float32[5, 2], was float32[4, 2]

                constants:
                  * 'mul/y' at model.py:11, float32[]: 0.25, was 0.5

                isa:
                  * the code is for x86-64-v2 and x86-64-v4, was for x86-64-v3

                The same in both: config, flags, and compiler.
                2 of 2 variables have other initial values: kernel, bias. New values of variables compile no code.
                """
            ),
        )

    def test_same(self) -> None:
        """Builds that are the same are said to be, with what differs and doesn't count."""
        old = self.laid_out(self.first)
        stamp = fingerprint.stamp(self.first.manifest, **STAMPED).fingerprint
        same = f"These builds are the same, with the fingerprint {stamp}:\n  old: OLD\n  new: NEW\n"
        self.assertEqual(self.text(old, old), same)
        self.assertEqual(
            self.text(old, self.exported(MODEL.replace("kernel)", 'kernel, name="p")'))),
            same + "\n1 node has another name, which doesn't count: 'MatMul' at model.py:9 is now 'p' at model.py:9.\n",
        )
        moved = self.exported(MODEL.replace("    hidden = tf.nn", "\n    hidden = tf.nn"))
        self.assertEqual(
            self.text(old, moved),
            same
            + "\n4 nodes come from another line, which doesn't count: 'Relu' at model.py:10 is now 'Relu' at model.py:11.\n",
        )
        alone = self.bare(MANIFEST)
        self.assertEqual(
            self.text(alone, alone),
            "These builds are of the same model, as far as the export stage knows:\n  old: OLD\n  new: NEW\n\n"
            "Flags, the compiler, and CPU levels aren't compared, because NAME.fingerprint.json is missing.\n",
        )

    def test_many_differences(self) -> None:
        """Prints five differences of a component, and counts the others."""
        manifest = dataclasses.replace(
            MANIFEST,
            fingerprints=Fingerprints("0", "0", "0", "0", ""),
            entry_points=MANIFEST.entry_points[:1],
            variables=(),
        )
        text = self.text(self.bare(MANIFEST), self.bare(manifest))
        self.assertRegex(text, r"config:\n(  \* [^\n]*\n){5}  \* and \d+ more\n")


class SpecializedTest(ExplainTest):
    """One build."""

    def specialized(self, path: str, **options: Any) -> str:
        """Returns what the tool prints about a build."""
        from tfaot.explain import build, specialized

        return specialized.text(build.read(path, "IT"), **options)

    def test_constants_and_seeds(self) -> None:
        """Names constants that are large, and seeds that are constants, with their lines; and no others."""
        done = run_main("explain", path := self.exported(SPECIALIZED))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(
            done.stdout.replace(path, "IT"),
            "IT is specialized to:\n"
            "  * the constant 'GatherV2/params' at model.py:12, float32[20000], 80,000 bytes: each new value compiles the code "
            "again. To do, if it can change: make it a tf.Variable, or an input\n"
            "  * the seed of 'stateless_random_uniform/StatelessRandomGetKeyCounter/random/StatelessRandomUniformFullIntV2' at "
            "model.py:10, which is a constant: every "
            "run draws the same numbers. To do, if runs should differ: make the seed an input, or draw with tf.random.uniform "
            "and its like, which follow Seed()\n",
        )

    def test_nothing(self) -> None:
        """A model without needless constants is said to have none."""
        self.assertEqual(
            self.specialized(self.laid_out(self.first)),
            "IT isn't specialized to anything that could be an input or a variable.\n",
        )

    def test_frozen(self) -> None:
        """Names frozen variables that the user says change, or that the other build writes; a pattern must match one."""
        from tfaot.explain import build, specialized

        frozen = dataclasses.replace(
            MANIFEST, variables=(), frozen=tuple(Frozen(n, "float32", (), "0" * 64) for n in ("w", "f"))
        )
        path = self.bare(frozen)
        advice = 'each new value compiles the code again. To do: frozen = ["*", "!w"] on the target keeps it out of the code\n'
        self.assertEqual(
            self.specialized(path, changes=["w*"]),
            f"IT is specialized to:\n  * the frozen variable 'w', which you say changes: {advice}",
        )
        self.assertEqual(
            self.specialized(path, before=build.read(self.bare(MANIFEST), "//a:training")),
            f"IT is specialized to:\n  * the frozen variable 'w', which //a:training writes: {advice}",
        )
        self.assert_error(
            self.error_of(specialized.findings, build.read(path, "IT"), changes=["head/*"]),
            """
            --changes="head/*" matches no variable of IT
              found: w, f
              to do: write a whole name, or a pattern such as "head/*"
            """,
        )

    def test_seed_attributes(self) -> None:
        """An op that still has its seed as an attribute is named with it."""
        from tensorflow.core.framework import graph_pb2

        path = self.laid_out(self.first)
        graph = graph_pb2.GraphDef()
        graph.ParseFromString(Path(path).with_name("m.pb").read_bytes())
        (relu,) = [node for node in graph.node if node.op == "Relu"]
        relu.op = "ParameterizedTruncatedNormal"
        relu.attr["seed2"].i = 7
        Path(path).with_name("m.pb").write_bytes(graph.SerializeToString())
        self.assertIn(
            "  * the seed of 'Relu' at model.py:10 (seed2 = 7), which is a constant: every run", self.specialized(path)
        )


class ErrorsTest(ExplainTest):
    """What the tool refuses."""

    def test_files(self) -> None:
        """A file that isn't a manifest, and one whose graph is missing."""
        from tfaot.explain import build

        path = self.bare(MANIFEST)
        Path(path).with_name("m.pb").unlink()
        self.assert_error(
            self.error_of(build.read, path, ""),
            f"""
            {path}: the graph of this build is missing
              found: m.model.json
              to do: put m.pb next to the manifest; the output group explain has both
            """,
        )
        for name, exists in (("no.model.json", "no such file"), ("m.pb", "a manifest's name ends in .model.json")):
            other = str(Path(path).with_name(name))
            if name == "m.pb":
                Path(other).write_bytes(b"")
            self.assert_error(
                self.error_of(build.read, other, ""),
                f"""
                {other} isn't the manifest of a build
                  found: {exists}
                  to do: name a tf_aot_library, or the file NAME.model.json of its output group explain
                """,
            )

    def test_arguments(self) -> None:
        """Three builds, or two commits and two targets."""
        for arguments, asked in (
            (("//a", "//b", "//c"), "explain is given 3 builds\n  found: //a, //b, //c"),
            (("--commits", "x", "y", "//a", "//b"), "explain is given 2 builds and two commits\n  found: //a, //b"),
        ):
            done = run_main("explain", *arguments)
            self.assertEqual(
                (done.returncode, done.stderr),
                (1, f"error: {asked}\n  to do: name one build or two, or two commits and one target\n"),
            )


def _entry(manifest: Manifest, index: int, **changes: Any) -> Manifest:
    entries = [*manifest.entry_points]
    entries[index] = dataclasses.replace(entries[index], **changes)
    return dataclasses.replace(manifest, entry_points=tuple(entries))


def _input(manifest: Manifest, **changes: Any) -> Manifest:
    first, *others = manifest.entry_points[0].inputs
    return _entry(manifest, 0, inputs=(dataclasses.replace(first, **changes), *others))


def _variable(manifest: Manifest, **changes: Any) -> Manifest:
    first, *others = manifest.variables
    return dataclasses.replace(manifest, variables=(dataclasses.replace(first, **changes), *others))


if __name__ == "__main__":
    unittest.main()
