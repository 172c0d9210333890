"""Tests of when nodes of TensorFlow 1's control flow run."""

import unittest

import tensorflow as tf

from tests.cluster.cutting import made
from tfaot.cluster.predicates import ALWAYS

v1 = tf.compat.v1


def setUpModule() -> None:
    """Builds TensorFlow 1's control flow."""
    v1.disable_control_flow_v2()


class PredicatesTest(unittest.TestCase):
    def test_branches(self) -> None:
        """Nodes of the two branches run under opposite facts, and the node after the Merge always."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [4], "x")
            p = v1.placeholder(tf.bool, [], "p")
            y = v1.cond(p, lambda: tf.sin(x, "yes"), lambda: tf.cos(x, "no")) * 2.0
            when = made(graph, [x, p], [y]).nodes.predicates
        yes, no = when["cond/yes"], when["cond/no"]
        self.assertEqual({(tensor, not value) for tensor, value in yes.facts}, no.facts)
        self.assertNotEqual(yes, no)
        self.assertEqual(when[y.op.name], ALWAYS)

    def test_nested_branches(self) -> None:
        """A branch within a branch runs under the facts of both, and its Merge under the outer one's."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [4], "x")
            p, q = v1.placeholder(tf.bool, [], "p"), v1.placeholder(tf.bool, [], "q")

            def inner() -> tf.Tensor:
                return tf.exp(v1.cond(q, lambda: tf.sin(x, "deep"), lambda: tf.cos(x)), "after")

            y = v1.cond(p, inner, lambda: tf.tan(x, "other"))
            when = made(graph, [x, p, q], [y]).nodes.predicates
        self.assertEqual(len(when["cond/cond/deep"].facts), 2)
        self.assertEqual(len(when["cond/after"].facts), 1)
        self.assertLess(when["cond/after"].facts, when["cond/cond/deep"].facts)

    def test_loops(self) -> None:
        """A loop's body is in its frame, so it can't share a cluster with the code around it."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [4], "x")
            y, z = v1.while_loop(
                lambda y, z: tf.reduce_sum(y + z) < 10.0,
                lambda y, z: (tf.exp(y, "step"), tf.tan(z, "other")),
                [tf.sin(x), x],
            )
            when = made(graph, [x], [y, z]).nodes.predicates
        self.assertEqual(len(when["while/step"].frame), 1)
        self.assertEqual(when["while/step"], when["while/other"])
        self.assertEqual(when["while/Exit"], when["while/Exit_1"])
        self.assertEqual(when["Sin"], ALWAYS)
        self.assertEqual(when["while/Exit"].frame, ())

    def test_loops_whose_variables_part(self) -> None:
        """Variables of a loop whose ways back differ don't count as arriving together."""
        with tf.Graph().as_default() as graph:
            raw = tf.raw_ops
            x = v1.placeholder(tf.float32, [], "x")
            enters = [raw.Enter(data=value, frame_name="loop") for value in (x, x + 1.0)]
            merges = [raw.Merge(inputs=[enter, enter]) for enter in enters]
            condition = raw.LoopCond(input=merges[0].output < 10.0)
            switches = [raw.Switch(data=merge.output, pred=condition) for merge in merges]
            odd = raw.Switch(data=switches[1].output_true, pred=switches[1].output_true < 5.0)
            steps = [raw.NextIteration(data=switches[0].output_true + 1.0), raw.NextIteration(data=odd.output_true)]
            for merge, step in zip(merges, steps, strict=True):
                merge.output.op._update_input(1, step)
            exits = [raw.Exit(data=switch.output_false) for switch in switches]
            when = made(graph, [x], exits).nodes.predicates
        self.assertNotEqual(when[merges[0].output.op.name], when[merges[1].output.op.name])


if __name__ == "__main__":
    unittest.main()
