"""Calls that passes look into: results and their order don't change, and passes find what is in functions."""

from __future__ import annotations

import json
import unittest
from pathlib import Path
from typing import Any

import numpy as np

from tests.compile.passes.graphs import Array, config_of
from tests.stages import harness
from tests.stages.harness import StageTest
from tfaot.core import isolate
from tfaot.export.sources.model import Model

STEPS, FEATURES = 12, 24

NESTED = """\
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
kernel = np.random.default_rng(1).standard_normal([3, 3, 3, 4]).astype("float32")


@tf.function
def inner(y):
    return tf.strings.to_number(tf.strings.as_string(y))


@tf.function
def outer(x):
    return inner(tf.nn.conv2d(x, kernel, 1, "SAME") * [1.0, 2.0, 3.0, 4.0])


def input_fn():
    return v1.placeholder(tf.float32, [1, 6, 6, 3], "x"), ()


def model_fn(x, _):
    return outer(x)
"""
"""A product with a factor to fold, and an op that the compiler lacks, in line 10, both in calls."""


def calls_of(graph: Any) -> list[str]:
    """Returns the names of nodes that are calls."""
    return [node.name for node in graph.node if "PartitionedCall" in node.op]


class CallsTest(StageTest):
    """Graphs with calls."""

    def inlined(self, graph: Any, fetches: list[str], feeds: dict[str, Array] | None = None) -> Any:
        """Returns a graph as passes see it."""
        from tfaot.graph.calls import inline_calls
        from tfaot.graph.program import Program

        feeds = feeds or {}
        program = Program.of(graph, config_of([*feeds], [*feeds.values()], fetches))
        inline_calls(program)
        return program.graph

    def save(self, keras: str) -> Model:
        """Saves an LSTM in either version of Keras, in a child."""
        folder = str(self.folder / keras)

        def work() -> None:
            import importlib

            import tensorflow as tf

            module = importlib.import_module(keras)
            module.utils.set_random_seed(1)
            layers = [
                module.layers.Input((STEPS, FEATURES), name="x"),
                module.layers.LSTM(16),
                module.layers.Dense(3),
                module.layers.BatchNormalization(),
            ]
            tf.saved_model.save(module.Sequential(layers), folder)

        isolate.run_isolated(work, what="saving")
        return Model(saved_model=folder)

    @harness.wide
    def test_saved_models(self) -> None:
        """A SavedModel from either Keras, with its loop in a function, is rewritten, and gives the same numbers."""
        for keras, label in (("keras", "inputs"), ("tf_keras", "x")):
            with self.subTest(keras):
                exported = self.export(self.save(keras), dims={label: (1, STEPS, FEATURES)})
                self.compile(exported)
                written = json.loads(Path(exported.path("passes")).read_text())
                self.assertEqual((written["hoist_projections"], written["fold_batch_norm"]), (1, 1), written)
                x = np.random.default_rng(3).standard_normal((1, STEPS, FEATURES)).astype(np.float32)
                calls, before, after = isolate.run_isolated(
                    lambda exported=exported, x=x: _before_and_after(exported, x), what="running"
                )
                self.assertTrue(calls)
                np.testing.assert_allclose(after, before, rtol=0, atol=1e-6)

    def test_order_of_effects(self) -> None:
        """Protects reproducible builds: what waits for a call's effects names them in one order, whatever a map's is."""
        from tensorflow.core.framework import graph_pb2, types_pb2

        from tfaot.graph.functions import EditableFunction

        names = [f"write_{index}" for index in range(8)]
        graph = graph_pb2.GraphDef()
        graph.node.add(name="v", op="VarHandleOp").attr["dtype"].type = types_pb2.DT_FLOAT
        graph.node.add(name="x", op="Placeholder").attr["dtype"].type = types_pb2.DT_FLOAT
        call = graph.node.add(name="call", op="StatefulPartitionedCall", input=["v", "x"])
        call.attr["f"].func.name = "f"
        call.attr["Tout"].list.type.append(types_pb2.DT_FLOAT)
        graph.node.add(name="y", op="Identity", input=["call"]).attr["T"].type = types_pb2.DT_FLOAT
        function = graph.library.function.add()
        function.signature.name = "f"
        function.signature.input_arg.add(name="handle", type=types_pb2.DT_RESOURCE)
        function.signature.input_arg.add(name="value", type=types_pb2.DT_FLOAT)
        function.signature.output_arg.add(name="result", type=types_pb2.DT_FLOAT)
        function.ret["result"] = "value"
        for name in names:
            write = function.node_def.add(name=name, op="AssignVariableOp", input=["handle", "value"])
            write.attr["dtype"].type = types_pb2.DT_FLOAT
            function.control_ret[name] = name
        written = EditableFunction(function, {"f": function}).function("g")
        self.assertEqual([*written.signature.control_output], names)
        nodes = {node.name: node for node in self.inlined(graph, ["y:0"]).node}
        self.assertEqual([*nodes["call/0"].input], ["x", *(f"^call/{name}" for name in names)])

    def test_effects(self) -> None:
        """Calls write in order, including nested calls, even if nothing uses a result."""

        def work() -> tuple[Any, ...]:
            import tensorflow as tf

            with tf.Graph().as_default() as graph:
                v = tf.Variable(1.0, name="v", trainable=False)

                @tf.function
                def double() -> Any:
                    v.assign(2.0 * v)
                    return v.read_value()

                @tf.function
                def step(x: Any) -> tuple[Any, Any]:
                    v.assign_add(x)
                    return double(), tf.constant(5.0)

                @tf.function
                def both() -> Any:
                    first, _ = step(tf.constant(1.0))
                    _, five = step(tf.constant(10.0))
                    return first, five

                first, five = both()
                tf.stack([first, five], name="result")
            definition = graph.as_graph_def()
            handle = v.handle.name
            fetches = ["result:0"]
            results = []
            for form in (definition, self.inlined(definition, fetches)):
                with tf.Graph().as_default() as again, tf.compat.v1.Session() as session:
                    tf.import_graph_def(form, name="")
                    resource = again.get_tensor_by_name(handle)
                    session.run(tf.raw_ops.AssignVariableOp(resource=resource, value=tf.constant(1.0)))
                    result = session.run(fetches)[0]
                    after = session.run(tf.raw_ops.ReadVariableOp(resource=resource, dtype=tf.float32))
                    results.append((calls_of(form), result.tolist(), float(after)))
            return tuple(results)

        (calls, *before), (none, *after) = isolate.run_isolated(work, what="running")
        self.assertTrue(calls)
        self.assertEqual(none, [])
        self.assertEqual(before, [[4.0, 5.0], 28.0])
        self.assertEqual(after, before)

    def test_fetched_and_fed(self) -> None:
        """A call that is fetched keeps its name and results, and passes don't look into one that is fed."""

        def work() -> tuple[Any, ...]:
            import tensorflow as tf

            with tf.Graph().as_default() as graph:
                x = tf.compat.v1.placeholder(tf.float32, [2], "x")

                @tf.function
                def pair(x: Any) -> Any:
                    return x + 1.0, 3.0 * x

                made = pair(x)
                tf.identity(pair(made[0])[1], "y")
            first, _ = calls_of(graph.as_graph_def())
            fetches = [made[1].name, "y:0"]
            self.assertEqual(made[1].name, f"{first}:1")
            ones = np.ones(2, np.float32)
            whole = self.inlined(graph.as_graph_def(), fetches, {"x:0": ones})
            cut = self.inlined(graph.as_graph_def(), ["y:0"], {f"{first}:0": ones})
            with tf.Graph().as_default(), tf.compat.v1.Session() as session:
                tf.import_graph_def(whole, name="")
                values = session.run(fetches, {"x:0": ones})
            return calls_of(whole), [value.tolist() for value in values], calls_of(cut), first

        whole, values, cut, first = isolate.run_isolated(work, what="running")
        self.assertEqual(whole, [])
        self.assertEqual(values, [[3.0, 3.0], [6.0, 6.0]])
        self.assertEqual(cut, [first])

    def test_errors_name_lines(self) -> None:
        """What the compiler refuses in a call, after passes changed the graph, is reported with the user's line."""
        exported = self.export(NESTED)
        text = self.error_of(self.compile, exported)
        self.assertIn("t::Model: XLA can't compile AsString\n", text)
        self.assertRegex(text, r"\n    AsString '\S*/AsString' at model\.py:10\n")


def _before_and_after(exported: Any, x: Array) -> tuple[list[str], Array, Array]:
    """Returns the calls in an exported graph, and its results before and after passes."""
    import tensorflow as tf
    from google.protobuf import text_format
    from tensorflow.compiler.tf2xla import tf2xla_pb2
    from tensorflow.core.framework import graph_pb2

    from tfaot.compile import table

    graph = graph_pb2.GraphDef.FromString(Path(exported.path("graph")).read_bytes())
    config = text_format.Parse(exported.config, tf2xla_pb2.Config())
    results = []
    for form in (graph, table.apply(graph, config, [form.name for form in table.PASSES]).graph):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            tf.import_graph_def(form, name="")
            feed, fetch = config.feed[0].id.node_name, config.fetch[0].id.node_name
            results.append(session.run(f"{fetch}:0", {f"{feed}:0": x}))
    return calls_of(graph), results[0], results[1]


if __name__ == "__main__":
    unittest.main()
