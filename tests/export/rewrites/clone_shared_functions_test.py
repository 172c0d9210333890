"""Loops that share a body: each gets its own, the numbers don't change, and the compiler survives."""

from __future__ import annotations

import dataclasses
import unittest
from typing import Any

import numpy as np

from tests.export.rewrites.rewriting import Model, Outcome, built, compared
from tests.stages.harness import StageTest
from tfaot.core.errors import TfaotError

TWICE = """\
import tensorflow as tf


class Twice(tf.Module):
    def __init__(self):
        self.v = tf.Variable([1.0, 2.0, 3.0, 4.0])

    @tf.function
    def inner(self, x):
        for _ in tf.range(3):
            x = x + tf.gather(self.v, [1, 0, 3, 2])
            OP
        return x

    @tf.function(input_signature=[tf.TensorSpec([4], tf.float32, "x")])
    def __call__(self, x):
        return self.inner(x) + self.inner(x * 2.0)


def model():
    return Twice()
"""
"""A function with a loop over a variable, called twice."""


def rewrite(model: Model) -> Model:
    """Copies shared functions."""
    from tfaot.export.rewrites.clone_shared_functions import clone_shared_functions

    return dataclasses.replace(model, graph=clone_shared_functions(model.graph, dict(model.sources)))


class UnsharedTest(StageTest):
    """Graphs whose loops share functions."""

    def check(self, body: Any) -> Outcome:
        """Builds a graph with an input, a variable, and a function of both that loops. Compares before and after."""

        def build() -> Any:
            import tensorflow as tf

            x = tf.compat.v1.placeholder(tf.float32, [4], "x")
            v = tf.compat.v1.get_variable("v", initializer=np.array([1, 2, 3, 4], np.float32))
            return [x], [tf.identity(body(tf, x, v), "y")]

        outcome = compared(lambda: built(build), rewrite, [[[0.5, -1.0, 2.0, 3.0]], [[1.0, 2.0, 3.0, 4.0]]])
        self.assertEqual(outcome.complaint, "")
        for before, after in zip(outcome.before, outcome.after, strict=True):
            for wanted, value in zip(before, after, strict=True):
                np.testing.assert_array_equal(value, wanted)
        return outcome

    def functions(self, outcome: Outcome) -> list[str]:
        """Returns the names of functions in the resulting graph."""
        from tensorflow.core.framework import graph_pb2

        return [f.signature.name for f in graph_pb2.GraphDef.FromString(outcome.graph).library.function]

    def test_model(self) -> None:
        """The compiler crashed on a `tf.function` that loops over a fed variable and is called twice."""
        for patterns in ((), ("*",)):
            self.compile(self.export(TWICE.replace("            OP\n", ""), frozen=()), passes=patterns)

    def test_written(self) -> None:
        """Loops that write their variable see each other's writes, in the same order."""

        def body(tf: Any, x: Any, v: Any) -> Any:
            @tf.function
            def inner(x: Any) -> Any:
                for _ in tf.range(3):
                    x = x * v
                    v.assign_add(x * 0.125)
                return x

            # Without tf.function tracing, a graph has no automatic control dependencies, so the calls would race.
            first = inner(x)
            with tf.control_dependencies([first]):
                return first + inner(x * 2)

        outcome = self.check(body)
        self.assertNotEqual(outcome.before[-1][0].tolist(), [1, 2, 3, 4])

    def test_nested(self) -> None:
        """A function that calls a looping one twice is itself copied, once per call."""

        def body(tf: Any, x: Any, v: Any) -> Any:
            @tf.function
            def inner(x: Any) -> Any:
                for _ in tf.range(3):
                    x = x + v
                return x

            @tf.function
            def outer(x: Any) -> Any:
                return inner(x) * inner(x + 1)

            return outer(x) + outer(x * 2)

        outcome = self.check(body)
        self.assertEqual(sum("inner" in name for name in self.functions(outcome)), 4)

    def test_branch(self) -> None:
        """A loop is in a branch of a conditional that runs twice."""

        def body(tf: Any, x: Any, v: Any) -> Any:
            @tf.function
            def inner(x: Any) -> Any:
                if x[0] > 0:
                    for _ in tf.range(3):
                        x = x + v
                return x

            return inner(x) + inner(-x)

        self.check(body)

    def test_without_variables(self) -> None:
        """Loops without variables, and functions that are called once, don't change: the graph doesn't grow."""

        def body(tf: Any, x: Any, v: Any) -> Any:
            @tf.function
            def shared(x: Any) -> Any:
                for _ in tf.range(3):
                    x = x + 1
                return x

            @tf.function
            def once(x: Any) -> Any:
                for _ in tf.range(3):
                    x = x + v
                return x

            return shared(x) + shared(x * 2) + once(x)

        def unchanged(model: Model) -> Model:
            after = rewrite(model)
            assert after.graph is model.graph
            return after

        def build() -> Any:
            import tensorflow as tf

            x = tf.compat.v1.placeholder(tf.float32, [4], "x")
            v = tf.compat.v1.get_variable("v", initializer=np.array([1, 2, 3, 4], np.float32))
            return [x], [tf.identity(body(tf, x, v), "y")]

        self.assertEqual(compared(lambda: built(build), unchanged, [[[0.5, -1.0, 2.0, 3.0]]]).complaint, "")

    def test_sources(self) -> None:
        """What the compiler refuses in a copy is reported with the user's line."""
        exported = self.export(TWICE.replace("OP", "x = tf.strings.to_number(tf.strings.as_string(x))"), frozen=())
        with self.assertRaises(TfaotError) as raised:
            self.compile(exported)
        self.assertIn("at model.py:12", str(raised.exception))

    def test_recursion(self) -> None:
        """A graph whose functions call themselves, which no compiler accepts, doesn't make the export hang."""
        from tensorflow.core.framework import graph_pb2, types_pb2

        from tfaot.export.rewrites.clone_shared_functions import clone_shared_functions

        graph = graph_pb2.GraphDef()
        function = graph.library.function.add()
        function.signature.name = "f"
        loop = function.node_def.add(name="loop", op="While")
        loop.attr["T"].list.type.append(types_pb2.DT_RESOURCE)
        loop.attr["body"].func.name = loop.attr["cond"].func.name = "f"
        for name in ("first", "second"):
            graph.node.add(name=name, op="PartitionedCall").attr["f"].func.name = "f"
        names = [function.signature.name for function in clone_shared_functions(graph, {}).library.function]
        self.assertEqual(names, ["f", "f_1"])


if __name__ == "__main__":
    unittest.main()
