"""Fingerprints of real models: each change shows in its own component, and what means nothing shows in none."""

from __future__ import annotations

import dataclasses
import re
import unittest
from pathlib import Path
from typing import Any

import numpy as np

from tests.stages.harness import Exported, StageTest
from tfaot.core import naming

MODEL = """\
import tensorflow as tf

kernel = tf.Variable(tf.ones((3, 2)), name="kernel")
bias = tf.Variable(tf.zeros((2,)), name="bias")
steps = tf.Variable(0, name="steps")


def halved(t, i):
    return t * 0.5


@tf.function(input_signature=[tf.TensorSpec((4, 3), name="x")])
def model(x):
    steps.assign_add(1)
    hidden = tf.matmul(x, kernel, name="product") + bias
    for i in tf.range(3):
        hidden = halved(hidden, i)
    return {"y": tf.nn.relu(hidden, name="out")}
"""
"""A model with a constant in a loop's body, whose variables are fed."""

WEIGHTS = {
    "kernel": np.arange(6, dtype=np.float32).reshape(3, 2),
    "bias": np.ones(2, np.float32),
    "steps": np.array(0, np.int32),
}


class FingerprintTest(StageTest):
    """Each test exports a changed model, and compares it with the first."""

    first: dict[str, str] | None = None

    def components(self, model: str = MODEL, **changes: Any) -> dict[str, str]:
        """Returns the fingerprints of a model."""
        return dataclasses.asdict(self.export(model, **changes).manifest.fingerprints)

    def changed(self, old: str = "", new: str = "", **changes: Any) -> set[str]:
        """Returns which components differ after a replacement in the model's text, which must have an effect there."""
        if FingerprintTest.first is None:
            FingerprintTest.first = self.components()
        if old:
            self.assertIn(old, MODEL)
        found = self.components(MODEL.replace(old, new) if old else MODEL, **changes)
        return {name for name, value in found.items() if value != FingerprintTest.first[name]}

    def test_class(self) -> None:
        """A class that is named after export has the manifest and the weights of one that export named."""
        named, unnamed = self.export(MODEL), self.export(MODEL, cpp_class="")
        naming.name(
            naming.Request(
                unnamed.path("manifest"),
                unnamed.path("weights"),
                named.manifest.cpp_class,
                unnamed.path("named"),
                unnamed.path("assembly"),
            )
        )
        for one, other in (("manifest", "named"), ("weights", "assembly")):
            self.assertEqual(Path(named.path(one)).read_text(), Path(unnamed.path(other)).read_text())

    def test_what_means_nothing(self) -> None:
        """Protects builds from needless work: comments, lines, and names inside the model aren't part of what it computes."""
        self.assertEqual(self.changed(), set(), "another folder")
        self.assertEqual(self.changed("import", "# A comment.\n\nimport"), set(), "a comment, and other lines")
        self.assertEqual(self.changed("hidden", "activations"), set(), "a local variable")
        self.assertEqual(self.changed("halved", "scaled"), set(), "a function, and its parameters")
        self.assertEqual(self.changed('"product"', '"a/z"'), set(), "a node")
        self.assertEqual(self.changed('"out"', '"a"'), set(), "an output's node, whose member has another name")

    def test_graph(self) -> None:
        """An op, an attribute, and an edge are parts of the graph."""
        self.assertEqual(self.changed("tf.nn.relu", "tf.nn.softplus"), {"graph"})
        self.assertEqual(self.changed("tf.nn.relu(hidden", "tf.nn.leaky_relu(hidden, 0.25"), {"graph"})
        self.assertEqual(self.changed("steps.assign_add(1)", "steps.assign_sub(1)"), {"graph"})
        self.assertEqual(self.changed("return t * 0.5", "return t + 0.5"), {"graph"}, "an op in a loop's body")

    def test_shapes(self) -> None:
        """An input's size shows in shapes."""
        self.assertEqual(self.changed("(4, 3)", "(5, 3)"), {"shapes"})

    def test_constants(self) -> None:
        """A constant's value shows in constants, inside a loop's body as outside."""
        self.assertEqual(self.changed("0.5", "0.25"), {"constants"})
        self.assertEqual(self.changed("assign_add(1)", "assign_add(2)"), {"constants"})

    def test_config(self) -> None:
        """Names that C++ sees show in config."""
        self.assertEqual(self.changed('name="kernel"', 'name="weights"'), {"config"})
        self.assertEqual(self.changed('"y"', '"z"'), {"config"})
        self.assertEqual(self.changed(cpp_class="t::Other"), {"config"})

    def test_which_variable(self) -> None:
        """Two variables of one shape are told apart, although their names aren't part of the graph."""
        text = """\
import tensorflow as tf

a, b, n = (tf.Variable(0.0, name=name) for name in "abn")


@tf.function(input_signature=[tf.TensorSpec((), name="x")])
def model(x):
    n.assign_add(a + b)
    return a * x + b
"""
        first, second = (self.components(model) for model in (text, text.replace("a * x + b", "b * x + a")))
        self.assertEqual({name for name in first if first[name] != second[name]}, {"graph"})

    def weights(self, exported: Exported) -> str:
        """Returns the fingerprint of the weights, from the assembler code that defines it."""
        (line,) = [line for line in (exported.folder / "weights").read_text().splitlines() if ".quad" in line]
        return line.split("0x")[1]

    def test_weights(self) -> None:
        """Values of fed variables have their own fingerprint, so that new ones don't compile anything."""
        other = WEIGHTS | {"bias": np.zeros(2, np.float32)}
        one, again, two = (self.export(MODEL, weights=values) for values in (WEIGHTS, WEIGHTS, other))
        self.assertEqual(one.manifest, two.manifest)
        self.assertEqual(self.weights(one), self.weights(again))
        self.assertNotEqual(self.weights(one), self.weights(two))
        # One for each format of object files, of which the preprocessor chooses one.
        labels = re.findall(r"^ *_?tfaot_M1t5Model_weights_(\w+):$", (one.folder / "weights").read_text(), re.MULTILINE)
        self.assertEqual(labels, [self.weights(one)] * 3)

    def test_frozen_weights(self) -> None:
        """Values of frozen variables are constants like others."""
        other = WEIGHTS | {"bias": np.zeros(2, np.float32)}
        one, two = (self.components(MODEL, weights=values, frozen=("kernel", "bias")) for values in (WEIGHTS, other))
        self.assertEqual({name for name in one if one[name] != two[name]}, {"constants", "frozen"})


if __name__ == "__main__":
    unittest.main()
