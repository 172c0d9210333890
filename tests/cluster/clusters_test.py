"""Tests of finding clusters and cutting them out: what a cluster contains, and that the whole computes the same."""

import random
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf

from tests.cluster.cutting import Made, both, effects, made
from tests.stages import cases
from tfaot.cluster.control_flow import FUNCTIONAL

v1 = tf.compat.v1


def _rounded(x: tf.Tensor) -> tf.Tensor:
    """Rounds through text, which XLA has no kernel for."""
    return tf.ensure_shape(tf.strings.to_number(tf.strings.as_string(x, precision=4)), [4])


def _traced(function: Any, *specs: tf.TensorSpec) -> tuple[tf.Graph, list[tf.Tensor], list[tf.Tensor]]:
    """Returns the graph of a function of TensorFlow 2, its inputs, and its outputs."""
    v1.enable_control_flow_v2()
    try:
        with tf.Graph().as_default() as graph:
            inputs = [v1.placeholder(spec.dtype, spec.shape) for spec in specs]
            outputs = function(*inputs)
    finally:
        v1.disable_control_flow_v2()
    return graph, inputs, list(outputs) if isinstance(outputs, tuple) else [outputs]


_X = np.array([0.5, -1.0, 2.0, 0.25], np.float32)


def setUpModule() -> None:
    """Builds TensorFlow 1's control flow."""
    v1.disable_control_flow_v2()


class ClustersTest(unittest.TestCase):
    def _same(
        self, cut: Made, *steps: list[Any], variables: dict[str, np.ndarray] | None = None, close: float = 0.0
    ) -> None:
        """Runs the graph cut and uncut, and compares outputs and variables: bit by bit, unless `close` allows a difference."""
        theirs, ours = both(cut, variables)
        for values in steps:
            results = [*zip(theirs.step(values), ours.step(values), strict=True)]
            before, after = theirs.variables(), ours.variables()
            for expected, got in (*results, *((before[name], after[name]) for name in before)):
                if close:
                    np.testing.assert_allclose(expected, got, rtol=close, atol=close)
                else:
                    np.testing.assert_array_equal(expected, got)

    def _original(
        self,
        cut: Made,
        graph: tf.Graph,
        inputs: list[tf.Tensor],
        outputs: list[tf.Tensor],
        *steps: list[Any],
        variables: dict[str, np.ndarray] | None = None,
    ) -> None:
        """Compares the cut graph with the model, whose loops and branches are functions."""
        ours = both(cut, variables)[1]
        with graph.as_default(), v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for values in steps:
                expected = session.run(outputs, dict(zip(inputs, values, strict=True)))
                for wanted, got in zip(expected, ours.step(values), strict=True):
                    np.testing.assert_allclose(wanted, got, rtol=1e-6, atol=1e-6)

    def check_case(self, case: cases.Case) -> None:
        """Checks a case of `clusters.txt`: what makes a graph from inputs float32[4] and bool[], and cuts it, and facts."""
        with tf.Graph().as_default() as graph:
            scope = {"X": _X, "np": np, "tf": tf, "v1": v1}
            scope |= {"p": v1.placeholder(tf.bool, [], "p"), "x": v1.placeholder(tf.float32, [4], "x")}
            scope["made"] = lambda inputs, outputs, **options: made(graph, inputs, outputs, **options)
            scope["ops"] = lambda cut: [node.op for node in cut.cut.graph.node]
            scope["same"] = lambda *steps, **options: self._same(scope["cut"], *steps, **options) is None
            exec(case.text, scope)
            cases.check_facts(self, case.wanted, scope)

    def test_a_name_says_nothing(self) -> None:
        """The same graph gives the same clusters under the same names, every time."""
        graphs = []
        for _ in range(2):
            with tf.Graph().as_default() as graph:
                x = v1.placeholder(tf.float32, [4], "x")
                y = tf.exp(tf.sin(x)) + tf.cos(x)
                graphs.append(made(graph, [x], [y]).cut.graph.SerializeToString(deterministic=True))
        self.assertEqual(*graphs)

    def test_checks_stay(self) -> None:
        """TensorFlow still refuses values that a check refuses, because XLA would drop the check."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [4], "x")
            checked = tf.debugging.check_numerics(tf.sqrt(x), "a root")
            cut = made(graph, [x], [tf.exp(checked) * 2.0])
        _, ours = both(cut)
        ours.step([np.abs(_X)])
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "a root"):
            ours.step([_X])

    def test_loops_of_functions(self) -> None:
        """A loop whose body compiles is in a cluster. One whose body holds an op without a kernel is cut, nested branches too."""

        @tf.function(autograph=False)
        def loops(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            def small(z: tf.Tensor) -> tf.Tensor:
                return tf.reduce_sum(z) < 10.0

            def once(i: tf.Tensor, z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                z = _rounded(tf.exp(tf.sin(z)) * tf.cos(x))
                return i + 1, tf.cond(i < 1, lambda: _rounded(tf.tanh(z) * tf.exp(x)), lambda: tf.sqrt(tf.abs(z)) * 2.0)

            good = tf.while_loop(small, lambda z: (tf.exp(z) * 0.5,), [x], maximum_iterations=5)[0]
            cut = tf.while_loop(lambda i, z: i < 3, once, [0, x])[1]
            return tf.sin(good), tf.cos(cut) * tf.exp(cut)

        graph, (x,), outputs = _traced(loops, tf.TensorSpec([4]))
        cut = made(graph, [x], outputs, least=2)
        whole = [ops for ops in cut.operations if "StatelessWhile" in ops]
        self.assertEqual([(ops.count("StatelessWhile"), "Sin" in ops) for ops in whole], [(1, True)])
        for inside in (
            ["Cos", "Exp", "Mul", "Sin"],
            ["Exp", "Mul", "Tanh"],
            ["Abs", "Mul", "Sqrt"],
            ["Cos", "Exp", "Mul"],
        ):
            self.assertIn(inside, cut.operations)
        self._same(cut, [_X])
        self._original(cut, graph, [x], outputs, [_X])

    def test_training_through_loops_of_functions(self) -> None:
        """Loops that keep values for their gradients, and read and write variables around text, have the same results."""

        def model(x: tf.Tensor, p: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            v = v1.get_variable("v", initializer=np.ones(4, np.float32), use_resource=True)

            def once(i: tf.Tensor, z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                y = tf.exp(tf.sin(z) * v) * tf.cos(x) + tf.stop_gradient(_rounded(z))
                return i + 1, tf.tanh(y) * 0.5

            @tf.function(autograph=False)
            def step() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
                with tf.GradientTape() as tape:
                    z = tf.while_loop(lambda i, z: i < 3, once, [0, x], maximum_iterations=3)[1]
                    loss = tf.reduce_sum(tf.square(z) + tf.sin(z))
                gradient = tape.gradient(loss, v)

                def write() -> tf.Tensor:
                    v.assign(_rounded(v * 0.5 - 0.1 * gradient))
                    return tf.sqrt(tf.abs(v + 1.0))

                return loss, tf.cond(p, write, lambda: tf.exp(gradient) * 2.0), tf.cos(v.read_value())

            return step()

        graph, inputs, outputs = _traced(model, tf.TensorSpec([4]), tf.TensorSpec([], tf.bool))
        cut = made(graph, inputs, outputs, least=2)
        self.assertTrue(any({"Cos", "Exp", "Sin"} <= {*ops} for ops in cut.operations), cut.operations)
        variables, steps = {"v": np.ones(4, np.float32)}, ([_X, True], [_X, False], [_X * 2, True])
        self.assertFalse(FUNCTIONAL & {node.op for node in cut.nodes.graph.node})
        self._same(cut, *steps, variables=variables, close=1e-6)
        self._original(cut, graph, inputs, outputs, *steps, variables=variables)

    def test_constants_of_bodies(self) -> None:
        """Clusters in loops and branches know the constants that these take, unless a step changes them."""
        weights, start = np.eye(4, dtype=np.float32) * 0.5, np.ones([4, 4], np.float32)

        @tf.function(autograph=False)
        def model(x: tf.Tensor, p: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            fixed, changed = tf.constant(weights), tf.constant(start)

            def once(i: tf.Tensor, z: tf.Tensor, w: tf.Tensor) -> tuple[tf.Tensor, ...]:
                return i + 1, _rounded(tf.linalg.matvec(fixed, tf.sin(z)) + tf.linalg.matvec(w, z)), w * 0.5

            z = tf.while_loop(lambda i, z, w: i < 3, once, [0, x, changed])[1]
            return z, tf.cond(p, lambda: _rounded(tf.exp(tf.linalg.matvec(fixed, x))), lambda: x)

        graph, inputs, outputs = _traced(model, tf.TensorSpec([4]), tf.TensorSpec([], tf.bool))
        cut = made(graph, inputs, outputs)
        takes = {
            tuple(sorted(str(edge.shape) for edge in part.function.inputs)): ops
            for part, ops in zip(cut.cut.parts, cut.operations, strict=True)
            if any("BatchMatMulV2" in op or "MatMul" in op for op in ops)
        }
        # TensorFlow makes columns of vectors, which is free.
        self.assertEqual(
            sorted(takes), [("(4, 1)",), ("(4, 1)", "(4, 4)", "(4,)")]
        )  # the branch's, and the loop's with `w`
        self._same(cut, [_X, np.array(True)], [_X, np.array(False)])
        self._original(cut, graph, inputs, outputs, [_X, np.array(True)], [_X, np.array(False)])
        with mock.patch("tfaot.cluster.control_flow._MOST_BYTES", 0):  # they would make the graph too large
            cut = made(graph, inputs, outputs)
        self.assertIn(["(4, 1)", "(4, 4)"], [sorted(str(e.shape) for e in p.function.inputs) for p in cut.cut.parts])
        self._same(cut, [_X, np.array(True)], [_X, np.array(False)])

    def test_bodies_that_stay(self) -> None:
        """A pipeline computes a loop that doesn't compile in one call, so its body isn't cut."""

        @tf.function(autograph=False)
        def loop(x: tf.Tensor) -> tf.Tensor:
            return tf.while_loop(lambda i, z: i < 3, lambda i, z: (i + 1, _rounded(tf.exp(tf.sin(z)))), [0, x])[1]

        graph, (x,), outputs = _traced(loop, tf.TensorSpec([4]))
        cut = made(graph, [x], outputs, pipeline=True)
        self.assertEqual(cut.operations, [])
        self.assertIn("AsString", cut.reason("StatelessWhile"))

    def test_random_graphs(self) -> None:
        """Whatever a graph looks like, the cut one is acyclic, keeps the order of what stays, and computes the same."""
        for seed in range(25):
            draw = random.Random(seed)
            with tf.Graph().as_default() as graph:
                x = v1.placeholder(tf.float32, [4], "x")
                v = v1.get_variable("v", initializer=np.ones(4, np.float32), use_resource=True)
                tensors = [x, tf.constant([0.5, 1.0, 1.5, 2.0])]
                last: list[tf.Operation] = []
                for _ in range(draw.randrange(5, 30)):
                    a, b = draw.choice(tensors), draw.choice(tensors)
                    kind = draw.randrange(8)
                    if kind < 3:
                        tensors.append(draw.choice([tf.sin, tf.cos, tf.tanh])(a))
                    elif kind < 5:
                        tensors.append(draw.choice([tf.add, tf.multiply, tf.maximum])(a, b))
                    elif kind == 5:
                        tensors.append(tf.strings.to_number(tf.strings.as_string(a, precision=3)))
                    else:
                        with tf.control_dependencies(last):
                            if kind == 6:
                                tensors.append(v.read_value())
                                last = [tensors[-1].op]
                            else:
                                last = [tf.raw_ops.AssignAddVariableOp(resource=v.handle, value=tf.tanh(a))]
                with tf.control_dependencies(last):
                    outputs = [tf.identity(tensor) for tensor in draw.sample(tensors[2:], min(3, len(tensors) - 2))]
                cut = made(graph, [x], outputs)
            with self.subTest(seed=seed):
                # A cluster has copies of what is known, so it needn't wait for that.
                kept = {node.name for node in cut.cut.graph.node} - cut.nodes.constants
                before = {pair for pair in effects(cut.nodes.graph) if kept.issuperset(pair)}
                self.assertEqual(before - effects(cut.cut.graph), set())
                # TensorFlow optimizes each of the two graphs, and that rounds differently. Text keeps three digits.
                self._same(cut, [_X], [_X + 1], variables={"v": np.ones(4, np.float32)}, close=2e-3)


cases.declare(ClustersTest, Path(__file__).with_name("clusters.txt"), ClustersTest.check_case)

if __name__ == "__main__":
    unittest.main()
