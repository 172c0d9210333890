"""Tests of the stage: its errors, what it writes, and how the whole is compared."""

import dataclasses
import json
import os
import re
import runpy
import tempfile
import textwrap
import unittest
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, tensor_pb2, types_pb2

from tests.cluster.cutting import made
from tests.stages.harness import ROOT
from tfaot.cluster import cluster as stage
from tfaot.cluster import trial
from tfaot.cluster.clusters import find
from tfaot.cluster.compare import difference
from tfaot.cluster.cut import cut
from tfaot.cluster.host_model import SIGNATURE, Running, Whole, save
from tfaot.cluster.request import Request
from tfaot.core import safetensors
from tfaot.core.errors import TfaotError
from tfaot.core.manifest import Manifest
from tfaot.export.sources.model import Model
from tfaot.export.traced import Edge
from tfaot.graph.names import tensor_name

v1 = tf.compat.v1


class StageTest(unittest.TestCase):
    def _folder(self) -> Path:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return Path(folder.name)

    def _run(self, source: str, *, golden_inputs: str | None = None, **changes: Any) -> Path:
        """Runs the stage on a model's file. Returns the folder of its outputs."""
        folder = self._folder()
        (folder / "model.py").write_text("import tensorflow as tf\n\n" + textwrap.dedent(source))
        model = Model(model=str(folder / "model.py"), golden_inputs=golden_inputs)
        fields: dict[str, Any] = {"model": model, "min_ops": 2, **changes}
        names = [field.name for field in dataclasses.fields(Request)]
        fields |= {name: str(folder / name) for name in names if name.startswith("out_")}
        stage.cluster(Request(cpp_class="a::B", golden_steps=2, **fields))
        return folder

    def _refused(self, source: str, **changes: Any) -> TfaotError:
        with self.assertRaises(TfaotError) as raised:
            self._run(source, **changes)
        return raised.exception

    def test_outputs(self) -> None:
        """The manifest, the configs, and the plan name the same clusters, and the SavedModel calls them."""
        folder = self._run(
            """
            @tf.function(input_signature=[tf.TensorSpec([4], tf.float32, "x")])
            def model(x):
                y = tf.exp(tf.sin(x))
                return tf.cos(tf.strings.to_number(tf.strings.as_string(y))) * tf.tan(y)
            """
        )
        names = ["cluster_0", "cluster_1"]
        manifest = Manifest.from_json((folder / "out_manifest").read_text())
        plan = json.loads((folder / "out_plan").read_text())
        self.assertEqual([entry.name for entry in manifest.entry_points], names)
        self.assertEqual([cluster["name"] for cluster in plan["clusters"]], names)
        self.assertEqual(sorted(os.listdir(folder / "out_configs")), [f"{name}.config.pbtxt" for name in names])
        self.assertEqual(plan["left"], {"it computes on string": {"AsString": 1, "StringToNumber": 1}})
        self.assertEqual(plan["op"], "TfaotM1a1B")
        self.assertIn(b"TfaotM1a1B", (folder / "out_saved_model" / "saved_model.pb").read_bytes())

    def test_tables(self) -> None:
        """A model with tables computes what it does itself, from a Python file and from a SavedModel, and its net is a cluster."""
        folder = str(self._folder())
        source = (ROOT / "tests/cluster/vocabulary.py").read_text()
        run = runpy.run_path(str(ROOT / "tests/cluster/vocabulary.py"))
        model = run["model"]()
        tf.saved_model.save(model, folder)
        for changes in (dict[str, Any](), {"model": Model(saved_model=folder)}):
            with self.subTest(**changes):
                made = self._run(source, **changes)
                plan = json.loads((made / "out_plan").read_text())
                self.assertEqual([cluster["ops"]["MatMul"] for cluster in plan["clusters"]], [2])
                self.assertEqual(sum(ops.get("LookupTableFindV2", 0) for ops in plan["left"].values()), 3)
                graph = graph_pb2.GraphDef.FromString((made / "out_uncut").read_bytes())
                (fed,) = plan["inputs"]
                feed = Edge(fed["tensor"], "words", int(types_pb2.DT_STRING), (4, 6))
                outputs = [Edge(output["tensor"], output["label"], 0, None) for output in plan["outputs"]]
                running = Running(Whole(graph, (feed,), tuple(outputs), {}))
                serialized = safetensors.read(str(made / "out_inputs"))
                for step in range(2):
                    words = tf.make_ndarray(tensor_pb2.TensorProto.FromString(serialized[f"{step}/0"].tobytes()))
                    self.assertGreater(sum(text.decode() in run["WORDS"] for text in words.flat), 4)
                    results = dict(zip([edge.label for edge in outputs], running.step([words]), strict=True))
                    wanted = model(tf.constant(words))
                    self.assertEqual(results["class"].tolist(), wanted["class"].numpy().tolist())
                    np.testing.assert_allclose(results["probability"], wanted["probability"], rtol=1e-5)

    def test_tables_of_tensorflow_1(self) -> None:
        """A SavedModel of TensorFlow 1 fills its tables in another operation, from a file; a cut one has what is in them."""
        folder = self._folder()
        (folder / "words.txt").write_text("cat\ndog\ncow\n")
        with tf.Graph().as_default(), v1.Session() as session:
            words = v1.placeholder(tf.string, [4], "words")
            table = tf.lookup.StaticHashTable(
                tf.lookup.TextFileInitializer(
                    str(folder / "words.txt"),
                    tf.string,
                    tf.lookup.TextFileIndex.WHOLE_LINE,
                    tf.int64,
                    tf.lookup.TextFileIndex.LINE_NUMBER,
                ),
                9,
            )
            scores = tf.exp(tf.sin(tf.cast(table.lookup(words), tf.float32)))
            v1.saved_model.simple_save(
                session, str(folder / "saved"), {"words": words}, {"scores": scores}, v1.tables_initializer()
            )
        (folder / "words.txt").unlink()
        made = self._run("", model=Model(saved_model=str(folder / "saved")), min_ops=1)
        plan = json.loads((made / "out_plan").read_text())
        self.assertEqual([cluster["ops"]["Exp"] for cluster in plan["clusters"]], [1])
        graph = graph_pb2.GraphDef.FromString((made / "out_uncut").read_bytes())
        feed, fetch = (Edge(plan[key][0]["tensor"], "", 0, None) for key in ("inputs", "outputs"))
        (scores,) = Running(Whole(graph, (feed,), (fetch,), {})).step([np.array(["dog", "cow", "", "cat"], object)])
        np.testing.assert_allclose(scores, np.exp(np.sin(np.array([1, 2, 9, 0], np.float32))), rtol=1e-6)

    def test_resources_that_change(self) -> None:
        """A table that the function changes, and a dataset, can't be in a SavedModel of clusters, and are listed."""
        error = self._refused(
            """
            data = tf.data.Dataset.range(3)
            table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)

            @tf.function(input_signature=[tf.TensorSpec([2], tf.string, "w")])
            def model(w):
                y = table.lookup(w)
                table.insert(w, y + 1)
                for element in data:
                    y += element
                return y
            """
        )
        self.assertIn("the function uses 2 resource(s) other than variables", error.asked)
        # Lines are those of this file, if it is below the current folder.
        self.assertEqual(
            re.sub(r" at \S+:\d+", "", error.exists),
            "None_lookup_table_find/LookupTableFindV2/table_handle, ScanDataset/input_dataset",
        )

    def test_nothing_to_compile(self) -> None:
        """If no part is worth compiling, the error counts why."""
        error = self._refused(
            """
            @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
            def model(x):
                return tf.exp(tf.sin(x))
            """
        )
        self.assertIn("no part of call is worth compiling", error.asked)
        self.assertIn("Sin: sizes aren't known (1)", error.exists)
        self.assertIn("dims", error.do)

    def test_sizes_of_inputs(self) -> None:
        """Sizes given for one input make it compile, while another's stay open; an unknown name or other rank is an error."""
        source = """
            @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x"), tf.TensorSpec([None], tf.float32, "y")])
            def model(x, y):
                return tf.exp(tf.sin(x)), tf.cos(y)
            """
        folder = self._run(source, dims={"x": (3,)})
        plan = json.loads((folder / "out_plan").read_text())
        self.assertEqual([cluster["ops"] for cluster in plan["clusters"]], [{"Exp": 1, "Sin": 1}])
        self.assertIn("dims names z", self._refused(source, dims={"z": (3,)}).asked)
        self.assertIn("dims contradicts the shape", self._refused(source, dims={"x": (3, 4)}).asked)

    def test_several_entry_points(self) -> None:
        """Two functions are one error, which says to declare two targets."""
        error = self._refused("", entry_points=(("train", "train"), ("serve", "serve")))
        self.assertIn("entry_points = ['train', 'serve']", error.asked)
        self.assertIn("declare a target for each", error.do)

    def test_mixing(self) -> None:
        """An op that combines rows stays with TensorFlow, and so do those that use the number of rows as a value."""
        body = (
            "y = tf.exp(tf.sin(x)) / tf.cast(tf.shape(x)[0], tf.float32)\n"
            "    return tf.cos(tf.exp(tf.tanh(y))) - tf.reduce_max(y, 0)"
        )
        plan = json.loads((self._run(_model(body), batch_sizes=(1, 4)) / "out_plan").read_text())
        ops = [set(cluster["ops"]) for cluster in plan["clusters"]]
        self.assertEqual(ops, [{"Exp", "Sin"}, {"Cos", "Exp", "Sub", "Tanh"}])
        left = {op: why for why, ops in plan["left"].items() for op in ops}
        self.assertIn("uses the number of rows", left["RealDiv"])
        self.assertIn("combines rows of a batch", left["Max"])

    def test_refused(self) -> None:
        """No open rows, a number of rows that must be fixed, a pipeline, open sizes, and mixed rows are one error each."""
        error = self._refused(_model("return tf.exp(tf.sin(x))", "[3, 4]"), batch_sizes=(1, 4))
        self.assertIn("no cluster has rows", error.asked)
        error = self._refused(_model("return tf.exp(x + tf.ones([2, 4]))"), batch_sizes=(1, 4))
        self.assertIn("can't take a batch of 1009 rows", error.asked)
        self.assertIn("with dims", error.do)
        error = self._refused(_model("return tf.exp(x)"), batch_sizes=(1, 4), pipeline_header="pipeline.h")
        self.assertIn("pipeline = True", error.asked)
        error = self._refused(_model("return tf.exp(x)"), sizes={"time": (4,)})
        self.assertIn("sizes = {time}", error.asked)
        error = self._refused(_model("return tf.exp(tf.cumsum(x, 0))"), batch_sizes=(1, 4), min_ops=2)
        self.assertIn("Cumsum", error.exists)

    def test_inputs_that_only_the_model_knows(self) -> None:
        """Strings aren't drawn at random: the error asks for golden_inputs, and takes them."""
        source = """
            @tf.function(input_signature=[tf.TensorSpec([], tf.string, "text")])
            def model(text):
                return tf.exp(tf.sin(tf.strings.to_number(text)))
            """
        error = self._refused(source)
        self.assertIn("text can't be drawn at random", error.asked)
        self.assertIn('golden_inputs = "inputs.py"', error.do)
        given = self._folder() / "inputs.npz"
        np.savez(given, text="0.25")
        inputs = safetensors.read(self._run(source, golden_inputs=str(given)) / "out_inputs")
        self.assertEqual(
            {name: b"0.25" in value.tobytes() for name, value in inputs.items()}, {"0/0": True, "1/0": True}
        )
        np.savez(given, text=["0.25"])
        with self.assertRaisesRegex(TfaotError, r"have <U4\[1\] for text\n  found: the input is string\[\]"):
            self._run(source, golden_inputs=str(given))

    def test_what_xla_refuses(self) -> None:
        """A node that XLA refuses, though the registry has a kernel for it, stays, and the rest is clustered again."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [4], "x")
            y = tf.strings.to_number(tf.strings.as_string(tf.exp(tf.sin(x))))
            whole = made(graph, [x], [tf.cos(y) * 2.0])
        # As if the registry had kernels for strings.
        wrong = dataclasses.replace(
            whole.nodes, reasons={name: why for name, why in whole.nodes.reasons.items() if "string" not in why}
        )
        feeds = [tensor_name(edge.name)[0] for edge in whole.inputs]
        (part,) = cut(wrong, find(wrong, least=2).clusters, whole.outputs, feeds, "Op").parts
        refused = trial.refused(part)
        self.assertLessEqual({"AsString"}, set(refused))
        self.assertIn("XLA refuses it", refused["AsString"])
        self.assertEqual(trial.refused(whole.cut.parts[0]), {})

    def test_blame(self) -> None:
        """An error blames the nodes that it names; if it names none, all."""
        self.assertEqual(set(trial.blamed("{{node a/b}} is bad", ["a", "a/b", "c"])), {"a/b"})
        self.assertEqual(set(trial.blamed("it is bad", ["a", "c"])), {"a", "c"})

    def test_saved_model(self) -> None:
        """A written SavedModel gives the same results in TensorFlow 1's loader and 2's, with variables restored."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [2], "x")
            v = v1.get_variable("v", [2], use_resource=True)
            with tf.control_dependencies([v.assign_add(x)]):
                made_here = made(graph, [x], [v.read_value() * 2.0], least=100)
        values = {"v": np.array([3.0, 5.0], np.float32)}
        whole = Whole(made_here.nodes.graph, made_here.inputs, made_here.outputs, values)
        given = np.array([1.0, 2.0], np.float32)
        expected = [Running(whole).step([given])[0]]
        folder = os.path.join(str(self._folder()), "saved")
        save(whole, folder, version=tf.__version__)
        with tf.Graph().as_default(), v1.Session() as session:
            signature = v1.saved_model.load(session, ["serve"], folder).signature_def[SIGNATURE]
            (output,) = signature.outputs.values()
            np.testing.assert_array_equal(session.run(output.name, {signature.inputs["x"].name: given}), expected[0])
        (result,) = tf.saved_model.load(folder).signatures[SIGNATURE](x=tf.constant(given)).values()
        np.testing.assert_array_equal(result, expected[0])

    def test_difference(self) -> None:
        """The comparison sees another dtype, shape, integer, or float, and NaN, and lets rounding pass."""
        floats = np.array([1.0, -2.0], np.float32)
        self.assertEqual(difference("t", floats, floats * np.float32(1.00001)), "")
        self.assertIn("off by", difference("t", floats, floats * np.float32(1.01)))
        self.assertIn("infinities or NaN", difference("t", floats, np.array([1.0, np.nan], np.float32)))
        self.assertIn("TensorFlow's is float32[2]", difference("t", floats, floats.astype(np.float64)))
        self.assertIn("TensorFlow's is float32[2]", difference("t", floats, floats[:1]))
        self.assertIn("differs", difference("t", np.array([1, 2]), np.array([1, 3])))
        self.assertIn("differs", difference("t", np.array([b"a"], object), np.array([b"b"], object)))


def _model(body: str, shape: str = "[None, 4]") -> str:
    spec = f'@tf.function(input_signature=[tf.TensorSpec({shape}, tf.float32, "x")])'
    return f"{spec}\ndef model(x):\n    {body}\n"


if __name__ == "__main__":
    unittest.main()
