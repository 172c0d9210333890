"""Tests of updates of rows: where a step writes all of a variable anyway, they compile, and compute what TensorFlow does."""

import unittest
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tests.cluster.cutting import Made, both, made

v1 = tf.compat.v1
_ROWS, _COLUMNS, _ITEMS = 10, 3, 6
_STEPS = ([3, 3, 0, 9, 3, 0], [1, 2, 3, 4, 5, 6], [7, 7, 7, 7, 7, 7])
"""Items that repeat, that don't, and one for all."""


def setUpModule() -> None:
    """Builds TensorFlow 1's control flow."""
    v1.disable_control_flow_v2()


def _table(name: str = "table") -> tf.Variable:
    start = np.arange(_ROWS * _COLUMNS, dtype=np.float32).reshape(_ROWS, _COLUMNS) / 7
    return v1.get_variable(name, initializer=start, use_resource=True)


def _loss(x: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.sin(x) * tf.exp(x * 0.1))


class SparseTest(unittest.TestCase):
    def _cut(self, train: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Operation]]) -> tuple[Made, dict[str, np.ndarray]]:
        """Cuts a step of training. Returns the variables' initial values, too."""
        with tf.Graph().as_default() as graph:
            items = v1.placeholder(tf.int32, [_ITEMS], "items")
            loss, step = train(items)
            with tf.control_dependencies([step]):
                cut = made(graph, [items], [tf.identity(loss)], least=2)
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                variables = v1.global_variables()
                values = session.run(variables)
        return cut, {variable.op.name: value for variable, value in zip(variables, values, strict=True)}

    def _same(self, cut: Made, variables: dict[str, np.ndarray]) -> None:
        theirs, ours = both(cut, variables)
        for items in _STEPS:
            values = [np.array(items, np.int32)]
            np.testing.assert_allclose(theirs.step(values), ours.step(values), rtol=1e-5)
            expected, got = theirs.variables(), ours.variables()
            for name in expected:
                np.testing.assert_allclose(expected[name], got[name], rtol=1e-5, atol=1e-6, err_msg=name)

    def test_adam(self) -> None:
        """Adam's step on an embedding is one cluster, however its gradients by item are summed."""

        def plain(items: tf.Tensor) -> tuple[tf.Tensor, tf.Operation]:
            loss = _loss(tf.gather(_table(), items))
            return loss, v1.train.AdamOptimizer(0.1).minimize(loss)

        def twice(items: tf.Tensor) -> tuple[tf.Tensor, tf.Operation]:
            different, place = tf.unique(items)
            loss = _loss(tf.gather(tf.gather(_table(), different), place))
            return loss, v1.train.AdamOptimizer(0.1).minimize(loss)

        for train in (plain, twice):
            with self.subTest(train.__name__):
                cut, variables = self._cut(train)
                self.assertEqual(len(cut.found.clusters), 1)
                left = {node.op for node in cut.cut.graph.node}
                self.assertFalse(left & {"ResourceScatterAdd", "UnsortedSegmentSum", "Mul"}, left)
                self._same(cut, variables)

    def test_stands_for(self) -> None:
        """The plan counts what the new nodes stand for: both sums, and each op between them and the updates."""

        def train(items: tf.Tensor) -> tuple[tf.Tensor, tf.Operation]:
            different, place = tf.unique(items)
            loss = _loss(tf.gather(tf.gather(_table(), different), place))
            return loss, v1.train.AdamOptimizer(0.1).minimize(loss)

        cut, _ = self._cut(train)
        operations = {node.name: node.op for node in cut.nodes.uncut.node}
        stood = {name for names in cut.nodes.origins().values() for name in names}
        replaced = [operations[name] for name in stood if operations[name] != "ResourceScatterAdd"]
        self.assertEqual(sorted(replaced), ["AssignSubVariableOp", "Mul", "Mul", "Mul", *["UnsortedSegmentSum"] * 2])

    def test_what_stays(self) -> None:
        """Rows stay with TensorFlow if nothing else writes all of them, if a row without a gradient changes, or if items differ."""
        raw = tf.raw_ops

        def update(
            change: Callable[[tf.Tensor], tf.Tensor], *, dense: bool = True, unique: bool = True, ordered: bool = True
        ) -> Callable[[tf.Tensor], tuple[tf.Tensor, tf.Operation]]:
            def train(items: tf.Tensor) -> tuple[tf.Tensor, tf.Operation]:
                table = _table()
                loss = _loss(tf.gather(table, items))
                (gradient,) = tf.gradients(loss, [table])
                different, place = tf.unique(gradient.indices)
                place = place if ordered else tf.reverse(place, [0])
                sums = tf.math.unsorted_segment_sum(gradient.values, place, tf.size(different))
                with tf.control_dependencies([loss]):
                    waits: Sequence[tf.Operation] = [table.assign(table * 0.5)] if dense else []
                with tf.control_dependencies(waits):
                    rows = different if unique else tf.range(tf.size(different))
                    step = raw.ResourceScatterAdd(resource=table.handle, indices=rows, updates=change(sums))
                return loss, step

            return train

        for name, train, stays in (
            ("zeros stay", update(lambda sums: -tf.square(sums) * 0.5), False),
            ("only rows", update(lambda sums: sums * 0.5, dense=False), True),
            ("a constant added", update(lambda sums: sums + 1.0), True),
            ("a factor that isn't finite", update(lambda sums: sums * np.float32(np.inf)), True),
            ("rows of other items", update(lambda sums: sums * 0.5, unique=False), True),
            ("sums of other items", update(lambda sums: sums * 0.5, ordered=False), True),
        ):
            with self.subTest(name):
                cut, variables = self._cut(train)
                self.assertEqual("ResourceScatterAdd" in {node.op for node in cut.cut.graph.node}, stays)
                self._same(cut, variables)


if __name__ == "__main__":
    unittest.main()
