"""Tests of pipelines: what runs in which order, where values lie, and the example's own decoder against TensorFlow's."""

import subprocess
import tempfile
import unittest
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from examples.clusters import pictures
from tests.cluster.cutting import Made, made
from tests.stages.harness import ROOT
from tfaot.cluster.pipeline import Pipeline, pipeline
from tfaot.cluster.recorded import record
from tfaot.core.errors import TfaotError
from tfaot.export.traced import Array

v1 = tf.compat.v1


def setUpModule() -> None:
    """Builds TensorFlow 1's control flow."""
    v1.disable_control_flow_v2()


def _planned(cut: Made, values: Mapping[str, Array] | None = None) -> Pipeline:
    return pipeline(cut.nodes, cut.cut, cut.inputs, cut.outputs, values or {}, "the test's graph")


def _text(x: tf.Tensor) -> tf.Tensor:
    return tf.strings.to_number(tf.strings.as_string(x))


class PipelineTest(unittest.TestCase):
    def test_steps(self) -> None:
        """Ops between two clusters are one callback, whose arguments are what crosses, and steps are in the graph's order."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [4], "x")
            before = tf.exp(tf.sin(x), name="before")
            after = tf.identity(_text(before), name="after")
            planned = _planned(made(graph, [x], [tf.cos(after) * before]))
        self.assertEqual([step.kind for step in planned.steps], ["call", "host", "call"])
        (host,) = planned.hosts
        self.assertEqual(set(host.ops), {"AsString", "Identity", "StringToNumber"})
        self.assertEqual(
            [(argument.label, argument.written) for argument in host.arguments], [("before", False), ("after", True)]
        )
        self.assertEqual([len(planned.inputs), len(planned.outputs)], [1, 1])
        places = {binding.place.offset for binding in planned.bound}
        self.assertTrue(all(offset % 64 == 0 and offset < planned.size for offset in places))

    def test_what_only_callbacks_see(self) -> None:
        """A string that two callbacks share, and an output of unknown size, don't go through the pipeline, which says so."""
        with tf.Graph().as_default() as graph:
            file = v1.placeholder(tf.string, [], "file")
            value = tf.reshape(tf.strings.to_number(file), [1])
            y = tf.exp(tf.sin(value))
            joined = tf.strings.join([file, tf.strings.as_string(y[0])], name="joined")
            planned = _planned(made(graph, [file], [joined]))
        self.assertEqual([edge.label for edge in planned.apart], ["file", "joined_0"])
        first, second = planned.hosts
        self.assertEqual([first.apart, second.apart], [("file",), ("file",)])
        self.assertEqual([first.gives, second.gives], [(), ("joined_0",)])

    def test_variables(self) -> None:
        """A value that was read before a write, and is used after it, is a copy. A counter is added to without a callback."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [4], "x")
            v = v1.get_variable("v", initializer=np.ones(4, np.float32), use_resource=True)
            n = v1.get_variable("n", initializer=np.int32(7), use_resource=True)
            old = v.read_value()
            with tf.control_dependencies([old]):
                write = v.assign(_text(tf.exp(tf.sin(x))))
            with tf.control_dependencies([write, n.assign_add(2)]):
                cut = made(graph, [x], [tf.cos(old) * 2.0, n.read_value()])
        values = {"v": np.ones(4, np.float32), "n": np.int32(7)}
        planned = _planned(cut, {name: np.asarray(value) for name, value in values.items()})
        kinds = [step.kind for step in planned.steps]
        self.assertEqual(kinds.count("copy"), 2)
        self.assertEqual(kinds.count("add"), 1)
        by_name = dict(planned.variables)
        copies = [step for step in planned.steps if step.kind == "copy"]
        self.assertEqual(copies[0].source, by_name["v"])
        self.assertEqual(copies[1].target, by_name["v"])
        start = by_name["n"].offset
        self.assertEqual(planned.initial[start : start + 4], np.int32(7).tobytes())

    def test_callbacks_that_write_variables(self) -> None:
        """A callback's variable is recorded as the callback leaves it, though the graph writes the variable again later."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [4], "x")
            rows = v1.placeholder(tf.int32, [None], "rows")
            v = v1.get_variable("v", initializer=np.ones((4, 4), np.float32), use_resource=True)
            add = tf.raw_ops.ResourceScatterAdd(
                resource=v.handle, indices=rows, updates=tf.gather([tf.exp(tf.sin(x))], rows * 0)
            )
            with tf.control_dependencies([add]):
                later = v.assign(v.read_value() * 0.5 + tf.cos(x))
            with tf.control_dependencies([later]):
                cut = made(graph, [x, rows], [v.read_value() * 2.0])
        values = {"v": np.ones((4, 4), np.float32)}
        planned = _planned(cut, values)
        (host,) = [host for host in planned.hosts if "ResourceScatterAdd" in host.ops]
        self.assertIn(("v", True), [(argument.label, argument.written) for argument in host.arguments])
        given = np.array([0.5, 1.0, 2.0, 0.25], np.float32)
        steps = [[given, np.array([2, 2, 0], np.int32)]]
        goldens = record(planned, cut.nodes, cut.inputs, cut.outputs, values, steps)
        added = np.ones((4, 4), np.float32)
        np.add.at(added, [2, 2, 0], np.exp(np.sin(given)))
        np.testing.assert_allclose(goldens[f"step0/{host.name}/v"], added, rtol=1e-5)
        np.testing.assert_allclose(goldens["step0/after/v"], added * 0.5 + np.cos(given), rtol=1e-5)

    def test_branches(self) -> None:
        """Branches outside of clusters are an error that names their ops."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [4], "x")
            p = v1.placeholder(tf.bool, [], "p")
            y = v1.cond(p, lambda: tf.exp(tf.cos(x)), lambda: tf.sin(x) * 2.0)
            cut = made(graph, [x, p], [tf.sqrt(y) * 2.0])
        with self.assertRaises(TfaotError) as raised:
            _planned(cut)
        self.assertIn(
            "no pipeline can be made of a graph with branches or loops of TensorFlow 1", raised.exception.asked
        )
        self.assertEqual(raised.exception.exists, "Merge, Switch")
        self.assertIn("pipeline = False", raised.exception.do)

    def test_a_computed_constant(self) -> None:
        """A constant that TensorFlow would have to compute for an output is an error that names it."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [4], "x")
            computed = tf.sin(tf.constant([1.0, 2.0]), name="computed")
            cut = made(graph, [x], [tf.exp(tf.sin(x)), computed])
        with self.assertRaises(TfaotError) as raised:
            _planned(cut)
        self.assertIn("computed is constant", raised.exception.asked)

    def test_example(self) -> None:
        """The example's decoder gives the compiled code what TensorFlow decodes, and an error names it if it refuses a file."""
        program = str(ROOT / "examples/clusters/classify")
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        folder = Path(temporary.name)
        for step in range(2):
            file = pictures.golden_fn(step, np.random.default_rng(step))
            (folder / "picture.bmp").write_bytes(file)
            ran = subprocess.run([program, str(folder / "picture.bmp")], capture_output=True, text=True, check=True)
            expected = pictures.Pictures()(tf.constant(file))
            printed = [float(line) for line in ran.stdout.split()]
            np.testing.assert_allclose(printed[:-1], expected["probabilities"], atol=2e-6)
            np.testing.assert_allclose(printed[-1], expected["brightness"], atol=2e-6)
        (folder / "picture.bmp").write_bytes(file[:-1])
        ran = subprocess.run([program, str(folder / "picture.bmp")], capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("examples::PicturesPipeline::Run() stopped: host_0() returned false", ran.stderr)


if __name__ == "__main__":
    unittest.main()
