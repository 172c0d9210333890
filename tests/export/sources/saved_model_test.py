"""TensorFlow 1 and 2 SavedModels, compared with the models' results before they were saved."""

from __future__ import annotations

import pathlib
import unittest
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.export.sources.finished import FinishedTest
from tests.stages import cases, harness
from tfaot.core import isolate

X = np.array([[1.0, 2.0, -1.0], [0.5, -0.5, 3.0]], np.float32)


class Base(FinishedTest):
    """Opens what was saved to `saved`."""

    def open(self, name: str = "saved", tags: Sequence[str] = ("serve",)) -> Callable[[], Any]:
        """Opens a SavedModel in the folder."""

        def work() -> Any:
            from tfaot.export.sources.saved_model import SavedModelSource

            return SavedModelSource(str(self.folder / name), tags=tags)

        return work

    def entry_points(self, opened: Callable[[], Any]) -> tuple[str, ...]:
        """Returns the available entry points."""
        result: tuple[str, ...] = isolate.run_isolated(lambda: opened().entry_points, what="opening")
        return result


def module(tf: Any) -> Any:
    """Returns a module with two signatures, one of which writes, and three variables, two of which share a name."""

    class Model(tf.Module):
        def __init__(self) -> None:
            self.w = tf.Variable(np.arange(6, dtype=np.float32).reshape(3, 2), name="w")
            self.b = tf.Variable([0.5, -0.5], name="b")
            self.parts = [tf.Variable(2.0, name="b")]

        @tf.function(input_signature=[tf.TensorSpec([None, 3], name="x"), tf.TensorSpec([], name="factor")])
        def serve(self, x: Any, factor: Any) -> Any:
            y = factor * (x @ self.w) + self.b
            return {"y": y, "half": y / self.parts[0]}

        @tf.function(input_signature=[tf.TensorSpec([2, 3], name="x")])
        def train(self, x: Any) -> Any:
            self.b.assign_add(tf.reduce_sum(x @ self.w, 0))
            return {"loss": tf.reduce_sum(x)}

        @tf.function(input_signature=[])
        def reset(self) -> None:
            self.b.assign([0.0, 0.0])

        @tf.function
        def scaled(self, x: Any, more: Any = None, twice: bool = False) -> Any:
            y = x * self.parts[0] * (2 if twice else 1)
            return (y, {"more": y if more is None else more})

    return Model()


def save_module(folder: str) -> Any:
    """Saves the module, and returns its functions' results."""
    import tensorflow as tf

    model = module(tf)
    model.scaled(tf.constant(X))
    model.scaled(tf.constant(X), more=tf.constant([1.0]))
    model.scaled(tf.constant(X[0]), twice=True)
    tf.saved_model.save(
        model,
        f"{folder}/saved",
        signatures={"serving_default": model.serve, "train": model.train},
        options=tf.saved_model.SaveOptions(save_debug_info=True),
    )
    served = {key: value.numpy() for key, value in model.serve(X, 3.0).items()}
    losses = [model.train(X + step)["loss"].numpy() for step in range(3)]
    return served, losses, model.b.numpy()


class ObjectsTest(Base):
    """TensorFlow 2 SavedModels."""

    def test_signature(self) -> None:
        """Protects inference by signature: labels, order, open dimensions, shapes of results, and names of variables."""
        served, _, _ = self.make_once(save_module)
        ran = self.ran(self.open(), "serving_default", [{"x": X, "factor": 3.0}], dims={"x": (2, None)})
        self.assertEqual(ran.inputs, [("factor", ()), ("x", (2, 3))])
        self.assertEqual(ran.outputs, [("half", (2, 2)), ("y", (2, 2))])
        self.assert_near(ran.results[0]["y"], served["y"])
        self.assert_near(ran.results[0]["half"], served["half"])
        self.assertEqual(set(ran.variables), {"w", "b", "parts/0"})

    def test_training_signature(self) -> None:
        """Protects signatures that write: the writes happen, though no output depends on them."""
        _, losses, b = self.make_once(save_module)
        ran = self.ran(self.open(), "train", [{"x": X + step} for step in range(3)])
        self.assert_near([result["loss"] for result in ran.results], losses)
        self.assert_near(ran.variables["b"], b)

    def test_entry_points(self) -> None:
        """Protects what a message lists: first signatures, then functions."""
        self.make_once(save_module)
        self.assertEqual(self.entry_points(self.open()), ("serving_default", "train", "reset", "scaled", "serve"))
        default = isolate.run_isolated(lambda: self.open()().default_entry_point, what="opening")
        self.assertEqual(default, "serving_default")

    def test_function(self) -> None:
        """Protects functions that aren't signatures: their parameters are the labels, in their own order."""
        served, _, _ = self.make_once(save_module)
        ran = self.ran(self.open(), "serve", [{"x": X, "factor": 3.0}], dims={"x": (2, 3)})
        self.assertEqual([label for label, _ in ran.inputs], ["x", "factor"])
        self.assert_near(ran.results[0]["y"], served["y"])

    def test_function_that_returns_nothing(self) -> None:
        """Protects functions that only write: the output says that they are done."""
        self.make_once(save_module)
        ran = self.ran(self.open(), "reset", [{}])
        self.assertEqual((ran.outputs, ran.results), ([("done", ())], [{"done": True}]))
        self.assertEqual(ran.variables["b"].tolist(), [0, 0])

    def test_traces(self) -> None:
        """Protects functions that were traced more than once: an index selects one, or the shapes in dims do."""
        self.make_once(save_module)
        ran = self.ran(self.open(), "scaled[1]", [{"x": X, "more": [1.0]}])
        self.assertEqual([label for label, _ in ran.outputs], ["output_0", "output_1/more"])
        self.assert_near(ran.results[0]["output_0"], 2 * X)
        self.assert_near(ran.results[0]["output_1/more"], [1.0])
        self.assert_near(
            self.ran(self.open(), "scaled", [{"x": X[0]}], dims={"x": (3,)}).results[0]["output_0"], 4 * X[0]
        )

    def test_parts(self) -> None:
        """Protects functions of children of the saved object, and nests of inputs."""

        def build(folder: str) -> Any:
            import tensorflow as tf

            class Part(tf.Module):
                @tf.function
                def add(self, pair: Any) -> Any:
                    return pair["a"] + pair["b"][0]

            model = tf.Module()
            model.part = Part()
            spec = tf.TensorSpec([3])
            model.part.add.get_concrete_function({"a": spec, "b": (spec, tf.TensorSpec([]))})
            tf.saved_model.save(model, f"{folder}/saved")

        self.make(build)
        ran = self.ran(self.open(), "part.add", [{"a": X[0], "b/0": X[1]}])
        self.assertEqual([label for label, _ in ran.inputs], ["a", "b/0", "b/1"])
        self.assert_near(ran.results[0]["output"], X[0] + X[1])

    def test_sources(self) -> None:
        """Protects source lines in errors: a SavedModel's debug information is read."""
        self.make_once(save_module)
        lines = pathlib.Path(__file__).read_text().splitlines()
        number = next(index for index, line in enumerate(lines, 1) if "y = factor * (x @ self.w)" in line)
        sources = self.ran(self.open(), "serving_default", [], dims={"x": (2, 3)}).sources
        places = {name.rpartition("/")[2]: place for name, place in sources.items() if "__inference_serve_" in name}
        self.assertTrue(places["mul"].endswith(f"saved_model_test.py:{number}"), places)

    def test_constants(self) -> None:
        """Protects tensors that a function captures: they are constants."""

        def build(folder: str) -> None:
            import tensorflow as tf

            model = tf.Module()
            large = tf.constant(np.arange(300, dtype=np.float32))
            model.f = tf.function(lambda x: x + large, input_signature=[tf.TensorSpec([300], name="x")])
            tf.saved_model.save(model, f"{folder}/saved", signatures=model.f)

        self.make(build)
        ran = self.ran(self.open(), "serving_default", [{"x": np.ones(300)}])
        self.assert_near(ran.results[0]["output_0"], np.arange(300) + 1)

    def test_same_bytes(self) -> None:
        """Protects caches: a model that is read twice gives the same graph."""
        self.make_once(save_module)

        def work() -> bytes:
            from tfaot.export.traced import Dims

            graph = self.open()().function("train", Dims({})).graph
            return bytes(graph.SerializeToString(deterministic=True))

        self.assertEqual(isolate.run_isolated(work, what="one"), isolate.run_isolated(work, what="two"))

    def test_bfloat16(self) -> None:
        """Protects dtypes that NumPy itself lacks."""

        def build(folder: str) -> None:
            import tensorflow as tf

            model = tf.Module()
            model.v = tf.Variable(tf.cast([1.5, 2.5], tf.bfloat16), name="v")
            spec = tf.TensorSpec([2], tf.bfloat16, "x")
            model.f = tf.function(lambda x: {"y": tf.cast(x + model.v, tf.float32)}, input_signature=[spec])
            tf.saved_model.save(model, f"{folder}/saved", signatures=model.f)

        self.make(build)
        ran = self.ran(self.open(), "serving_default", [{"x": [1.0, 2.0]}])
        self.assertEqual(ran.results[0]["y"].tolist(), [2.5, 4.5])
        self.assertEqual(str(ran.variables["v"].dtype), "bfloat16")


class KerasTest(Base):
    """SavedModels that Keras writes."""

    def test_keras_3(self) -> None:
        """Protects `model.export()` in Keras 3, which saves each variable twice: names are the model's."""

        def build(folder: str) -> Any:
            import keras

            inputs = keras.Input((4, 3), name="tokens")
            values = keras.layers.LSTM(5, name="lstm")(inputs)
            values = keras.layers.BatchNormalization(name="norm")(keras.layers.Dense(2, name="dense")(values))
            model = keras.Model(inputs, keras.layers.Dropout(0.5)(values))
            model.export(f"{folder}/saved", verbose=False)
            return model.predict(np.stack([X, X + 1, X + 2, X + 3], 1), verbose=0)

        wanted = self.make(build)
        x = np.stack([X, X + 1, X + 2, X + 3], 1)
        ran = self.ran(self.open(), "serving_default", [{"tokens": x}], dims={"tokens": (2, None, None)})
        self.assert_near(ran.results[0]["output_0"], wanted)
        # A loop's result is as open as it was saved, but the compiler knows its size.
        self.assertEqual(ran.outputs, [("output_0", (None, 2))])
        self.assertIn("dense/kernel", ran.variables)
        self.assertFalse([name for name in ran.variables if name.startswith(("variables", "all_variables"))])
        self.assertEqual(self.entry_points(self.open()), ("serving_default", "serve"))

    @harness.wide
    def test_keras_2(self) -> None:
        """Protects `model.save()` in tf-keras, including its default LSTM."""

        def build(folder: str) -> Any:
            import tf_keras as keras

            keras.utils.set_random_seed(1)
            model = keras.Sequential(
                [keras.layers.LSTM(5, input_shape=(4, 3)), keras.layers.Dense(2), keras.layers.BatchNormalization()]
            )
            model.compile("adam", "mse")
            x = np.stack([X, X + 1, X + 2, X + 3], 1)
            model.fit(x, X[:, :2], verbose=0)
            model.save(f"{folder}/saved", save_format="tf")
            return model.predict(x, verbose=0)

        wanted = self.make(build)
        x = np.stack([X, X + 1, X + 2, X + 3], 1)
        ran = self.ran(self.open(), "serving_default", [{"lstm_input": x}], dims={"lstm_input": (2, None, None)})
        self.assert_near(ran.results[0]["batch_normalization"], wanted)
        self.assertIn("lstm/lstm_cell/kernel", ran.variables)


def save_graph(
    folder: str, *, resource: bool = True, name: str = "saved", steps: int = 1, collection: bool = False
) -> Any:
    """Saves a graph for serving and one for training. Returns the results of the latter's signature.

    A signature names its train op, or a collection does, as in the first releases of TensorFlow 1.
    """
    import tensorflow as tf
    from tensorflow.python.saved_model import builder_impl

    v1 = tf.compat.v1
    v1.disable_v2_behavior()
    # TensorFlow 2's public builder can no longer save a train op, unlike TensorFlow 1's.
    builder = builder_impl._SavedModelBuilder(f"{folder}/{name}")
    info = v1.saved_model.build_tensor_info
    results = []
    for mode in ("train", "serve"):
        with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
            v1.set_random_seed(1)
            x = v1.placeholder(tf.float32, [None, 3], "x")
            partitioner = v1.fixed_size_partitioner(2, axis=0)
            w = v1.get_variable("w", [3, 2], partitioner=partitioner, use_resource=resource)
            b = v1.get_variable("b", [2], use_resource=resource, initializer=v1.ones_initializer())
            y = tf.matmul(x, tf.concat(list(w), 0)) + b
            loss = tf.reduce_sum(tf.square(y))
            train = v1.train.AdamOptimizer(0.1).minimize(loss) if mode == "train" else None
            session.run(v1.global_variables_initializer())
            if mode == "train":
                signature = v1.saved_model.build_signature_def(
                    {"x": info(x)}, {"loss": info(loss)}, "tensorflow/supervised/training"
                )
                if collection:
                    v1.add_to_collection("saved_model_train_op", train)
                builder.add_meta_graph_and_variables(
                    session,
                    ["train"],
                    {"step": signature},
                    train_op=None if collection else train,
                    init_op=tf.no_op("init"),
                )
                results += [session.run([loss, train], {x: X + step})[0] for step in range(steps)]
                results.append(session.run(b))
            else:
                predict = v1.saved_model.predict_signature_def({"x": x}, {"y": y, "same": y})
                hidden = v1.saved_model.build_signature_def({"h": info(y)}, {"positive": info(tf.nn.relu(y))})
                builder.add_meta_graph(["serve"], {"serving_default": predict, "above": hidden})
    builder.save()
    return results


class GraphTest(Base):
    """TensorFlow 1 SavedModels."""

    def test_serving(self) -> None:
        """Protects inference by signature, with partitioned variables of either kind, whose values the saver finds."""
        for resource in (False, True):
            with self.subTest(resource=resource):
                name = f"saved_{resource}"
                self.make_once(save_graph, resource=resource, name=name)
                ran = self.ran(self.open(name), "serving_default", [{"x": X}], dims={"x": (2, 3)})
                self.assertEqual((ran.inputs, ran.outputs), ([("x", (2, 3))], [("same", (2, 2)), ("y", (2, 2))]))
                self.assertEqual(set(ran.variables), {"w/part_0", "w/part_1", "b"})
                w = np.concatenate([ran.variables["w/part_0"], ran.variables["w/part_1"]])
                self.assert_near(ran.results[0]["y"], X @ w + 1)
                self.assert_near(ran.results[0]["same"], ran.results[0]["y"])
                self.assertEqual(self.entry_points(self.open(name)), ("serving_default", "above"))

    def test_input_in_the_middle(self) -> None:
        """Protects signatures whose inputs the graph computes: they are fed, and what computed them is dropped."""
        self.make_once(save_graph)
        ran = self.ran(self.open(), "above", [{"h": X[:, :2]}], dims={"h": (2, 2)})
        self.assert_near(ran.results[0]["positive"], np.maximum(X[:, :2], 0))
        self.assertEqual(ran.variables, {})

    def test_training(self) -> None:
        """Protects training signatures: the meta graph's train op runs with them, on variables of either kind."""
        for resource, collection in ((False, False), (False, True), (True, False)):
            with self.subTest(resource=resource, collection=collection):
                name = f"saved_{resource}_{collection}"
                *losses, b = self.make_once(save_graph, resource=resource, name=name, steps=3, collection=collection)
                opened = self.open(name, tags=["train"])
                self.assertEqual(self.entry_points(opened), ("step",))
                ran = self.ran(opened, "step", [{"x": X + step} for step in range(3)], dims={"x": (2, 3)})
                self.assert_near([result["loss"] for result in ran.results], losses)
                self.assert_near(ran.variables["b"], b)
                self.assertIn("w/part_1/Adam", ran.variables)

    def test_loaded_as_tensorflow_does(self) -> None:
        """Protects against reading another model than TensorFlow's own loader: the numbers are the same."""
        self.make_once(save_graph, resource=False)

        def load(folder: str) -> Any:
            import tensorflow as tf

            return (
                tf.saved_model.load(f"{folder}/saved", tags=["serve"])
                .signatures["serving_default"](tf.constant(X))["y"]
                .numpy()
            )

        ran = self.ran(self.open(), "serving_default", [{"x": X}], dims={"x": (2, 3)})
        self.assert_near(ran.results[0]["y"], self.make(load))

    def test_only_signature(self) -> None:
        """Protects the default: the only signature is used."""
        self.make_once(save_graph)
        opened = self.open(tags=["train"])
        self.assertEqual(isolate.run_isolated(lambda: opened().default_entry_point, what="opening"), "step")


class ErrorsTest(Base):
    """Folders and functions that do not fit: a table, and messages that contain TensorFlow's words."""

    def check_case(self, case: cases.Case) -> None:
        """Runs a case's text, which saves a model. The expression that comes with it must fail with the message."""

        def dims() -> Any:
            from tfaot.export.traced import Dims

            return Dims({})

        def build(folder: str) -> None:
            exec(case.text, {"folder": folder, "module": module, "pathlib": pathlib})

        shared = {"save_graph(folder)\n": save_graph, "save_module(folder)\n": save_module}.get(case.text)
        self.make_once(shared) if shared else self.make(build)
        call = {"open": lambda **options: self.open(**options)(), "Dims": dims}
        self.refused(lambda: eval(case.extra, call), case.wanted)

    def test_broken(self) -> None:
        """A truncated file, or a pointer to one, is refused."""
        (self.folder / "saved").mkdir()
        (self.folder / "saved" / "saved_model.pb").write_text("version https://example.com/spec/v1\n")
        text = self.error_of(self.make, lambda folder: self.open()())
        text = text.replace(f"{self.folder}/", "")
        self.assertTrue(text.startswith("saved contains a saved_model.pb that TensorFlow can't read\n"), text)
        self.assertTrue(
            text.endswith("  to do: save the model again; if the file is in Git LFS, check it out first"), text
        )

    def test_missing_variables(self) -> None:
        """A folder without variables/ says which file is missing."""
        self.make_once(save_module)
        (self.folder / "saved/variables/variables.index").unlink()
        text = self.error_of(self.make, lambda folder: self.open()().initial(["w"]))
        text = text.replace(f"{self.folder}/", "")
        self.assertTrue(
            text.startswith("saved: saved/variables/variables isn't a checkpoint that TensorFlow can read\n"), text
        )

    def test_wrong_dims(self) -> None:
        """A size that the model's body doesn't allow is reported in TensorFlow's words."""

        def build(folder: str) -> None:
            import tensorflow as tf

            model = tf.Module()
            model.f = tf.function(lambda x: tf.reshape(x, [4, 3]), input_signature=[tf.TensorSpec([None, 3], name="x")])
            tf.saved_model.save(model, f"{folder}/saved", signatures=model.f)

        self.make(build)
        text = self.error_of(self.make, lambda folder: self.ran(self.open(), "serving_default", [], dims={"x": (5, 3)}))
        self.assertIn("saved, serving_default: TensorFlow 2.", text)
        self.assertIn("Cannot reshape a tensor with 15 elements to shape [4,3]", text)


cases.declare(ErrorsTest, pathlib.Path(__file__).with_name("saved_models.txt"), ErrorsTest.check_case)

if __name__ == "__main__":
    unittest.main()
