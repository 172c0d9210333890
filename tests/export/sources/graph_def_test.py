"""GraphDefs with and without configs, checkpoints, and debug information, compared with a session on the original."""

from __future__ import annotations

import ast
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.export.sources.finished import FinishedTest
from tests.stages import cases
from tfaot.core import isolate
from tfaot.export.sources.model import Model

X = np.array([[1.0, 2.0, -1.0], [0.5, -0.5, 3.0]], np.float32)


def save(
    folder: str, build: Callable[[Any, Any], Any], *, steps: int = 1, checkpoint: bool = True, **saver: Any
) -> Any:
    """Builds a TensorFlow 1 graph, saves it as `graph.pb` and its variables as `model.ckpt`, and runs it.

    Args:
      folder: the destination.
      build: called with TensorFlow and the placeholder `x`, float32[2, 3]. Returns what to fetch, and what to run with it.
      steps: the number of runs.
      checkpoint: whether to save one.
      saver: arguments of the Saver.

    Returns:
      What was fetched in each run.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    v1.disable_v2_behavior()
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(1)
        x = v1.placeholder(tf.float32, [2, 3], "x")
        fetch, more = build(tf, x)
        saver_object = v1.train.Saver(**saver) if checkpoint else None
        with v1.Session(graph=graph) as session:
            session.run(v1.global_variables_initializer())
            tf.io.write_graph(graph.as_graph_def(), folder, "graph.pb", as_text=False)
            tf.io.write_graph(graph.as_graph_def(), folder, "graph.pbtxt")
            if saver_object is not None:
                saver_object.save(session, f"{folder}/model.ckpt")
                Path(folder, "saver.pb").write_bytes(saver_object.saver_def.SerializeToString())
                Path(folder, "saver.pbtxt").write_text(str(saver_object.saver_def))
            return [session.run([fetch, more], {x: X + step})[0] for step in range(steps)]


def dense(tf: Any, x: Any, *, resource: bool = False) -> Any:
    """One layer."""
    v1 = tf.compat.v1
    w = v1.get_variable("w", [3, 2], use_resource=resource)
    b = v1.get_variable("b", [2], use_resource=resource, initializer=v1.constant_initializer(0.5))
    return tf.nn.relu(tf.matmul(x, w) + b, name="y"), tf.no_op()


def runs(steps: int = 1) -> list[dict[str, Any]]:
    """Returns the inputs of `save`."""
    return [{"x": X + step} for step in range(steps)]


class Base(FinishedTest):
    """Opens what `save` wrote."""

    def open(self, name: str = "graph.pb", **arguments: Any) -> Callable[[], Any]:
        """Opens a file in the folder. Arguments that are files are relative to it."""

        def work() -> Any:
            from tfaot.export.sources.graph_def import GraphDefSource

            files = {
                key: str(self.folder / value) if isinstance(value, str) else value for key, value in arguments.items()
            }
            return GraphDefSource(str(self.folder / name), **files)

        return work

    def refused_function(self, opened: Callable[[], Any], wanted: str, **dims: Any) -> None:
        """Extracting the function must fail with this message."""

        def work() -> None:
            from tfaot.export.traced import Dims

            source = opened()
            source.function(source.entry_points[0], Dims(dims))

        self.refused(work, wanted)


class FormatsTest(Base):
    """File formats."""

    def test_text_and_binary(self) -> None:
        """Protects both formats of a graph, and reading a checkpoint by its prefix or any of its files."""
        wanted = self.make(lambda folder: save(folder, dense))
        for name, checkpoint in (
            ("graph.pb", "model.ckpt"),
            ("graph.pbtxt", "model.ckpt.index"),
            ("graph.pb", "model.ckpt.data-00000-of-00001"),
        ):
            with self.subTest(name, checkpoint=checkpoint):
                ran = self.ran(self.open(name, outputs=["y"], checkpoint=checkpoint), "graph", runs())
                self.assert_near(ran.results[0]["y"], wanted[0])
                self.assertEqual(ran.inputs, [("x", (2, 3))])
                self.assertEqual(ran.outputs, [("y", (2, 2))])

    def test_meta_graph(self) -> None:
        """Protects `.meta` files, which a Saver writes next to its checkpoints: the graph, and the saver itself."""
        wanted = self.make(lambda folder: save(folder, dense))
        ran = self.ran(self.open("model.ckpt.meta", outputs=["y"], checkpoint="model.ckpt.meta"), "graph", runs())
        self.assert_near(ran.results[0]["y"], wanted[0])

    def test_inferred_edges(self) -> None:
        """Protects graphs without specified edges: unconsumed tensors are outputs, but save and init ops aren't."""
        wanted = self.make(lambda folder: save(folder, dense))
        ran = self.ran(self.open(checkpoint="model.ckpt"), "graph", runs())
        self.assert_near(ran.results[0]["y"], wanted[0])
        self.assertEqual(ran.inputs, [("x", (2, 3))])

    def test_resource_variables(self) -> None:
        """Protects graphs with resource variables: their handles don't change."""
        wanted = self.make(lambda folder: save(folder, lambda tf, x: dense(tf, x, resource=True)))
        ran = self.ran(self.open(checkpoint="model.ckpt"), "graph", runs())
        self.assert_near(ran.results[0]["y"], wanted[0])
        self.assertEqual(set(ran.variables), {"w", "b"})

    def test_debug_info(self) -> None:
        """Protects source lines in errors: they come from debug information, text or binary, excluding TensorFlow's own."""

        def build(folder: str) -> None:
            import tensorflow as tf
            from tensorflow.python.framework import error_interpolation

            with tf.Graph().as_default() as graph:
                x = tf.compat.v1.placeholder(tf.float32, [2, 3], "x")
                tf.nn.relu(tf.reduce_sum(x, name="sum"), name="y")
                tf.io.write_graph(graph.as_graph_def(), folder, "graph.pb", as_text=False)
                info = error_interpolation.create_graph_debug_info_def([("", op) for op in graph.get_operations()])
            Path(folder, "info.pb").write_bytes(info.SerializeToString())
            Path(folder, "info.pbtxt").write_text(str(info))

        self.make(build)
        lines = Path(__file__).read_text().splitlines()
        number = next(index for index, line in enumerate(lines, 1) if 'name="y")' in line and "relu(tf.reduce" in line)
        for name in ("info.pb", "info.pbtxt"):
            with self.subTest(name):
                sources = self.ran(self.open(debug_info=name), "graph", runs()).sources
                self.assertTrue(sources["y"].endswith(f"graph_def_test.py:{number}"), sources)
                self.assertEqual(sources["y"], sources["sum"])


class EdgesTest(Base):
    """Inputs and outputs."""

    def test_names(self) -> None:
        """Protects inputs and outputs given by name: a port, an output that is an input, and a duplicate."""

        def build(tf: Any, x: Any) -> Any:
            low, high = tf.split(x, 2, name="halves")
            return {"sum": tf.add(low, high, name="sum"), "high": high}, tf.no_op()

        wanted = self.make(lambda folder: save(folder, build, checkpoint=False))
        outputs = ["sum", "halves:1", "x", "sum:0"]
        ran = self.ran(self.open(inputs=["x"], outputs=outputs), "graph", runs())
        self.assertEqual([label for label, _ in ran.outputs], ["sum", "halves:1", "x", "sum"])
        self.assert_near(ran.results[0]["sum"], wanted[0]["sum"])
        self.assert_near(ran.results[0]["halves:1"], wanted[0]["high"])
        self.assert_near(ran.results[0]["x"], X)

    def test_feed_in_the_middle(self) -> None:
        """Protects feeds of computed tensors: what computed them isn't needed, nor are its variables."""
        self.make(lambda folder: save(folder, dense))
        ran = self.ran(
            self.open(inputs=["MatMul"], outputs=["y"], checkpoint="model.ckpt"), "graph", [{"MatMul": -X[:, :2]}]
        )
        self.assert_near(ran.results[0]["y"], np.maximum(0.5 - X[:, :2], 0))
        self.assertEqual(ran.inputs, [("MatMul", (2, 2))])
        self.assertEqual(list(ran.variables), ["b"])
        self.assertNotIn("x", ran.nodes)

    def test_feed_one_output_of_two(self) -> None:
        """Protects a node with one fed and one computed output."""

        def build(tf: Any, x: Any) -> Any:
            low, high = tf.split(x, 2, name="halves")
            with tf.control_dependencies([low.op]):
                return tf.add(low, 10 * high, name="y"), tf.no_op()

        self.make(lambda folder: save(folder, build, checkpoint=False))
        for fed, result in (("halves", 7 + 10 * X[1:]), ("halves:1", X[:1] + 70)):
            with self.subTest(fed):
                feeds = {"x": X, fed: np.full([1, 3], 7, np.float32)}
                ran = self.ran(self.open(inputs=["x", fed], outputs=["y"]), "graph", [feeds])
                self.assert_near(ran.results[0]["y"], result)

    def test_waiting_for_inputs(self) -> None:
        """Protects the compiler from placeholders that something waits for: inputs are always ready."""
        (self.folder / "graph.pbtxt").write_text(
            """
            node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
                   attr { key: "shape" value { shape { dim { size: 2 } } } } }
            node { name: "y" op: "Add" input: "x" input: "x" input: "^x" attr { key: "T" value { type: DT_FLOAT } } }
            """
        )

        def work() -> list[str]:
            from tfaot.export.traced import Dims

            nodes = self.open("graph.pbtxt")().function("graph", Dims({})).graph.node
            return [operand for node in nodes for operand in node.input]

        self.assertEqual(isolate.run_isolated(work, what="cutting"), ["x", "x"])

    def test_config(self) -> None:
        """Protects handwritten tf_library configs: they decide labels, order, feeds of any tensor, and shapes."""

        def build(tf: Any, x: Any) -> Any:
            n = tf.compat.v1.placeholder(tf.float32, None, "n")
            return tf.add(tf.exp(x, name="exp") * 2, n, name="y"), tf.no_op()

        def write(folder: str) -> None:
            import tensorflow as tf

            tf.compat.v1.disable_v2_behavior()
            with tf.Graph().as_default() as graph:
                build(tf, tf.compat.v1.placeholder(tf.float32, [None, 3], "x"))
                tf.io.write_graph(graph.as_graph_def(), folder, "graph.pb", as_text=False)

        self.make(write)
        (self.folder / "config.pbtxt").write_text(
            """
            feed { id { node_name: "n" } shape { } name: "offset" }
            feed { id { node_name: "exp" } shape { dim { size: 2 } dim { size: 3 } } name: "raised" type: DT_FLOAT }
            fetch { id { node_name: "y" } name: "result" }
            """
        )
        ran = self.ran(self.open(config="config.pbtxt"), "graph", [{"offset": 1.0, "raised": X}])
        self.assertEqual(ran.inputs, [("offset", ()), ("raised", (2, 3))])
        self.assertEqual(ran.outputs, [("result", (2, 3))])
        self.assert_near(ran.results[0]["result"], 2 * X + 1)

    def test_binary_config(self) -> None:
        """Protects configs that end in .pb, which tfcompile reads as binary."""

        def write(folder: str) -> None:
            from tensorflow.compiler.tf2xla import tf2xla_pb2

            save(folder, dense)
            config = tf2xla_pb2.Config()
            config.feed.add(name="input").id.node_name = "x"
            config.fetch.add(name="result").id.node_name = "y"
            Path(folder, "config.pb").write_bytes(config.SerializeToString())

        self.make(write)
        ran = self.ran(self.open(config="config.pb", checkpoint="model.ckpt"), "graph", [{"input": X}])
        self.assertEqual((ran.inputs, ran.outputs), ([("input", (2, 3))], [("result", (2, 2))]))

    def test_config_leaves_shapes_to_dims(self) -> None:
        """Protects against confusing a missing shape with a scalar's: it is the graph's, and dims fixes the rest."""

        def write(folder: str) -> None:
            import tensorflow as tf

            with tf.Graph().as_default() as graph:
                tf.square(tf.compat.v1.placeholder(tf.float32, [None, 3], "x"), name="y")
                tf.io.write_graph(graph.as_graph_def(), folder, "graph.pb", as_text=False)

        self.make(write)
        (self.folder / "config.pbtxt").write_text('feed { id { node_name: "x" } } fetch { id { node_name: "y" } }')
        ran = self.ran(self.open(config="config.pbtxt"), "graph", [{"x": X}], dims={"x": (2, None)})
        self.assertEqual((ran.inputs, ran.outputs), ([("x", (2, 3))], [("y", (2, 3))]))
        self.refused_function(
            self.open(config="config.pbtxt"),
            """
            graph.pb: 1 input(s) have dimensions that aren't known at build time
              found: x [None, 3]
              to do: fix them in the model, or with dims = {"x": [1, 3]}, with your sizes in place of 1; \
any number of rows is batch_sizes
            """,
        )

    def test_config_of_variables(self) -> None:
        """Protects a config's entries for variables: they are passed on, without its feeds and fetches."""
        self.make(lambda folder: save(folder, dense))
        (self.folder / "config.pbtxt").write_text(
            'feed { id { node_name: "x" } } fetch { id { node_name: "y" } } '
            'variable { node_name: "w" name: "weights" readonly: true }'
        )

        def work() -> str:
            return str(self.open(config="config.pbtxt")().variable_config)

        self.assertEqual(
            isolate.run_isolated(work, what="reading").split(),
            ["variable", "{", "node_name:", '"w"', "name:", '"weights"', "readonly:", "true", "}"],
        )

    def test_operation(self) -> None:
        """Protects train ops: an output that is an operation has no value, and runs before the others are ready."""

        def build(tf: Any, x: Any) -> Any:
            w = tf.compat.v1.get_variable("w", [3, 2])
            loss = tf.reduce_sum(tf.square(tf.matmul(x, w)), name="loss")
            train = tf.compat.v1.train.AdamOptimizer(0.1).minimize(loss, name="train")
            return loss, train

        wanted = self.make(lambda folder: save(folder, build, steps=3))
        source = self.open(outputs=["loss", "train"], checkpoint="model.ckpt")
        ran = self.ran(source, "graph", runs(3))
        # A TensorFlow 1 loss is from before or after the step. Here, it doesn't depend on the step.
        self.assert_near([result["loss"] for result in ran.results], wanted)
        self.assertEqual(set(ran.variables), {"w", "w/Adam", "w/Adam_1", "beta1_power", "beta2_power"})
        alone = self.ran(self.open(outputs=["train"], checkpoint="model.ckpt"), "graph", [*runs(3)])
        self.assertEqual((alone.outputs, alone.results[0]), ([("done", ())], {"done": True}))
        for name, value in ran.variables.items():
            self.assert_near(alone.variables[name], value)

    def test_old_placeholders(self) -> None:
        """Protects graphs from before 2017, where a placeholder without dimensions has an unknown shape."""

        def write(folder: str) -> None:
            text = """
                node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
                       attr { key: "shape" value { shape { } } } }
                node { name: "y" op: "Neg" input: "x" attr { key: "T" value { type: DT_FLOAT } } }
                versions { producer: 15 }
                """
            Path(folder, "graph.pbtxt").write_text(text)

        self.make(write)
        ran = self.ran(self.open("graph.pbtxt"), "graph", [{"x": X}], dims={"x": (2, 3)})
        self.assert_near(ran.results[0]["y"], -X)
        self.refused_function(
            self.open("graph.pbtxt"),
            """
            graph.pbtxt: 1 input(s) have dimensions that aren't known at build time
              found: x (unknown rank)
              to do: fix them in the model, or with dims = {"x": []}; \
of an unknown rank, write a size for each dimension, or [] for a scalar
            """,
        )

    def test_functions_and_defaults(self) -> None:
        """Protects functions in the graph's library, and placeholders with a default, which aren't inputs."""

        def write(folder: str) -> Any:
            import tensorflow as tf

            tf.compat.v1.disable_v2_behavior()
            with tf.Graph().as_default() as graph:

                @tf.function
                def twice(value: Any) -> Any:
                    return 2 * value

                x = tf.compat.v1.placeholder(tf.float32, [2, 3], "x")
                keep = tf.compat.v1.placeholder_with_default(tf.constant(3.0), [], "keep")
                tf.add(twice(x), keep, name="y")
                tf.io.write_graph(graph.as_graph_def(), folder, "graph.pb", as_text=False)

        self.make(write)
        ran = self.ran(self.open(), "graph", [{"x": X}])
        self.assert_near(ran.results[0]["y"], 2 * X + 3)


class RefVariablesTest(Base):
    """Reference variables of TensorFlow 1."""

    def check(
        self, build: Callable[[Any, Any], Any], *, steps: int = 2, outputs: tuple[str, ...] = ("y", "more")
    ) -> Any:
        """Builds a graph with fetch `y` and operation `more`, and compares several runs with a session."""
        wanted = self.make(lambda folder: save(folder, build, steps=steps))
        ran = self.ran(self.open(outputs=list(outputs), checkpoint="model.ckpt"), "graph", runs(steps))
        self.assert_near([result["y"] for result in ran.results], wanted)
        self.assertFalse(
            {op for op in ran.nodes.values() if op.startswith(("Ref", "Variable", "Assign"))} - set(_RESOURCE)
        )
        return ran

    def test_optimizers(self) -> None:
        """Protects training: every optimizer's op has an equivalent."""
        for name, arguments in (
            ("GradientDescentOptimizer", {}),
            ("MomentumOptimizer", {"momentum": 0.9, "use_nesterov": True}),
            ("AdagradOptimizer", {}),
            ("RMSPropOptimizer", {}),
            ("FtrlOptimizer", {}),
            ("AdamOptimizer", {}),
        ):
            with self.subTest(name):

                def build(tf: Any, x: Any, name: str = name, arguments: dict[str, Any] = arguments) -> Any:
                    v1 = tf.compat.v1
                    w = v1.get_variable("w", [3, 2])
                    loss = tf.reduce_sum(tf.square(tf.matmul(x, w)))
                    train = getattr(v1.train, name)(0.05, **arguments).minimize(loss)
                    with tf.control_dependencies([train]):
                        return tf.identity(loss, name="y"), tf.no_op("more")

                self.check(build, steps=3)

    def test_sparse_updates(self) -> None:
        """Protects embeddings in training: lookups by reference, and gradients of rows."""

        def build(tf: Any, x: Any) -> Any:
            v1 = tf.compat.v1
            table = v1.get_variable("table", [4, 3])
            looked_up = tf.gather(table, [1, 3])
            loss = tf.reduce_sum(tf.square(looked_up - x))
            train = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
            with tf.control_dependencies([train, v1.scatter_nd_update(table, [[0]], x[:1])]):
                return tf.identity(loss, name="y"), tf.no_op("more")

        ran = self.check(build, steps=3)
        self.assert_near(ran.variables["table"][0], X[0] + 2)

    def test_results_of_writes(self) -> None:
        """Protects the value of an assignment, which is the variable's value after it, through a chain of them."""

        def build(tf: Any, x: Any) -> Any:
            v1 = tf.compat.v1
            w = v1.get_variable("w", [2, 3])
            first = v1.assign_add(w, x)
            second = v1.assign_sub(first, 2 * x)
            with tf.control_dependencies([second]):
                third = v1.assign(w, tf.tanh(w.op.outputs[0]))
            return tf.add(third, x, name="y"), tf.no_op("more")

        self.check(build, steps=3)

    def test_taken_without_identity(self) -> None:
        """Protects ops that take a variable's value directly: they see its value at the time they run."""

        def build(tf: Any, x: Any) -> Any:
            v1 = tf.compat.v1
            w = v1.get_variable("w", [2, 3])
            reference = w.op.outputs[0]
            before = tf.raw_ops.Mul(x=reference, y=x)
            with tf.control_dependencies([before]):
                added = v1.assign_add(w, tf.ones([2, 3]))
            with tf.control_dependencies([added]):
                after = tf.raw_ops.Mul(x=reference, y=x)
            return tf.stack([before, after], name="y"), tf.no_op("more")

        self.check(build, steps=3)

    def test_conditionals(self) -> None:
        """Protects TensorFlow 1 branches that write: the reference passes through a RefSwitch."""

        def build(tf: Any, x: Any) -> Any:
            v1 = tf.compat.v1
            w = v1.get_variable("w", [2, 3])
            y = v1.cond(tf.reduce_sum(x) > 8, lambda: v1.assign_add(w, x), lambda: w * 2)
            return tf.identity(y, name="y"), tf.no_op("more")

        ran = self.check(build, steps=3)
        self.assertNotIn("RefSwitch", ran.nodes.values())

    def test_loops(self) -> None:
        """Protects TensorFlow 1 loops that write: the reference passes through a RefEnter."""

        def build(tf: Any, x: Any) -> Any:
            v1 = tf.compat.v1
            w = v1.get_variable("w", [2, 3])

            def body(i: Any, value: Any) -> Any:
                return i + 1, value + v1.assign_add(w, tf.tanh(value))

            y = v1.while_loop(lambda i, value: i < 3, body, [0, x])[1]
            return tf.identity(y, name="y"), tf.no_op("more")

        ran = self.check(build, steps=3)
        self.assertIn("Enter", ran.nodes.values())
        self.assertNotIn("RefEnter", ran.nodes.values())

    def test_two_of_one_name(self) -> None:
        """Protects names: nodes that share one within a container are one variable; others never get the same name."""

        def write(folder: str) -> None:
            text = "".join(
                f'node {{ name: "{name}" op: "VariableV2" attr {{ key: "dtype" value {{ type: DT_FLOAT }} }} '
                f'attr {{ key: "shape" value {{ shape {{ }} }} }} '
                f'attr {{ key: "shared_name" value {{ s: "{shared}" }} }} '
                f'attr {{ key: "container" value {{ s: "{container}" }} }} }} '
                f'node {{ name: "{name}_read" op: "Identity" input: "{name}" '
                f'attr {{ key: "T" value {{ type: DT_FLOAT }} }} }}'
                for name, shared, container in (("a", "s", ""), ("b", "s", ""), ("c", "s", "other"), ("s", "", ""))
            )
            Path(folder, "graph.pbtxt").write_text(text)

        self.make(write)

        def work() -> dict[str, str]:
            from tfaot.export.traced import Dims

            source = self.open("graph.pbtxt", outputs=["a_read", "b_read", "c_read", "s_read"])()
            nodes = source.function("graph", Dims({})).graph.node
            return {node.name: node.attr["shared_name"].s.decode() for node in nodes if node.op == "VarHandleOp"}

        names = isolate.run_isolated(work, what="naming")
        self.assertEqual(names, {"a": "s", "b": "s", "c": "s_", "s": "s"})

    def test_no_equivalent(self) -> None:
        """Protects against wrong results: an op without an equivalent for resource variables is named."""

        def build(tf: Any, x: Any) -> Any:
            v1 = tf.compat.v1
            v = tf.raw_ops.VariableV2(shape=[], dtype=tf.float32)
            with tf.control_dependencies([v1.assign(v, 1.0)]):
                w = v1.get_variable("w", [2, 3])
                y = tf.raw_ops.RefSelect(index=0, inputs=[w.op.outputs[0], w.op.outputs[0]])
            return tf.identity(y, name="y"), tf.no_op("more")

        self.make(lambda folder: save(folder, build))
        self.refused_function(
            self.open(outputs=["y"], checkpoint="model.ckpt"),
            """
            graph.pb: 1 op(s) use TensorFlow 1 variables in ways that resource variables don't support
              found: RefSelect (RefSelect)
              to do: remove them from what the outputs need, or build the graph with resource variables \\
            (tf.compat.v1.enable_resource_variables())
            """,
        )


_RESOURCE = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
"""Ops whose names start like those of reference ops."""


class CheckpointTest(Base):
    """Where initial values come from."""

    def test_first_format(self) -> None:
        """Protects checkpoints in the first format, in a single file and sharded."""
        wanted = self.make(lambda folder: save(folder, dense, write_version=1))
        ran = self.ran(self.open(outputs=["y"], checkpoint="model.ckpt"), "graph", runs())
        self.assert_near(ran.results[0]["y"], wanted[0])
        wanted = self.make(lambda folder: save(folder, dense, write_version=1, sharded=True))
        ran = self.ran(self.open(outputs=["y"], checkpoint="model.ckpt-00000-of-00001"), "graph", runs())
        self.assert_near(ran.results[0]["y"], wanted[0])

    def test_saver_with_other_names(self) -> None:
        """Protects savers that rename, like those for moving averages: what they restore is read, text or binary."""

        def build(folder: str) -> Any:
            import tensorflow as tf

            v1 = tf.compat.v1
            v1.disable_v2_behavior()
            with tf.Graph().as_default() as graph:
                x = v1.placeholder(tf.float32, [2, 3], "x")
                y, _ = dense(tf, x)
                w, b = v1.global_variables()
                saver = v1.train.Saver({"average/w": w, "b": b})
                with v1.Session(graph=graph) as session:
                    session.run(v1.global_variables_initializer())
                    tf.io.write_graph(graph.as_graph_def(), folder, "graph.pb", as_text=False)
                    saver.save(session, f"{folder}/model.ckpt")
                    Path(folder, "saver.pb").write_bytes(saver.saver_def.SerializeToString())
                    Path(folder, "saver.pbtxt").write_text(str(saver.saver_def))
                    return session.run(y, {x: X})

        wanted = self.make(build)
        for name in ("saver.pb", "saver.pbtxt"):
            ran = self.ran(self.open(outputs=["y"], checkpoint="model.ckpt", saver=name), "graph", runs())
            self.assert_near(ran.results[0]["y"], wanted)
        self.refused_values(
            self.open(outputs=["y"], checkpoint="model.ckpt"),
            ["w", "b"],
            """
            graph.pb: model.ckpt has no matching value for 1 variable(s)
              found: w: missing; the checkpoint contains average/w, b
              to do: use the checkpoint of this exact graph; if it was saved under other names, also name its SaverDef in saver
            """,
        )

    def test_partitioned(self) -> None:
        """Protects partitioned variables: a checkpoint stores them whole, and the saver knows each one's part."""
        for resource in (False, True):
            with self.subTest(resource=resource):

                def build(tf: Any, x: Any, resource: bool = resource) -> Any:
                    v1 = tf.compat.v1
                    partitioner = v1.fixed_size_partitioner(2, axis=1)
                    w = v1.get_variable("w", [3, 4], partitioner=partitioner, use_resource=resource)
                    return tf.matmul(x, tf.concat(list(w), 1), name="y"), tf.no_op()

                wanted = self.make(lambda folder, build=build: save(folder, build))
                opened = self.open(outputs=["y"], checkpoint="model.ckpt", saver="saver.pb")
                ran = self.ran(opened, "graph", runs())
                self.assert_near(ran.results[0]["y"], wanted[0])
                self.assertEqual(set(ran.variables), {"w/part_0", "w/part_1"})

    def test_objects(self) -> None:
        """Protects TensorFlow 2 checkpoints, which identify variables by their objects, and also store their names."""

        def build(folder: str) -> Any:
            import tensorflow as tf

            v1 = tf.compat.v1
            v1.disable_v2_behavior()
            with tf.Graph().as_default() as graph:
                x = v1.placeholder(tf.float32, [2, 3], "x")
                y, _ = dense(tf, x, resource=True)
                w, b = v1.global_variables()
                tf.io.write_graph(graph.as_graph_def(), folder, "graph.pb", as_text=False)
                with v1.Session(graph=graph) as session:
                    session.run(v1.global_variables_initializer())
                    checkpoint = tf.train.Checkpoint(kernel=w, bias=b)
                    checkpoint.save(f"{folder}/model.ckpt")
                    return session.run(y, {x: X})

        wanted = self.make(build)
        ran = self.ran(self.open(outputs=["y"], checkpoint="model.ckpt-1"), "graph", runs())
        self.assert_near(ran.results[0]["y"], wanted)

    def refused_values(self, opened: Callable[[], Any], names: list[str], wanted: str) -> None:
        """Requesting initial values must fail with this message."""
        self.refused(lambda: opened().initial(names), wanted)

    def test_no_checkpoint(self) -> None:
        """A graph with variables but without a checkpoint lists them. Requesting nothing isn't an error."""
        self.make(lambda folder: save(folder, dense))
        self.refused_values(
            self.open(outputs=["y"]),
            ["w", "b"],
            """
            graph.pb: the graph has 2 variable(s) without values
              found: b, w
              to do: add the checkpoint from its training: checkpoint = "model.ckpt.index"
            """,
        )

        def nothing() -> bool:
            return self.open(outputs=["y"])().initial([]) == {}

        self.assertTrue(isolate.run_isolated(nothing, what="asking for nothing"))

    def test_other_shapes(self) -> None:
        """A checkpoint of another model lists every variable that differs, in one message."""
        self.make(lambda folder: save(folder, dense))

        def other(tf: Any, x: Any) -> Any:
            v1 = tf.compat.v1
            v1.get_variable("w", [3, 4])
            v1.get_variable("b", [2], tf.float64)
            return x, tf.no_op()

        def write(folder: str) -> None:
            Path(folder, "other").mkdir()
            save(f"{folder}/other", other)

        self.make(write)
        self.refused_values(
            self.open(outputs=["y"], checkpoint="other/model.ckpt"),
            ["w", "b"],
            """
            graph.pb: other/model.ckpt has no matching value for 2 variable(s)
              found: w: float32[3, 2] in the model, float32[3, 4] in the checkpoint; \\
            b: float32[2] in the model, float64[2] in the checkpoint
              to do: use the checkpoint of this exact graph; if it was saved under other names, also name its SaverDef in saver
            """,
        )

    def test_no_such_checkpoint(self) -> None:
        """A file that isn't a checkpoint is named, along with how to specify checkpoints."""
        self.make(lambda folder: save(folder, dense))
        (self.folder / "nothing.ckpt").write_text("nothing")
        text = self.error_of(
            self.make, lambda folder: self.open(outputs=["y"], checkpoint="nothing.ckpt")().initial(["w"])
        )
        text = text.replace(f"{self.folder}/", "")
        self.assertTrue(text.startswith("graph.pb: nothing.ckpt isn't a checkpoint that TensorFlow can read\n"), text)
        self.assertTrue(
            text.endswith(
                "  to do: name a checkpoint's prefix or its .index file, and list all of its files: "
                "NAME.index, and each NAME.data-?????-of-?????"
            ),
            text,
        )

    def test_missing_data(self) -> None:
        """A checkpoint with only its index listed says which files it has."""
        self.make(lambda folder: save(folder, dense))
        (self.folder / "model.ckpt.data-00000-of-00001").unlink()
        text = self.error_of(
            self.make, lambda folder: self.open(outputs=["y"], checkpoint="model.ckpt")().initial(["w"])
        )
        text = text.replace(f"{self.folder}/", "")
        self.assertTrue(text.startswith("graph.pb: can't read model.ckpt\n"), text)
        self.assertTrue(
            text.endswith(
                "  to do: list all files of the checkpoint, unchanged: NAME.index, and each NAME.data-?????-of-?????"
            ),
            text,
        )

    def test_saver_of_another_graph(self) -> None:
        """A saver whose restore op isn't in the graph, and one without a checkpoint, get an error."""
        self.make(lambda folder: save(folder, dense))
        (self.folder / "other.pbtxt").write_text('restore_op_name: "other/restore_all"')
        self.refused_values(
            self.open(outputs=["y"], checkpoint="model.ckpt", saver="other.pbtxt"),
            ["w"],
            """
            graph.pb: the saver's restore op 'other/restore_all' isn't in the graph
              found: NoOp, save/restore_all, init
              to do: use this graph's saver, or remove it: variables are then looked up by their own names
            """,
        )
        self.refused(
            self.open(outputs=["y"], saver="other.pbtxt"),
            """
            graph.pb: saver without checkpoint
              to do: name the checkpoint that it wrote in the target's checkpoint, or remove saver
            """,
        )


class DeclaredTest(Base):
    """Variables that a config declares, which are arguments of the compiled code."""

    CONFIG = 'feed { id { node_name: "x" } } fetch { id { node_name: "y" } } '

    def model(self, entries: str, **arguments: str) -> Model:
        """Returns the graph of `dense`, with a config that has these entries for variables."""
        (self.folder / "config.pbtxt").write_text(self.CONFIG + entries)
        files = {key: str(self.folder / value) for key, value in arguments.items()}
        return Model(graph=str(self.folder / "graph.pb"), config=str(self.folder / "config.pbtxt"), **files)

    def test_without_values(self) -> None:
        """Protects targets without a checkpoint: variables that the config declares start at zero, and nothing is frozen."""
        self.make(lambda folder: save(folder, lambda tf, x: dense(tf, x, resource=True)))
        model = self.model('variable { node_name: "b" name: "bias" } variable { node_name: "w" readonly: true }')
        exported = self.export(model)
        self.assertEqual(
            [(v.name, v.cpp_name, v.written, v.unset) for v in exported.manifest.variables],
            [("w", "w", False, True), ("b", "bias", False, True)],
        )
        self.assertEqual(
            {name: value.tolist() for name, value in exported.variables.items()}, {"b": [0] * 2, "w": [[0] * 2] * 3}
        )
        self.compile(exported)
        values = {"b": np.array([1, 2], np.float32), "w": np.ones([3, 2], np.float32)}
        given = self.export(model, weights=values)
        self.assertEqual([v.unset for v in given.manifest.variables], [False, False])
        self.assertEqual(given.variables["b"].tolist(), [1, 2])

    def test_with_values(self) -> None:
        """Protects a checkpoint beside a config that declares variables: they start with the checkpoint's values."""
        wanted = self.make(lambda folder: save(folder, dense))
        exported = self.export(self.model('variable { node_name: "b" }', checkpoint="model.ckpt"))
        self.assertEqual([(v.name, v.unset) for v in exported.manifest.variables], [("b", False)])
        self.assertEqual([each.name for each in exported.manifest.frozen], ["w"])
        self.assertEqual(exported.variables["b"].tolist(), [0.5, 0.5])
        self.assertEqual(np.shape(wanted[0]), (2, 2))

    def test_frozen(self) -> None:
        """Protects targets that freeze a variable which the config also declares: it is a constant, not an error."""
        self.make(lambda folder: save(folder, dense))
        exported = self.export(self.model('variable { node_name: "b" }', checkpoint="model.ckpt"), frozen=("*",))
        self.assertEqual(exported.manifest.variables, ())
        self.assertEqual({each.name for each in exported.manifest.frozen}, {"w", "b"})
        self.compile(exported)

    def test_not_needed(self) -> None:
        """Protects configs that declare variables which no output needs: such entries have no effect."""
        self.make(lambda folder: save(folder, dense))
        (self.folder / "config.pbtxt").write_text(
            'feed { id { node_name: "MatMul" } } fetch { id { node_name: "y" } } '
            'variable { node_name: "b" } variable { node_name: "w" readonly: true }'
        )
        model = Model(graph=str(self.folder / "graph.pb"), config=str(self.folder / "config.pbtxt"))
        self.assertEqual([v.name for v in self.export(model).manifest.variables], ["b"])

    def test_frozen_without_values(self) -> None:
        """A variable that callers set can't be a constant, and zeros in its place would be wrong."""
        self.make(lambda folder: save(folder, dense))
        text = self.error_of(
            self.export, self.model('variable { node_name: "b" } variable { node_name: "w" }'), frozen=("*",)
        )
        self.assert_error(
            text.replace(f"{self.folder}/", ""),
            """
            graph.pb: frozen names 2 variable(s) for which the model has no value
              found: b, w
              to do: add a checkpoint or weights with their values, or take them out of frozen: callers then set them
            """,
        )

    def test_not_declared(self) -> None:
        """A variable without a value that the config doesn't declare is an error, which names both ways out."""
        self.make(lambda folder: save(folder, dense))
        text = self.error_of(self.export, self.model('variable { node_name: "b" }'))
        self.assert_error(
            text.replace(f"{self.folder}/", ""),
            """
            graph.pb: the graph has 1 variable(s) without values
              found: w
              to do: add the checkpoint from its training: checkpoint = "model.ckpt.index"; or declare them in the config as \
arguments, which start at zero: variable { node_name: "w" }
            """.replace("\\\n", ""),
        )


class ErrorsTest(Base):
    """Files and names that don't fit. `graph_defs.txt` has files, what `open` gets, and messages; the graph is that of `dense`."""

    def text(self, name: str, text: str) -> None:
        """Writes a file to the folder."""
        (self.folder / name).write_text(text)

    def check_case(self, case: cases.Case) -> None:
        """Checks a case of the table."""
        self.make(lambda folder: save(folder, dense))
        for line in case.text.splitlines():
            self.text(*(part.strip() for part in line.split(":", 1)))
        self.refused_function(self.open(**ast.literal_eval(case.extra)), case.wanted)

    def test_saved_model(self) -> None:
        """The main file of a SavedModel is recognized: its folder is needed instead."""

        def write(folder: str) -> None:
            import tensorflow as tf

            module = tf.Module()
            module.f = tf.function(lambda x: x, input_signature=[tf.TensorSpec([2], name="x")])
            tf.saved_model.save(module, f"{folder}/saved")

        self.make(write)
        self.refused(
            self.open("saved/saved_model.pb"),
            """
            saved/saved_model.pb is the main file of a SavedModel, not a graph
              to do: use the whole folder: saved_model = …
            """,
        )

    def test_shapes(self) -> None:
        """Shapes that don't fit are reported with the node and its source lines, from debug information of any TensorFlow."""

        def build(folder: str) -> None:
            import tensorflow as tf
            from tensorflow.python.framework import error_interpolation

            with tf.Graph().as_default() as graph:
                x, y = (tf.compat.v1.placeholder(tf.int32, [None], name) for name in "xy")
                tf.add(x, y, name="sum")
                tf.io.write_graph(graph.as_graph_def(), folder, "graph.pb", as_text=False)
                info = error_interpolation.create_graph_debug_info_def([("", op) for op in graph.get_operations()])
            Path(folder, "new.pb").write_bytes(info.SerializeToString())

        self.make(build)
        self.text(
            "old.pbtxt",
            'files: "model.py" traces { key: "sum@" value { file_line_cols { line: 3 } file_line_cols { line: 4 } } }',
        )
        self.text(
            "config.pbtxt",
            'feed { id { node_name: "x" } shape { dim { size: 2 } } } '
            'feed { id { node_name: "y" } shape { dim { size: 3 } } } fetch { id { node_name: "sum" } }',
        )
        lines = Path(__file__).read_text().splitlines()
        number = next(index for index, line in enumerate(lines, 1) if line.strip() == 'tf.add(x, y, name="sum")')
        for name, place in (("old.pbtxt", "model.py:3, model.py:4"), ("new.pb", f"graph_def_test.py:{number}")):
            with self.subTest(name):
                text = self.error_of(
                    self.make,
                    lambda folder, name=name: self.ran(self.open(config="config.pbtxt", debug_info=name), "graph", []),
                )
                self.assertIn("Dimensions must be equal, but are 2 and 3 for '{{node sum}}", text)
                self.assertRegex(text, rf"'sum' at (\S*/)?{place}\n")

    def test_unknown_op(self) -> None:
        """An op that TensorFlow doesn't have is reported in TensorFlow's words."""
        self.text("graph.pbtxt", 'node { name: "y" op: "MyOwnOp" }')
        text = self.error_of(self.make, lambda folder: self.ran(self.open("graph.pbtxt", outputs=["y"]), "graph", []))
        self.assertIn("graph.pbtxt: TensorFlow 2.", text)
        self.assertIn("rejects this graph", text)
        self.assertIn("MyOwnOp", text)

    def test_wrong_entry_point(self) -> None:
        """A graph has one entry point."""

        def work() -> None:
            from tfaot.export.traced import Dims

            self.open(outputs=["y"])().function("train", Dims({}))

        self.make(lambda folder: save(folder, dense, checkpoint=False))
        self.refused(
            work,
            """
            graph.pb has no entry point 'train'
              found: a graph has a single entry point, from its inputs to its outputs
              to do: remove entry_points, or save the model as a SavedModel with a signature for each
            """,
        )


cases.declare(ErrorsTest, Path(__file__).with_name("graph_defs.txt"), ErrorsTest.check_case)

if __name__ == "__main__":
    unittest.main()
