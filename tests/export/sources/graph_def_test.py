"""GraphDefs with and without configs, checkpoints, and debug information, compared with a session on the original."""

from __future__ import annotations

import os
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

OLD = """
    node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
           attr { key: "shape" value { shape { } } } }
    node { name: "y" op: "Neg" input: "x" attr { key: "T" value { type: DT_FLOAT } } }
    versions { producer: 15 }
    """
"""A graph from before 2017, where a placeholder without dimensions has an unknown shape."""


def save(
    folder: str,
    build: Callable[[Any, Any], Any],
    *,
    steps: int = 1,
    checkpoint: bool = True,
    names: Callable[..., Any] | None = None,
    **saver: Any,
) -> Any:
    """Builds a TensorFlow 1 graph, saves it as `graph.pb` and its variables as `model.ckpt`, and runs it.

    Args:
      folder: the destination.
      build: called with TensorFlow and the placeholder `x`, float32[2, 3]. Returns what to fetch, and what to run with it.
      steps: the number of runs.
      checkpoint: whether to save one.
      names: from variables to the Saver's names of them.
      saver: more of its arguments.

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
        saved = names(*v1.global_variables()) if names else None
        saver_object = v1.train.Saver(saved, **saver) if checkpoint else None
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


class FormatsTest(Base):
    """File formats."""

    def test_text_and_binary(self) -> None:
        """Protects both formats of a graph, and reading a checkpoint by its prefix or any of its files."""
        wanted = self.make_once(save, dense)
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
        wanted = self.make_once(save, dense)
        ran = self.ran(self.open("model.ckpt.meta", outputs=["y"], checkpoint="model.ckpt.meta"), "graph", runs())
        self.assert_near(ran.results[0]["y"], wanted[0])

    def test_inferred_edges(self) -> None:
        """Protects graphs without specified edges: unconsumed tensors are outputs, but save and init ops aren't."""
        wanted = self.make_once(save, dense)
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

        wanted = self.make(save, build, checkpoint=False)
        outputs = ["sum", "halves:1", "x", "sum:0"]
        ran = self.ran(self.open(inputs=["x"], outputs=outputs), "graph", runs())
        self.assertEqual([label for label, _ in ran.outputs], ["sum", "halves:1", "x", "sum"])
        self.assert_near(ran.results[0]["sum"], wanted[0]["sum"])
        self.assert_near(ran.results[0]["halves:1"], wanted[0]["high"])
        self.assert_near(ran.results[0]["x"], X)

    def test_feed_in_the_middle(self) -> None:
        """Protects feeds of computed tensors: what computed them isn't needed, nor are its variables."""
        self.make_once(save, dense)
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

        self.make(save, build, checkpoint=False)
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

    def test_config_of_variables(self) -> None:
        """Protects a config's entries for variables: they are passed on, without its feeds and fetches."""
        self.make_once(save, dense)
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

        wanted = self.make(save, build, steps=3)
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
        (self.folder / "graph.pbtxt").write_text(OLD)
        ran = self.ran(self.open("graph.pbtxt"), "graph", [{"x": X}], dims={"x": (2, 3)})
        self.assert_near(ran.results[0]["y"], -X)

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
        wanted = self.make(save, build, steps=steps)
        ran = self.ran(self.open(outputs=list(outputs), checkpoint="model.ckpt"), "graph", runs(steps))
        self.assert_near([result["y"] for result in ran.results], wanted)
        self.assertFalse(
            {op for op in ran.nodes.values() if op.startswith(("Ref", "Variable", "Assign"))} - set(_RESOURCE)
        )
        return ran

    def check_case(self, case: cases.Case) -> None:
        """Checks a case of `ref_variables.txt`: what computes `y` from `x` and the variable `w`, and checks of what ran."""

        def build(tf: Any, x: Any) -> Any:
            v1 = tf.compat.v1
            scope = {"tf": tf, "v1": v1, "w": v1.get_variable("w", [2, 3]), "x": x}
            exec(case.text, scope)
            return tf.identity(scope["y"], name="y"), tf.no_op("more")

        exec(case.wanted, {"X": X, "ran": self.check(build, steps=3), "self": self})

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


_RESOURCE = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
"""Ops whose names start like those of reference ops."""


class CheckpointTest(Base):
    """Where initial values come from."""

    def test_first_format(self) -> None:
        """Protects checkpoints in the first format, in a single file and sharded."""
        wanted = self.make(save, dense, write_version=1)
        ran = self.ran(self.open(outputs=["y"], checkpoint="model.ckpt"), "graph", runs())
        self.assert_near(ran.results[0]["y"], wanted[0])
        wanted = self.make(save, dense, write_version=1, sharded=True)
        ran = self.ran(self.open(outputs=["y"], checkpoint="model.ckpt-00000-of-00001"), "graph", runs())
        self.assert_near(ran.results[0]["y"], wanted[0])

    def test_saver_with_other_names(self) -> None:
        """Protects savers that rename, like those for moving averages: what they restore is read, text or binary."""
        wanted = self.make(save, dense, names=lambda w, b: {"average/w": w, "b": b})
        for name in ("saver.pb", "saver.pbtxt"):
            ran = self.ran(self.open(outputs=["y"], checkpoint="model.ckpt", saver=name), "graph", runs())
            self.assert_near(ran.results[0]["y"], wanted[0])

    def test_partitioned(self) -> None:
        """Protects partitioned variables: a checkpoint stores them whole, and the saver knows each one's part."""
        for resource in (False, True):
            with self.subTest(resource=resource):

                def build(tf: Any, x: Any, resource: bool = resource) -> Any:
                    v1 = tf.compat.v1
                    partitioner = v1.fixed_size_partitioner(2, axis=1)
                    w = v1.get_variable("w", [3, 4], partitioner=partitioner, use_resource=resource)
                    return tf.matmul(x, tf.concat(list(w), 1), name="y"), tf.no_op()

                wanted = self.make(save, build)
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

    def test_nothing_needed(self) -> None:
        """Protects graphs without a checkpoint whose outputs need no variable: requesting nothing isn't an error."""
        self.make_once(save, dense)
        self.assertEqual(self.make(lambda folder: self.open(outputs=["y"])().initial([])), {})

    def test_no_such_checkpoint(self) -> None:
        """A file that isn't a checkpoint is named, along with how to specify checkpoints."""
        self.make_once(save, dense)
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
        self.make_once(save, dense)
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


class DeclaredTest(Base):
    """Variables that a config declares, which are arguments of the compiled code."""

    CONFIG = 'feed { id { node_name: "x" } } fetch { id { node_name: "y" } } '

    def model(self, entries: str, **arguments: str) -> Model:
        """Returns the graph of `dense`, with a config that has these entries for variables."""
        (self.folder / "config.pbtxt").write_text(self.CONFIG + entries)
        files: dict[str, Any] = {key: str(self.folder / value) for key, value in arguments.items()}
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
        set_by_weights = self.export(model, weights=values)
        self.assertEqual([v.unset for v in set_by_weights.manifest.variables], [False, False])
        self.assertEqual(set_by_weights.variables["b"].tolist(), [1, 2])

    def test_with_values(self) -> None:
        """Protects a checkpoint beside a config that declares variables: they start with the checkpoint's values."""
        wanted = self.make_once(save, dense)
        exported = self.export(self.model('variable { node_name: "b" }', checkpoint="model.ckpt"))
        self.assertEqual([(v.name, v.unset) for v in exported.manifest.variables], [("b", False)])
        self.assertEqual([variable.name for variable in exported.manifest.frozen], ["w"])
        self.assertEqual(exported.variables["b"].tolist(), [0.5, 0.5])
        self.assertEqual(np.shape(wanted[0]), (2, 2))

    def test_frozen(self) -> None:
        """Protects targets that freeze a variable which the config also declares: it is a constant, not an error."""
        self.make_once(save, dense)
        exported = self.export(self.model('variable { node_name: "b" }', checkpoint="model.ckpt"), frozen=("*",))
        self.assertEqual(exported.manifest.variables, ())
        self.assertEqual({variable.name for variable in exported.manifest.frozen}, {"w", "b"})
        self.compile(exported)

    def test_not_needed(self) -> None:
        """Protects configs that declare variables which no output needs: such entries have no effect."""
        self.make_once(save, dense)
        (self.folder / "config.pbtxt").write_text(
            'feed { id { node_name: "MatMul" } } fetch { id { node_name: "y" } } '
            'variable { node_name: "b" } variable { node_name: "w" readonly: true }'
        )
        model = Model(graph=str(self.folder / "graph.pb"), config=str(self.folder / "config.pbtxt"))
        self.assertEqual([v.name for v in self.export(model).manifest.variables], ["b"])


class ErrorsTest(Base):
    """Files and names that don't fit: what is saved after `dense`, an expression, and its message."""

    def file(self, name: str, text: str) -> None:
        """Writes a file to the folder."""
        (self.folder / name).write_text(text)

    def check_case(self, case: cases.Case) -> None:
        """Checks a case of `graph_defs.txt`."""

        def build(folder: str) -> None:
            import tensorflow as tf

            v1 = tf.compat.v1
            exec(case.text, globals() | {"folder": folder, "os": os, "tf": tf, "v1": v1, "write": self.file})

        def work() -> None:
            from tfaot.export.traced import Dims

            def function(*arguments: Any, **files: Any) -> None:
                source = self.open(*arguments, **files)()
                source.function(source.entry_points[0], Dims({}))

            def export(**arguments: Any) -> None:
                model = Model(graph=str(self.folder / "graph.pb"), config=str(self.folder / "config.pbtxt"))
                self.export(model, **arguments)

            def opened(*arguments: Any, **files: Any) -> Any:
                return self.open(*arguments, **files)()

            eval(case.extra, {"export": export, "function": function, "open": opened, "Dims": lambda: Dims({})})

        self.make_once(save, dense)
        if case.text:
            self.make(build)
        self.refused(work, case.wanted)

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
        self.file(
            "old.pbtxt",
            'files: "model.py" traces { key: "sum@" value { file_line_cols { line: 3 } file_line_cols { line: 4 } } }',
        )
        self.file(
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
        self.file("graph.pbtxt", 'node { name: "y" op: "MyOwnOp" }')
        text = self.error_of(self.make, lambda folder: self.ran(self.open("graph.pbtxt", outputs=["y"]), "graph", []))
        self.assertIn("graph.pbtxt: TensorFlow 2.", text)
        self.assertIn("rejects this graph", text)
        self.assertIn("MyOwnOp", text)


cases.declare(RefVariablesTest, Path(__file__).with_name("ref_variables.txt"), RefVariablesTest.check_case)
cases.declare(ErrorsTest, Path(__file__).with_name("graph_defs.txt"), ErrorsTest.check_case)

if __name__ == "__main__":
    unittest.main()
