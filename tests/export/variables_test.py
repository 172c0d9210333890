"""What a run does with each variable, comparing our flags with the compiler's verdict; and which variables are constants."""

from __future__ import annotations

import textwrap
import unittest
from pathlib import Path

import numpy as np

from tests.stages import cases
from tests.stages.harness import PREAMBLE, Exported, StageTest

_VARIABLES = """\
def model_fn(x, n):
    a = v1.get_variable("a", [2])
    b = v1.get_variable("b", [2])
    c = v1.get_variable("c", [3, 2])
"""


def body(text: str) -> str:
    """Returns a model with three variables: `a` and `b` with the input's shape, and `c` for row lookups."""
    return PREAMBLE + _VARIABLES + text


class VariablesTest(StageTest):
    """`variables.txt` has bodies of the model, and what they do with variables."""

    def check(self, text: str, **written: bool) -> None:
        """Exports, compares with the expected flags, and lets tfcompile confirm them."""
        exported = self.export(body(text), frozen=())
        self.assertEqual(exported.written, written)
        self.assertEqual([v.name for v in exported.manifest.written], [name for name, flag in written.items() if flag])
        self.compile(exported)  # rejects every flag that differs from its own verdict

    def check_case(self, case: cases.Case) -> None:
        """Checks a case of the table."""
        flags = dict(flag.split(" is ") for flag in case.extra.split(", "))
        self.check(textwrap.indent(case.text, "    "), **{name: flag == "written" for name, flag in flags.items()})

    def test_initializers_are_no_writes(self) -> None:
        """Protects every variable: its initializer assigns it, but no fetch reaches the initializer."""
        exported = self.export(body("    return x * a + b"), frozen=())
        self.assertEqual(exported.written, {"a": False, "b": False})
        from tensorflow.core.framework import graph_pb2

        graph = graph_pb2.GraphDef()
        graph.ParseFromString((exported.folder / "graph").read_bytes())
        self.assertFalse([node.name for node in graph.node if "Assign" in node.op or "Initializer" in node.name])

    def test_given_its_own_value(self) -> None:
        """Protects `a.assign(a.read_value())`, which isn't a write to the compiler, however the value gets there."""
        for text in (
            "    with tf.control_dependencies([a.assign(a.read_value())]):\n        return x * b\n",
            "    with tf.control_dependencies([a.assign(tf.identity(tf.stop_gradient(a)))]):\n        return x * b\n",
            "    with tf.control_dependencies([a.assign(tf.cast(a, tf.float32))]):\n        return x * b\n",
        ):
            with self.subTest(text):
                self.check(text, a=False, b=False)

    def test_several_entry_points(self) -> None:
        """Protects each function's own flags: what one writes, another only reads, or doesn't even take."""
        entry_points = (("Init", "init"), ("Forward", "forward"), ("Train", "train"), ("Keep", "keep"))
        exported = self.export(SEVERAL, entry_points=entry_points)
        names = [variable.name for variable in exported.manifest.variables]
        self.assertEqual(sorted(names), ["bias", "steps", "weights"])
        self.assertEqual(exported.written, {"bias": False, "steps": True, "weights": True})
        uses = {
            entry.name: {names[use.variable]: use.written for use in entry.variables}
            for entry in exported.manifest.entry_points
        }
        self.assertEqual(
            uses,
            {
                "Init": {"steps": True, "weights": True},
                "Forward": {"bias": False, "weights": False},
                "Train": {"bias": False, "steps": True, "weights": True},
                "Keep": {"steps": False, "weights": False},  # assigned its own value
            },
        )
        for name, _ in entry_points:
            self.compile(exported, entry_point=name)  # rejects every flag that differs from its own verdict


cases.declare(VariablesTest, Path(__file__).with_name("variables.txt"), VariablesTest.check_case)

SEVERAL = """\
import tensorflow as tf


class Model(tf.Module):
    def __init__(self):
        self.bias = tf.Variable([0.5, 0.25], name="bias")
        self.weights = tf.Variable([1.0, 2.0], name="weights")
        self.steps = tf.Variable(0, name="steps")

    @tf.function(input_signature=[])
    def init(self):
        self.steps.assign(0)
        self.weights.assign([3.0, 4.0])

    @tf.function(input_signature=[tf.TensorSpec([2], tf.float32)])
    def forward(self, x):
        return x * self.weights + self.bias

    @tf.function(input_signature=[tf.TensorSpec([2], tf.float32)])
    def train(self, x):
        self.steps.assign_add(1)
        self.weights.assign_sub(x * self.bias)

    @tf.function(input_signature=[])
    def keep(self):
        self.weights.assign(self.weights.read_value())
        return self.steps.read_value()


model = Model()
"""


class FrozenTest(StageTest):
    """Which variables become constants in the code, and what the manifest says about them."""

    READS = body("    return x * a + b * c[0]")
    WRITES = body("    with tf.control_dependencies([a.assign_add(x * b)]):\n        return x * c[0]\n")

    def variables_of(self, exported: Exported) -> tuple[list[str], list[str]]:
        """Returns the names of frozen and of fed variables."""
        manifest = exported.manifest
        return [frozen.name for frozen in manifest.frozen], [variable.name for variable in manifest.variables]

    def test_inference_is_frozen(self) -> None:
        """Protects the default for inference: all weights are constants, no variable is left, and the code compiles."""
        exported = self.export(self.READS)
        self.assertEqual(self.variables_of(exported), (["a", "b", "c"], []))
        self.assertEqual(
            [(f.dtype, f.shape) for f in exported.manifest.frozen], [("float32", s) for s in ((2,), (2,), (3, 2))]
        )
        self.assertEqual(exported.variables, {})
        self.assertNotIn("variable", exported.config)
        self.compile(exported)

    def test_training_is_fed(self) -> None:
        """Protects the default for anything that writes: even read-only variables stay in the file."""
        self.assertEqual(self.variables_of(self.export(self.WRITES)), ([], ["a", "b", "c"]))

    def test_several_functions_are_fed(self) -> None:
        """Protects against several copies of the weights: several functions, or batch sizes, share them."""
        two = (("Forward", "forward"), ("Again", "forward"))
        self.assertEqual(self.variables_of(self.export(SEVERAL, entry_points=two)), ([], ["weights", "bias"]))
        one = self.export(SEVERAL, entry_points=(("Forward", "forward"),))
        self.assertEqual(self.variables_of(one), (["weights", "bias"], []))
        family = self.export(
            "import tensorflow as tf\n\nw = tf.Variable([1.0, 2.0], name='w')\n\n\ndef model(x):\n    return x * w\n",
            batch_sizes=(1, 4),
            signature={"x": "float32[None, 2]"},
        )
        self.assertEqual(self.variables_of(family), ([], ["w"]))

    def test_patterns(self) -> None:
        """Protects the target's choice: variables whose names match patterns are frozen, and the others are fed."""
        exported = self.export(self.WRITES, frozen=("*", "!a"))
        self.assertEqual(self.variables_of(exported), (["b", "c"], ["a"]))
        self.compile(exported)
        self.assert_error(
            self.error_of(self.export, self.WRITES, frozen=("*",)),
            """
            frozen = ["*"]: 1 of the selected variables are written, so they can't be constants
              found: a
              to do: exclude them: "!a"
            """,
        )

    def test_fingerprints(self) -> None:
        """Protects deployments and caches: fingerprints tell frozen weights apart, and fed weights change nothing else."""
        first = {name: np.full(shape, 1, np.float32) for name, shape in (("a", [2]), ("b", [2]), ("c", [3, 2]))}
        second = first | {"b": np.full(2, 2, np.float32)}
        frozen = [self.export(self.READS, weights=weights) for weights in (first, first, second)]
        prints = [exported.manifest.fingerprints for exported in frozen]
        self.assertEqual(prints[0], prints[1])
        self.assertNotEqual(prints[0].frozen, prints[2].frozen)
        self.assertNotEqual(prints[0].constants, prints[2].constants)
        self.assertEqual(prints[0].graph, prints[2].graph)
        shas = [[variable.sha256 for variable in exported.manifest.frozen] for exported in frozen]
        self.assertEqual([a == b for a, b in zip(shas[0], shas[2], strict=True)], [True, False, True])

        fed = [self.export(self.READS, frozen=(), weights=weights) for weights in (first, second)]
        self.assertEqual(fed[0].manifest, fed[1].manifest)
        self.assertEqual((fed[0].manifest.frozen, fed[0].manifest.fingerprints.frozen), ((), ""))
        for output in ("graph", "config", "manifest", "golden_inputs"):
            self.assertEqual((fed[0].folder / output).read_bytes(), (fed[1].folder / output).read_bytes(), output)
        for exported, weights in zip(fed, (first, second), strict=True):
            self.assertEqual(set(exported.variables), set(weights))
            for name, value in exported.variables.items():
                np.testing.assert_array_equal(value, weights[name])


if __name__ == "__main__":
    unittest.main()
