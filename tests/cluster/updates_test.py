"""Tests of updates of variables: spelled out, they compute what TensorFlow's kernels do, in the graph's order."""

import random
import unittest
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tests.cluster.cutting import Made, both, effects, made

v1 = tf.compat.v1
_X = np.array([0.5, -1.0, 2.0, 0.25], np.float32)


def setUpModule() -> None:
    """Builds TensorFlow 1's control flow."""
    v1.disable_control_flow_v2()


def _variable(name: str, start: float, shape: Sequence[int] = (4,)) -> tf.Variable:
    return v1.get_variable(name, initializer=np.full(shape, start, np.float32), use_resource=True)


def _gradient(x: tf.Tensor, w: tf.Variable) -> tf.Tensor:
    return tf.sin(x) * tf.exp(w.read_value()) - tf.cos(x)


class UpdatesTest(unittest.TestCase):
    def _made(self, update: Callable[[tf.Tensor, Sequence[tf.Variable]], tf.Operation]) -> Made:
        """Cuts a graph that updates the first of three variables, and their sums, with a gradient."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [4], "x")
            variables = [_variable("w", 1.0), _variable("a", 0.5), _variable("b", 0.25)]
            with tf.control_dependencies([update(_gradient(x, variables[0]), variables)]):
                return made(graph, [x], [variables[0].read_value() * 1.0], least=2)

    def _same(self, cut: Made) -> None:
        start = {"w": 1.0, "a": 0.5, "b": 0.25}
        theirs, ours = both(cut, {name: np.full(4, value, np.float32) for name, value in start.items()})
        for values in ([_X], [_X * 2], [_X - 1]):
            np.testing.assert_allclose(theirs.step(values), ours.step(values), rtol=1e-5)
            expected, got = theirs.variables(), ours.variables()
            for name in expected:
                np.testing.assert_allclose(expected[name], got[name], rtol=1e-5, err_msg=name)

    def test_formulas(self) -> None:
        """Each optimizer's update is part of a cluster, and computes what TensorFlow's kernel does."""
        raw = tf.raw_ops
        momentum = {"lr": 0.1, "momentum": 0.9}
        adam = {"beta1_power": 0.9, "beta2_power": 0.99, "lr": 0.1, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-3}
        rms = {"lr": 0.1, "rho": 0.9, "momentum": 0.8, "epsilon": 1e-3}
        updates: dict[str, Callable[[tf.Tensor, Sequence[tf.Variable]], tf.Operation]] = {
            "add": lambda g, v: raw.AssignAddVariableOp(resource=v[0].handle, value=g),
            "subtract": lambda g, v: raw.AssignSubVariableOp(resource=v[0].handle, value=g),
            "descend": lambda g, v: raw.ResourceApplyGradientDescent(var=v[0].handle, alpha=0.1, delta=g),
            "adagrad": lambda g, v: raw.ResourceApplyAdagrad(var=v[0].handle, accum=v[1].handle, lr=0.1, grad=g),
            "adagrad, its sums as they are": lambda g, v: raw.ResourceApplyAdagrad(
                var=v[0].handle, accum=v[1].handle, lr=0.1, grad=g, update_slots=False
            ),
            "adagrad with epsilon": lambda g, v: raw.ResourceApplyAdagradV2(
                var=v[0].handle, accum=v[1].handle, lr=0.1, epsilon=0.01, grad=g
            ),
            "rms": lambda g, v: raw.ResourceApplyRMSProp(
                var=v[0].handle, ms=v[1].handle, mom=v[2].handle, grad=g, **rms
            ),
        }
        for flag in (False, True):
            updates |= {
                f"momentum {flag}": lambda g, v, flag=flag: raw.ResourceApplyMomentum(
                    var=v[0].handle, accum=v[1].handle, grad=g, use_nesterov=flag, **momentum
                ),
                f"Keras's momentum {flag}": lambda g, v, flag=flag: raw.ResourceApplyKerasMomentum(
                    var=v[0].handle, accum=v[1].handle, grad=g, use_nesterov=flag, **momentum
                ),
                f"adam {flag}": lambda g, v, flag=flag: raw.ResourceApplyAdam(
                    var=v[0].handle, m=v[1].handle, v=v[2].handle, grad=g, use_nesterov=flag, **adam
                ),
            }
        for name, update in updates.items():
            with self.subTest(name):
                cut = self._made(update)
                self.assertEqual(len(cut.nodes.updates), 1)
                self.assertNotIn("Resource", " ".join(node.op for node in cut.cut.graph.node))
                self._same(cut)

    def test_what_stays(self) -> None:
        """An update that locks, counts, or isn't worth a cluster stays one op of TensorFlow."""
        raw = tf.raw_ops
        stays: dict[str, Callable[[tf.Tensor, Sequence[tf.Variable]], tf.Operation]] = {
            "locks": lambda g, v: raw.ResourceApplyGradientDescent(
                var=v[0].handle, alpha=0.1, delta=g, use_locking=True
            ),
            "takes what doesn't compile": lambda g, v: (
                v[0].assign_sub(tf.strings.to_number(tf.strings.as_string(g))).op
            ),
        }
        for name, update in stays.items():
            with self.subTest(name):
                cut = self._made(update)
                self.assertEqual(cut.nodes.updates, {})
                self._same(cut)
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [4], "x")
            count = v1.get_variable("count", initializer=np.int32(0), use_resource=True)
            add = count.assign_add(tf.cast(tf.reduce_sum(tf.sin(x) * 9.0), tf.int32))
            cut = made(graph, [x], [add.read_value()], least=2)
        self.assertEqual(cut.nodes.updates, {})

    def test_order_of_several(self) -> None:
        """Updates of one variable read what those before them wrote, though only the values between them say the order."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [4], "x")
            w = _variable("w", 1.0)
            raw = tf.raw_ops
            first = raw.AssignAddVariableOp(resource=w.handle, value=_gradient(x, w))
            with tf.control_dependencies([first]):
                between = w.read_value()
            second = raw.AssignSubVariableOp(resource=w.handle, value=tf.tanh(between) * tf.sin(x))
            with tf.control_dependencies([second]):
                cut = made(graph, [x], [w.read_value() + 0.0, between * 1.0], least=2)
        self.assertEqual(len(cut.nodes.updates), 2)
        kept = {node.name for node in cut.cut.graph.node} & {node.name for node in cut.nodes.uncut.node}
        before = {pair for pair in effects(cut.nodes.uncut) if kept.issuperset(pair)} - {
            pair for pair in effects(cut.nodes.uncut) if cut.nodes.constants & set(pair)
        }
        self.assertEqual(before - effects(cut.cut.graph), set())
        theirs, ours = both(cut, {"w": np.full(4, 1.0, np.float32)})
        for values in ([_X], [_X * 2]):
            for expected, got in zip(theirs.step(values), ours.step(values), strict=True):
                np.testing.assert_allclose(expected, got, rtol=1e-5)
            np.testing.assert_allclose(theirs.variables()["w"], ours.variables()["w"], rtol=1e-5)

    def test_reads_wait_for_writes_of_their_variable(self) -> None:
        """A read behind an update of another variable shares a cluster with it, and what is behind the read still waits."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [4], "x")
            w, rate, last = _variable("w", 1.0), _variable("rate", 0.5), _variable("last", 0.0)
            step = w.assign_sub(_gradient(x, w))
            with tf.control_dependencies([step]):
                slower = rate.read_value() * 0.9
            kept = last.assign(w.read_value())
            with tf.control_dependencies([rate.assign(slower), kept]):
                cut = made(graph, [x], [tf.identity(x)], least=2)
        (cluster,) = cut.operations
        self.assertEqual(cluster.count("Mul"), 2)
        pairs = effects(cut.cut.graph)
        write = next(node.name for node in cut.cut.graph.node if node.name.endswith("/write"))
        assigns = [node.name for node in cut.cut.graph.node if node.op == "AssignVariableOp" and node.name != write]
        (rate_write,) = [
            name
            for name in assigns
            if "rate" in " ".join(next(node.input for node in cut.cut.graph.node if node.name == name))
        ]
        self.assertIn((write, rate_write), pairs)
        theirs, ours = both(
            cut, {"w": np.ones(4, np.float32), "rate": np.ones(4, np.float32), "last": np.zeros(4, np.float32)}
        )
        for values in ([_X], [_X * 2]):
            theirs.step(values)
            ours.step(values)
            for name in ("w", "rate"):
                np.testing.assert_allclose(theirs.variables()[name], ours.variables()[name], rtol=1e-5)

    def test_random_orders(self) -> None:
        """Whatever the order of reads and writes of three variables, the cut graph keeps it where it matters."""
        for seed in range(12):
            draw = random.Random(seed)
            with tf.Graph().as_default() as graph:
                x = v1.placeholder(tf.float32, [4], "x")
                variables = [_variable(name, 1.0) for name in "abc"]
                tensors, done = [x], list[tf.Operation]()
                for _ in range(draw.randrange(6, 24)):
                    variable, value = draw.choice(variables), draw.choice(tensors)
                    # A chain, so that there is one right result; some of it through values only.
                    with tf.control_dependencies(done[-1:]):
                        kind = draw.randrange(5)
                        if kind < 2:
                            tensors.append(tf.tanh(variable.read_value()) + tf.sin(value))
                            done.append(tensors[-1].op)
                        elif kind < 4:
                            op = draw.choice([tf.raw_ops.AssignAddVariableOp, tf.raw_ops.AssignSubVariableOp])
                            done.append(op(resource=variable.handle, value=tf.cos(value) * 0.5))
                        else:
                            tensors.append(tf.strings.to_number(tf.strings.as_string(value, precision=3)))
                            done.append(tensors[-1].op)
                with tf.control_dependencies(done[-1:]):
                    cut = made(graph, [x], [tf.identity(tensors[-1])], least=draw.choice([1, 2, 4]))
            with self.subTest(seed=seed):
                theirs, ours = both(cut, {name: np.ones(4, np.float32) for name in "abc"})
                for values in ([_X], [_X + 1]):
                    np.testing.assert_allclose(theirs.step(values)[0], ours.step(values)[0], rtol=1e-4, atol=2e-3)
                    expected, got = theirs.variables(), ours.variables()
                    for name in expected:
                        np.testing.assert_allclose(expected[name], got[name], rtol=1e-4, atol=2e-3, err_msg=name)

    def test_in_a_branch(self) -> None:
        """An update in a branch stays: TensorFlow runs it only if the branch is taken."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [4], "x")
            p = v1.placeholder(tf.bool, [], "p")
            w = _variable("w", 1.0)
            taken = v1.cond(p, lambda: w.assign_sub(_gradient(x, w)).read_value(), lambda: tf.identity(x))
            with tf.control_dependencies([taken]):
                cut = made(graph, [x, p], [w.read_value() * 1.0], least=2)
        self.assertEqual(cut.nodes.updates, {})
        theirs, ours = both(cut, {"w": np.full(4, 1.0, np.float32)})
        for p in (True, False):
            np.testing.assert_allclose(theirs.step([_X, np.array(p)]), ours.step([_X, np.array(p)]), rtol=1e-5)


if __name__ == "__main__":
    unittest.main()
