"""Which values can be tapped, in which order, and what taps don't change."""

from __future__ import annotations

import json
import unittest
from pathlib import Path

from tests.stages.harness import PREAMBLE, StageTest

LAYERS = """\
import tensorflow as tf

v = tf.Variable(tf.ones([3, 3]), name="v")


@tf.function
def inner(x):
    return tf.nn.relu(x, name="inner_relu")


@tf.function(input_signature=[tf.TensorSpec([2, 3], tf.float32, name="x")])
def model(x):
    with tf.name_scope("a"):
        product = tf.matmul(x, v, name="product")
        parts = tf.split(product, 3, axis=1, name="parts")
    with tf.name_scope("b"):
        best = tf.argmax(product, axis=1, name="best")
        large = tf.greater(product, 0.5, name="large")
    hidden = inner(product)
    for _ in tf.range(best[0]):
        hidden = tf.sin(hidden, name="looped")
    return hidden + parts[1], best, large
"""

BATCHED = """\
import tensorflow as tf


@tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
def model(x):
    doubled = tf.add(x, x, name="doubled")
    flat = tf.reshape(doubled, [-1], name="flat")
    return doubled + tf.reduce_mean(flat, name="mean") * 0.0
"""

BRANCHES = (
    PREAMBLE
    + """\
def model_fn(x, n):
    v1.disable_control_flow_v2()  # in here, since the rules turn it on before they call this
    before = tf.tanh(x, name="before")
    loop = v1.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.sin(y, name="inside")), [0, before])
    chosen = v1.cond(n > 0, lambda: tf.exp(before, name="then"), lambda: tf.cos(before, name="otherwise"))
    after = tf.add(chosen, 1.0, name="after")
    return loop[1] + after
"""
)


class TapsTest(StageTest):
    """Exports models with taps."""

    def outputs(self, model: str, *taps: str, **kwargs: object) -> list[str]:
        """Returns the names of the outputs, in order."""
        exported = self.export(model, taps=taps, **kwargs)  # type: ignore[arg-type]
        return [output.name for output in exported.manifest.entry_points[0].outputs]

    def test_order_and_kinds(self) -> None:
        """Taps of all dtypes, and all results of a node, come before the model's own outputs, in an order of execution."""
        names = self.outputs(LAYERS, "a/*", "b/*", "*inner_relu")
        self.assertEqual(names[-3:], ["output_0:0", "output_1:0", "output_2:0"])
        taps = names[:-3]
        self.assertEqual(taps[0], "a/product:0")
        self.assertEqual(
            sorted(taps[1:]),
            ["PartitionedCall/inner_relu:0", "a/parts:0", "a/parts:1", "a/parts:2", "b/best:0", "b/large:0"],
        )

    def test_model_stays(self) -> None:
        """The model's own outputs, inputs, and variables keep their names and positions, so a golden_fn still fits."""
        plain, tapped = self.export(LAYERS), self.export(LAYERS, taps=("*",))
        ours, theirs = tapped.manifest.entry_points[0], plain.manifest.entry_points[0]
        self.assertEqual(ours.inputs, theirs.inputs)
        self.assertEqual(ours.outputs[-3:], theirs.outputs)
        self.assertEqual(tapped.manifest.frozen, plain.manifest.frozen)
        self.assertTrue(all(output.cpp_name.startswith("tap_") for output in ours.outputs[:-3]))

    def test_takes_out(self) -> None:
        """A pattern after `!` excludes nodes that earlier patterns selected."""
        self.assertEqual(self.outputs(LAYERS, "a/*", "!a/parts")[:-3], ["a/product:0"])
        self.assertIn(
            'taps = ["a/*", "!b/*"]: "!b/*" excludes nothing that an earlier pattern selected',
            self.error_of(self.outputs, LAYERS, "a/*", "!b/*"),
        )

    def test_not_in_loops(self) -> None:
        """Values inside a loop can't be tapped, because they change in each iteration."""
        self.assertIn("matches no tensor", self.error_of(self.outputs, LAYERS, "*looped"))

    def test_old_control_flow(self) -> None:
        """In TensorFlow 1's loops and branches, whose nodes are among others, none is tapped, and all around them are."""
        self.assertEqual(self.outputs(BRANCHES, "*")[:-1], ["before:0", "Greater:0", "cond/pred_id:0", "after:0"])

    def test_batch(self) -> None:
        """With batch_sizes, only values with one row per row of the batch are tapped. Others can't be assembled."""
        self.assertEqual(
            self.outputs(BATCHED, "*", batch_sizes=(1, 4), rows_independent=True),
            ["doubled:0", "add:0", "Identity:0", "output:0"],
        )

    def test_lines(self) -> None:
        """A test names the Python line behind a tap, and leaves names alone if it knows none."""
        from tfaot.render.render import placed

        exported = self.export(LAYERS, taps=("a/product",))
        manifest = placed(exported.manifest, json.loads(Path(exported.path("sources")).read_text()))
        self.assertEqual(
            [output.name for output in manifest.entry_points[0].outputs],
            ["a/product:0 at model.py:14", "output_0:0", "output_1:0", "output_2:0"],
        )


if __name__ == "__main__":
    unittest.main()
