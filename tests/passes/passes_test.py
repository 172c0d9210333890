"""What all passes share: choosing them, what a graph keeps, what is written of them, and whose lines errors name."""

from __future__ import annotations

import json
import unittest
from pathlib import Path
from typing import Any

import numpy as np

from tests.passes.graphs import config_of, run
from tests.stages.harness import PREAMBLE, StageTest
from tfaot.core.errors import TfaotError

NET = """\
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
rng = np.random.default_rng(1)


def input_fn():
    return v1.placeholder(tf.float32, [1, 6, 6, 3], "x"), ()


def model_fn(x, _):
    y = tf.nn.conv2d(x, rng.standard_normal([3, 3, 3, 4]).astype("float32"), 1, "SAME") * [1.0, 2.0, 3.0, 4.0]
    return %s
"""
"""A convolution, at line 13, and a factor that is folded into it; `y` is used at line 14."""


class PassesTest(StageTest):
    """The compile stage with passes."""

    def test_unknown_pass(self) -> None:
        """A pass that does not exist is one error that names those that do."""
        from tfaot.compile.passes import passes

        exported = self.export(PREAMBLE + "def model_fn(x, n):\n    return x + 1\n")
        self.assert_error(
            self.error_of(self.compile, exported, passes=("*", "!fold_batchnorm")),
            f"""
            passes = ["*", "!fold_batchnorm"]: "!fold_batchnorm" is no pass
              found: {", ".join(each.name for each in passes.PASSES)}
              to do: name one of these, or a pattern: ["*", "!NAME"] is all but NAME
            """,
        )

    def test_patterns(self) -> None:
        """Later patterns win, as those of `frozen` do, and none at all is no pass."""
        from tfaot.compile.passes import passes

        names = {each.name for each in passes.PASSES}
        self.assertEqual(passes.chosen(["*"]), names)
        self.assertEqual(passes.chosen([]), frozenset())
        self.assertEqual(passes.chosen(["*", "!fold_*"]), {name for name in names if not name.startswith("fold_")})
        self.assertEqual(passes.chosen(["*", "!*", "fold_batch_norm"]), {"fold_batch_norm"})
        with self.assertRaises(TfaotError):
            passes.chosen(["fold_batch_norm/"])

    def test_what_is_written(self) -> None:
        """The file says of each pass how many places it changed, 0 where it found none, and null where it is off."""
        from tfaot.compile.passes import passes

        exported = self.export(NET % "y")
        for patterns, want in ((("*",), 1), ((), None), (("*", "!fold_batch_norm"), None)):
            self.compile(exported, passes=patterns)
            written = json.loads(Path(exported.path("passes")).read_text())
            self.assertEqual([*written], [*(each.name for each in passes.PASSES), "packed"])
            self.assertEqual(written["fold_batch_norm"], want)
        exported = self.export(PREAMBLE + "def model_fn(x, n):\n    return x + 1\n")
        self.compile(exported)
        self.assertEqual(
            json.loads(Path(exported.path("passes")).read_text()),
            {each.name: 0 for each in passes.PASSES} | {"packed": []},
        )

    def test_nothing_to_do(self) -> None:
        """A graph in which no pass finds anything compiles to the same bytes as without passes."""
        exported = self.export(PREAMBLE + "def model_fn(x, n):\n    return tf.tanh(x) * 2.0\n")
        outputs = ("object", "constants", "header", "source", "hlo")
        found = []
        for patterns in (("*",), ()):
            self.compile(exported, passes=patterns)
            found.append([Path(exported.path(output)).read_bytes() for output in outputs])
        self.assertEqual(*found)

    def test_stages_beside(self) -> None:
        """The exported graph is the same file after passes: HLO and TensorFlow's own numbers are made of it."""
        exported = self.export(NET % "y")
        before = Path(exported.path("graph")).read_bytes()
        self.compile(exported)
        self.assertEqual(Path(exported.path("graph")).read_bytes(), before)

    def test_errors_name_lines(self) -> None:
        """What the compiler refuses in a graph that passes changed is named with the user's line."""
        exported = self.export(NET % "tf.strings.to_number(tf.strings.as_string(y))")
        self.assert_error(
            self.error_of(self.compile, exported),
            """
            t::Model: XLA cannot compile AsString

                AsString 'AsString' at model.py:14

              to do: replace these ops, or move them out of the model to where its inputs are made
            """,
        )


class ProgramTest(unittest.TestCase):
    """The graph that passes see."""

    def program(self, graph: Any, config: Any) -> Any:
        """What an entry point needs of a graph."""
        from tfaot.graph.program import Program

        return Program.of(graph.as_graph_def(), config)

    def test_edges_stay(self) -> None:
        """Inputs that nothing reads, variables that only another entry point reads, and outputs keep their nodes."""
        import tensorflow as tf

        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, [2], "x")
            tf.compat.v1.placeholder(tf.float32, [3], "unread")
            tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="v", name="v")
            tf.identity(tf.tanh(x), "y")
            tf.exp(x, "elsewhere")
        config = config_of(["x:0", "unread:0"], [np.ones(2, "float32"), np.ones(3, "float32")], ["y:0"])
        program = self.program(graph, config)
        self.assertEqual({*program.nodes()}, {"x", "unread", "v", "Tanh", "y"})
        self.assertEqual(program.kept(), {"x", "unread", "y"})

    def test_order_of_effects(self) -> None:
        """What waits for a variable's update still does; what waits for values alone no longer does."""
        import tensorflow as tf

        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, [2], "x")
            handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="v", name="v")
            read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32, name="read")
            with tf.control_dependencies([read]):
                assign = tf.raw_ops.AssignAddVariableOp(resource=handle, value=x, name="assign")
            with tf.control_dependencies([assign, tf.constant([1.0], name="weights"), tf.tanh(x, "tanh")]):
                tf.identity(read, "y")
        program = self.program(graph, config_of(["x:0"], [np.ones(2, "float32")], ["y:0"]))
        self.assertEqual([*program.nodes()["y"].input], ["read", "^assign"])
        self.assertEqual([*program.nodes()["assign"].input], ["v", "x", "^read"])
        self.assertNotIn("tanh", program.nodes())

    def test_shapes(self) -> None:
        """Shapes follow from what is fed, the size of batch included, whatever the graph leaves open."""
        import tensorflow as tf

        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, [None, 3], "x")
            y = tf.identity(tf.reshape(tf.matmul(x, tf.ones([3, 4])), [tf.shape(x)[0], 2, 2]), "y")
        self.assertEqual(y.shape.as_list(), [None, 2, 2])
        program = self.program(graph, config_of(["x:0"], [np.ones([5, 3], "float32")], ["y:0"]))
        self.assertEqual(program.tensors()["y:0"].shape, (5, 2, 2))
        self.assertEqual(program.tensors()["x:0"].shape, (5, 3))

    def test_changes(self) -> None:
        """New nodes have names of their own and an origin, and one that becomes another keeps its users and what it waits for."""
        import tensorflow as tf

        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, [2], "x0")
            with tf.control_dependencies(
                [tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="v", name="v")]
            ):
                y = tf.tanh(x, "y")
            tf.exp(y, "z")
        ones = np.ones(2, "float32")
        program = self.program(graph, config_of(["x0:0"], [ones], ["z:0", "y:0"]))
        first = program.constant("y/part", ones, origin="y")
        second = program.constant("y/part", ones, origin=first.name)
        self.assertEqual((first.name, second.name), ("y/part", "y/part_1"))
        self.assertEqual(program.origins, {"y/part": "y", "y/part_1": "y"})
        program.become(program.nodes()["y"], "AddV2", ["x0", second.name], T=np.dtype("float32"))
        self.assertEqual([*program.nodes()["y"].input], ["x0", "y/part_1", "^v"])
        program.prune()
        self.assertNotIn("y/part", program.nodes())
        z, y = run(program.graph, ["z:0", "y:0"], [ones])
        np.testing.assert_array_equal(y, ones + 1)
        np.testing.assert_allclose(z, np.exp(ones + 1), rtol=1e-6)


if __name__ == "__main__":
    unittest.main()
