"""The passes over loops: each form of recurrent network that they rewrite, and every case in which a loop must not change."""

from __future__ import annotations

import unittest
from typing import Any

import numpy as np

from tests.compile.passes.graphs import Array, Build, PassTest, config_of
from tests.compile.passes.recurrent import gradients, normal, scan

STEPS, BATCH, IN, OUT = 6, 2, 16, 4


def tanh_step(w: Any, u: Any, b: Any) -> Any:
    """A simple cell: tanh(x·W + h·U + b)."""
    import tensorflow as tf

    return lambda x, h, k: tf.tanh(tf.nn.bias_add(tf.matmul(x, w) + tf.matmul(h, u), b))


def weights(rows: int = IN) -> tuple[Array, Array, Array]:
    """Returns the weights of a simple cell."""
    return normal(rows, OUT, scale=0.3), normal(OUT, OUT, scale=0.5), normal(OUT)


class LoopTest(PassTest):
    """Builds graphs like the export stage, which tells them that XLA will compile them."""

    def changed(self, name: str, build: Build, *feeds: Array, jit: bool = False) -> int:
        """Like `rewritten`, in an XLA context, and on request also run by XLA."""
        from tfaot.export.sources.xla_context import xla_context

        def inside(*inputs: Any) -> Any:
            with xla_context():
                return build(*inputs)

        places = self.rewritten(name, inside, *feeds)
        if jit:
            self.assertEqual(self.rewritten(name, inside, *feeds, jit=True), places)
        return places

    def graph_after(self, names: list[str], build: Build, *feeds: Array) -> Any:
        """Returns the graph after these passes."""
        import tensorflow as tf

        from tfaot.compile import table
        from tfaot.export.sources.xla_context import xla_context

        with tf.Graph().as_default() as graph, xla_context():
            inputs = [tf.compat.v1.placeholder(feed.dtype, feed.shape, f"x{i}") for i, feed in enumerate(feeds)]
            built = build(*inputs)
            fetches = [fetch.name for fetch in (built if isinstance(built, (list, tuple)) else [built])]
        config = config_of([f"x{i}:0" for i in range(len(feeds))], feeds, fetches)
        after = table.apply(graph.as_graph_def(), config, names).graph
        self.assert_typed(after)
        return after


def ops_of_bodies(graph: Any, op: str) -> int:
    """Returns how many nodes of a type are in the bodies of a graph's loops."""
    bodies = {node.attr["body"].func.name for node in graph.node if node.op in ("While", "StatelessWhile")}
    return sum(
        node.op == op
        for function in graph.library.function
        if function.signature.name in bodies
        for node in function.node_def
    )


def run_with(graph: Any, value: Array, fetch: str = "result:0") -> tuple[Array, Array]:
    """Runs a graph with a variable `v`. Returns the fetch, and the variable afterwards."""
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.import_graph_def(graph, name="")
        handle = tf.compat.v1.get_default_graph().get_tensor_by_name("v:0")
        session.run(tf.raw_ops.AssignVariableOp(resource=handle, value=tf.constant(value)))
        got: Array = session.run(fetch)
        after: Array = session.run(tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32))
        return got, after


class ProjectionsTest(LoopTest):
    """hoist_projections."""

    NAME = "hoist_projections"

    def net(self, x: Any, **options: Any) -> Any:
        """Returns all states of a simple cell."""
        import tensorflow as tf

        return scan(tanh_step(*map(tf.constant, weights())), x, tf.zeros((BATCH, OUT)), **options)[0]

    def test_input(self) -> None:
        """An input's product with a constant weight is computed once for all steps, and only the state's product is left."""
        x = normal(STEPS, BATCH, IN)
        self.assertEqual(self.changed(self.NAME, self.net, x, jit=True), 1)
        after = self.graph_after([self.NAME], self.net, x)
        self.assertEqual(ops_of_bodies(after, "MatMul"), 1)

    def test_one_row(self) -> None:
        """Batches with one row enter the loop as vectors."""
        import tensorflow as tf

        def net(x: Any) -> Any:
            return scan(tanh_step(*map(tf.constant, weights())), x, tf.zeros((1, OUT)))

        self.assertEqual(self.changed(self.NAME, net, normal(STEPS, 1, IN), jit=True), 1)

    def test_backwards(self) -> None:
        """A loop reads its inputs from last to first, like one half of a bidirectional layer."""
        self.assertEqual(
            self.changed(self.NAME, lambda x: self.net(x, backwards=True), normal(STEPS, BATCH, IN), jit=True), 1
        )

    def test_joined(self) -> None:
        """TensorFlow 1's cells multiply [x, h] by one matrix, which is split in two, even if h comes first."""
        import tensorflow as tf

        kernel, bias = normal(IN + OUT, OUT, scale=0.3), normal(OUT)
        for first in (True, False):

            def step(x: Any, h: Any, k: Any, first: bool = first) -> Any:
                return tf.tanh(tf.matmul(tf.concat([x, h] if first else [h, x], 1), kernel) + bias)

            self.assertEqual(
                self.changed(
                    self.NAME,
                    lambda x, step=step: scan(step, x, tf.zeros((BATCH, OUT))),
                    normal(STEPS, BATCH, IN),
                    jit=True,
                ),
                1,
            )

    def test_transposed_weight(self) -> None:
        """x·Wᵀ is hoisted as it is."""
        import tensorflow as tf

        w = normal(OUT, IN, scale=0.3)
        self.assertEqual(
            self.changed(
                self.NAME,
                lambda x: scan(
                    lambda x, h, k: tf.tanh(tf.matmul(x, w, transpose_b=True) + h), x, tf.zeros((BATCH, OUT))
                ),
                normal(STEPS, BATCH, IN),
            ),
            1,
        )

    def test_two_products(self) -> None:
        """Each of a cell's products with its input leaves the loop."""
        import tensorflow as tf

        w, v = normal(IN, OUT, scale=0.3), normal(IN, OUT, scale=0.2)

        def step(x: Any, h: Any, k: Any) -> Any:
            return tf.sigmoid(tf.matmul(x, w)) * h + tf.tanh(x @ v * 0.5)

        self.assertEqual(
            self.changed(self.NAME, lambda x: scan(step, x, tf.ones((BATCH, OUT))), normal(STEPS, BATCH, IN)), 2
        )

    def test_second_layer(self) -> None:
        """A loop over another loop's states is an ordinary loop."""
        import tensorflow as tf

        w, u, b = weights(OUT)
        # As many states as the rule of thumb requires.
        wide = normal(OUT, IN, scale=0.5)

        def net(x: Any) -> Any:
            states = self.net(x)
            widened = tf.reshape(tf.reshape(states, (-1, OUT)) @ wide, (STEPS, BATCH, IN))
            return scan(tanh_step(*map(tf.constant, weights())), widened, tf.zeros((BATCH, OUT)))

        del w, u, b
        self.assertEqual(self.changed(self.NAME, net, normal(STEPS, BATCH, IN)), 2)

    def assert_stays(self, build: Build, *feeds: Array) -> None:
        """Checks that the pass finds nothing to do."""
        self.assertEqual(self.changed(self.NAME, build, *feeds), 0)

    def test_open_number_of_steps(self) -> None:
        """A loop with a fed number of steps might need few of the rows."""
        self.assert_stays(lambda x, n: self.net(x, bound=n), normal(STEPS, BATCH, IN), np.array(3, np.int32))

    def test_weight_that_changes(self) -> None:
        """A weight that a step computes isn't shared by all steps."""
        import tensorflow as tf

        w = normal(IN, OUT, scale=0.3)
        self.assert_stays(
            lambda x: scan(lambda x, h, k: tf.matmul(x, w * tf.reduce_mean(h)), x, tf.ones((BATCH, OUT))),
            normal(STEPS, BATCH, IN),
        )

    def test_input_that_depends_on_the_state(self) -> None:
        """An input that the state scales is known only within its step."""
        import tensorflow as tf

        w = normal(IN, OUT, scale=0.3)
        self.assert_stays(
            lambda x: scan(lambda x, h, k: tf.matmul(x * tf.reduce_mean(h), w), x, tf.ones((BATCH, OUT))),
            normal(STEPS, BATCH, IN),
        )

    def test_items_in_no_order(self) -> None:
        """Steps read their inputs in an order that no counter gives."""
        import tensorflow as tf

        def net(x: Any) -> Any:
            order = tf.constant([3, 1, 0, 5, 2, 4])
            inputs = tf.TensorArray(tf.float32, STEPS, element_shape=(BATCH, IN)).unstack(x)
            w, u, b = weights()
            step = tanh_step(w, u, b)
            return tf.while_loop(
                lambda k, h: k < STEPS,
                lambda k, h: (k + 1, step(inputs.read(order[k]), h, k)),
                (tf.constant(0), tf.zeros((BATCH, OUT))),
            )[1]

        self.assert_stays(net, normal(STEPS, BATCH, IN))

    def test_large_batch(self) -> None:
        """With many rows, a step's own product is faster than reading rows that come from farther away."""
        import tensorflow as tf

        self.assert_stays(
            lambda x: scan(tanh_step(*map(tf.constant, weights())), x, tf.zeros((IN, OUT))), normal(STEPS, IN, IN)
        )

    def test_much_memory(self) -> None:
        """A product over very many steps would take more memory than a model should."""
        import tensorflow as tf

        w = np.zeros((IN, 1 << 10), np.float32)
        build = lambda x: scan(lambda x, h, k: h + x @ w, x, tf.zeros((1, 1 << 10)))[1]  # noqa: E731
        after = self.graph_after([self.NAME], build, np.zeros((1 << 15, 1, IN), np.float32))
        self.assertEqual(ops_of_bodies(after, "MatMul"), 1)
        self.assertEqual(sum(node.op == "MatMul" for node in after.node), 0)

    def test_nested_loop(self) -> None:
        """A loop within a loop stays, and so does what depends on it."""
        import tensorflow as tf

        w, u, b = map(np.asarray, weights())

        def step(x: Any, h: Any, k: Any) -> Any:
            inner = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 0.5), (tf.constant(0), x))[1]
            return tanh_step(w, u, b)(inner, h, k)

        self.assert_stays(lambda x: scan(step, x, tf.zeros((BATCH, OUT))), normal(STEPS, BATCH, IN))


class GradientsTest(LoopTest):
    """loop_invariants and batch_weight_gradients, on gradients of loops."""

    def net(self, *fed: Any, **options: Any) -> list[Any]:
        """Returns the last state, and gradients with respect to weights and input, of a simple cell with fed weights."""
        import tensorflow as tf

        x, w, u, b = fed
        states, last = scan(tanh_step(w, u, b), x, tf.zeros((x.shape[1], OUT)), **options)
        return [tf.identity(last, "last"), *gradients(last * last + tf.reduce_sum(states), [w, u, b, x])]

    def feeds(self, batch: int = BATCH) -> tuple[Array, ...]:
        """Returns an input and weights."""
        return (normal(STEPS, batch, IN), *weights())

    def test_invariants(self) -> None:
        """A gradient loop gets indices without a stack, and reads its list of gradients without writing it."""
        self.assertGreaterEqual(self.changed("loop_invariants", self.net, *self.feeds(), jit=True), 2)
        before = self.graph_after([], self.net, *self.feeds())
        after = self.graph_after(["loop_invariants"], self.net, *self.feeds())
        self.assertLess(ops_of_bodies(after, "TensorListPushBack"), ops_of_bodies(before, "TensorListPushBack"))
        self.assertLess(ops_of_bodies(after, "TensorListSetItem"), ops_of_bodies(before, "TensorListSetItem"))

    def test_list_items_are_read_from_the_list(self) -> None:
        """A step's input, which its weight's gradient needs, comes from the list of inputs instead of a stack."""
        after = self.graph_after(["loop_invariants"], lambda *fed: self.net(*fed)[:2], *self.feeds())
        stacks = [node for node in after.node if node.op == "EmptyTensorList"]
        self.assertEqual(len(stacks), 1, [node.name for node in stacks])  # the states

    def test_gather(self) -> None:
        """Each weight's gradient is one product after the loop. The input's gradient adds to single items."""
        self.assertEqual(self.changed("batch_weight_gradients", self.net, *self.feeds(), jit=True), 3)
        after = self.graph_after(["batch_weight_gradients"], self.net, *self.feeds())
        self.assertEqual(ops_of_bodies(after, "MatMul"), 2 + 2)
        self.assertEqual(sum(node.op == "MatMul" for node in after.node), 2)

    def test_all_together(self) -> None:
        """The three passes in sequence give the same numbers."""
        import tensorflow as tf

        from tests.compile.passes.graphs import run

        feeds = self.feeds()
        names = ["last", *(f"gradient_{index}" for index in range(4))]
        fetches = [f"{name}:0" for name in names]
        before = self.graph_after([], self.net, *feeds)
        after = self.graph_after(["loop_invariants", "hoist_projections", "batch_weight_gradients"], self.net, *feeds)
        self.assertEqual(sum(node.op == "MatMul" for node in after.node), 3)
        for jit in (False, True):
            for want, got in zip(run(before, fetches, feeds, jit), run(after, fetches, feeds, jit), strict=True):
                np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())
        del tf

    def test_backwards(self) -> None:
        """A loop over its inputs from last to first, whose gradient meets them in their original order."""
        feeds = self.feeds()
        build = lambda *fed: self.net(*fed, backwards=True)  # noqa: E731
        self.assertGreaterEqual(self.changed("loop_invariants", build, *feeds, jit=True), 2)
        self.assertEqual(self.changed("batch_weight_gradients", build, *feeds, jit=True), 3)

    def test_shared_weight(self) -> None:
        """A weight that a step uses twice has a sum of two products, and both leave the loop (the third is a list's items)."""
        import tensorflow as tf

        def net(x: Any, u: Any) -> list[Any]:
            states, _ = scan(lambda x, h, k: tf.tanh(tf.tanh(x + h @ u) @ u), x, tf.zeros((BATCH, OUT)))
            return gradients(states, [u])

        self.assertEqual(
            self.changed("batch_weight_gradients", net, normal(STEPS, BATCH, OUT), weights()[1], jit=True), 3
        )

    def test_start_of_the_sum(self) -> None:
        """A sum's initial value stays part of it."""
        import tensorflow as tf

        def net(x: Any, start: Any) -> Any:
            inputs = tf.TensorArray(tf.float32, STEPS, element_shape=(BATCH, OUT)).unstack(x)

            def body(k: Any, total: Any) -> Any:
                each = inputs.read(k)
                return k + 1, total + tf.matmul(tf.sin(each), each, transpose_a=True)

            return tf.while_loop(lambda k, total: k < STEPS, body, (tf.constant(0), start))[1]

        self.assertEqual(
            self.changed("batch_weight_gradients", net, normal(STEPS, BATCH, OUT), normal(OUT, OUT), jit=True), 1
        )

    def test_sum_that_is_used(self) -> None:
        """A sum that steps read is needed in each step."""
        import tensorflow as tf

        def net(x: Any, start: Any) -> Any:
            inputs = tf.TensorArray(tf.float32, STEPS, element_shape=(BATCH, OUT)).unstack(x)

            def body(k: Any, total: Any) -> Any:
                each = inputs.read(k) @ total
                return k + 1, total + tf.matmul(each, each, transpose_a=True)

            return tf.while_loop(lambda k, total: k < STEPS, body, (tf.constant(0), start))[1]

        self.assertEqual(
            self.changed("batch_weight_gradients", net, normal(STEPS, BATCH, OUT), normal(OUT, OUT, scale=0.1)), 0
        )

    def assert_not_gathered(self, build: Build, *feeds: Array) -> None:
        """Checks that the pass leaves products in the loop, and adds to single items of lists."""
        self.assertEqual(self.changed("batch_weight_gradients", build, *feeds), 1)
        after = self.graph_after(["batch_weight_gradients"], build, *feeds)
        self.assertEqual(sum(node.op == "MatMul" for node in after.node), 0)

    def test_large_batch(self) -> None:
        """If the batch is much larger than the weight, gathered values would be larger than the sum that a step reads."""
        self.assert_not_gathered(self.net, *self.feeds(batch=40))

    def test_open_number_of_steps(self) -> None:
        """If a loop can end early, stacks and lists can be partly filled, so nothing is gathered."""
        self.assert_not_gathered(lambda n, *fed: self.net(*fed, bound=n), np.array(4, np.int32), *self.feeds())

    def test_masked_steps(self) -> None:
        """Steps beyond a sequence's length keep the state, in the forward loop and in its gradient."""
        import tensorflow as tf

        def net(lengths: Any, x: Any, w: Any, u: Any, b: Any) -> list[Any]:
            cell = tanh_step(w, u, b)

            def step(x: Any, h: Any, k: Any) -> Any:
                return tf.where((k < lengths)[:, None], cell(x, h, k), h)

            states, last = scan(step, x, tf.zeros((BATCH, OUT)))
            return [last, *gradients(last + tf.reduce_sum(states), [w, u, b])]

        feeds = (np.array([2, 5], np.int32), *self.feeds())
        self.assertGreaterEqual(self.changed("loop_invariants", net, *feeds, jit=True), 1)
        self.assertEqual(self.changed("hoist_projections", net, *feeds, jit=True), 1)
        self.assertEqual(self.changed("batch_weight_gradients", net, *feeds, jit=True), 3)

    def test_much_memory(self) -> None:
        """A product over very many steps stays in the loop."""

        def net(x: Any, start: Any) -> Any:
            import tensorflow as tf

            inputs = tf.TensorArray(tf.float32, 1 << 15, element_shape=(1, 1 << 10)).unstack(x)

            def body(k: Any, total: Any) -> Any:
                return k + 1, total + tf.matmul(inputs.read(k), inputs.read(k), transpose_a=True)

            return tf.while_loop(lambda k, total: k < 1 << 15, body, (tf.constant(0), start))[1]

        feeds = np.zeros((1 << 15, 1, 1 << 10), np.float32), np.zeros((1 << 10, 1 << 10), np.float32)
        after = self.graph_after(["batch_weight_gradients"], net, *feeds)
        self.assertEqual(sum(node.op == "MatMul" for node in after.node), 0)

    def test_bias_gradient_stays(self) -> None:
        """A bias's gradient is summed in the loop, because XLA's sums over many rows are slow."""
        after = self.graph_after(["batch_weight_gradients"], self.net, *self.feeds())
        self.assertEqual(ops_of_bodies(after, "BiasAddGrad"), 1)


class VariablesTest(LoopTest):
    """loop_invariants on loops that read variables."""

    def check(self, build: Build) -> int:
        """Compares a graph with a variable `v` before and after the pass. Returns how many reads left loops."""
        before = self.graph_after([], build)
        after = self.graph_after(["loop_invariants"], build)
        value = normal(OUT, OUT, scale=0.5)
        for want, got in zip(run_with(before, value), run_with(after, value), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5)
        return ops_of_bodies(before, "ReadVariableOp") - ops_of_bodies(after, "ReadVariableOp")

    def test_reads(self) -> None:
        """A variable is read before the loop, and later assignments come after that read."""
        import tensorflow as tf

        def build() -> Any:
            handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=(OUT, OUT), shared_name="v", name="v")

            def body(k: Any, h: Any) -> Any:
                return k + 1, tf.tanh(h @ tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32))

            last = tf.while_loop(lambda k, h: k < STEPS, body, (tf.constant(0), tf.ones((BATCH, OUT))))[1]
            with tf.control_dependencies([last]):
                assigned = tf.raw_ops.AssignSubVariableOp(resource=handle, value=tf.fill((OUT, OUT), 0.25))
            with tf.control_dependencies([assigned]):
                return tf.identity(last, "result")

        self.assertEqual(self.check(build), 1)

    def test_writes(self) -> None:
        """A variable that the loop writes is read in each step."""
        import tensorflow as tf

        def build() -> Any:
            handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=(OUT, OUT), shared_name="v", name="v")

            def body(k: Any, h: Any) -> Any:
                value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
                with tf.control_dependencies([value]):
                    written = tf.raw_ops.AssignVariableOp(resource=handle, value=value * 0.5)
                with tf.control_dependencies([written]):
                    return k + 1, h @ value

            last = tf.while_loop(lambda k, h: k < STEPS, body, (tf.constant(0), tf.ones((BATCH, OUT))))[1]
            return tf.identity(last, "result")

        self.assertEqual(self.check(build), 0)

    def test_one_operand(self) -> None:
        """A loop that is left with one state keeps a condition that returns a bool, whatever the state's dtype."""
        import tensorflow as tf

        def build() -> Any:
            handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=(OUT, OUT), shared_name="v", name="v")

            def body(h: Any, unused: Any) -> Any:
                value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
                return tf.tanh(h * 0.5), unused @ value

            start = (tf.ones((BATCH, OUT)), tf.ones((BATCH, OUT)))
            last = tf.while_loop(lambda h, _: tf.reduce_max(h) > 0.01, body, start)[0]
            return tf.identity(last, "result")

        self.assertEqual(self.check(build), 1)


class UnrollTest(LoopTest):
    """unroll_loops."""

    NAME = "unroll_loops"

    def loops_after(self, build: Build, *feeds: Array) -> int:
        """Returns how many loops the pass leaves."""
        graph = self.graph_after([self.NAME], build, *feeds)
        return sum(node.op in ("While", "StatelessWhile") for node in graph.node)

    def test_net_and_gradient(self) -> None:
        """A short loop and its gradient, with stacks between them, become straight-line code."""
        feeds = (normal(STEPS, BATCH, IN), *weights())

        def net(x: Any, w: Any, u: Any, b: Any) -> list[Any]:
            import tensorflow as tf

            states, last = scan(tanh_step(w, u, b), x, tf.zeros((BATCH, OUT)))
            return [last, *gradients(states, [w, u, b, x])]

        self.assertEqual(self.changed(self.NAME, net, *feeds, jit=True), 2)
        self.assertEqual(self.loops_after(net, *feeds), 0)

    def test_what_waits(self) -> None:
        """What waits for a loop waits for the loop's reads: a variable that is assigned afterwards was read before."""
        import tensorflow as tf

        def build() -> Any:
            handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=(OUT, OUT), shared_name="v", name="v")
            value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
            state = tf.ones((BATCH, OUT))
            last = tf.while_loop(lambda k, h: k < 3, lambda k, h: (k + 1, tf.tanh(h @ value)), (tf.constant(0), state))[
                1
            ]
            with tf.control_dependencies([last.op]):
                assigned = tf.raw_ops.AssignVariableOp(resource=handle, value=tf.fill((OUT, OUT), 0.25))
            with tf.control_dependencies([assigned]):
                return tf.identity(last, "result")

        before = self.graph_after([], build)
        after = self.graph_after([self.NAME], build)
        self.assertEqual(sum("While" in node.op for node in after.node), 0)
        start = normal(OUT, OUT, scale=0.5)
        for want, got in zip(run_with(before, start), run_with(after, start), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5)

    def assert_stays(self, build: Build, *feeds: Array) -> None:
        """Checks that the pass finds nothing to do."""
        self.assertEqual(self.changed(self.NAME, build, *feeds), 0)

    def test_long_loop(self) -> None:
        """Nine steps are too many: the code, and the compiler's time, would grow."""
        import tensorflow as tf

        self.assert_stays(
            lambda x: scan(tanh_step(*map(tf.constant, weights())), x, tf.zeros((BATCH, OUT))), normal(9, BATCH, IN)
        )

    def test_large_body(self) -> None:
        """A few steps with many operations are as long."""
        import tensorflow as tf

        def step(x: Any, h: Any, k: Any) -> Any:
            for _ in range(200):
                h = tf.tanh(h + x)
            return h

        self.assert_stays(lambda x: scan(step, x, tf.zeros((BATCH, OUT))), normal(3, BATCH, OUT))

    def test_effects(self) -> None:
        """Effects stay in their loop, where they have an order."""
        import tensorflow as tf

        def step(x: Any, h: Any, k: Any) -> Any:
            with tf.control_dependencies([tf.debugging.Assert(k >= 0, [k])]):
                return tf.tanh(x + h)

        self.assert_stays(lambda x: scan(step, x, tf.zeros((BATCH, OUT))), normal(3, BATCH, OUT))

    def test_open_number_of_steps(self) -> None:
        """A loop with a fed number of steps has no straight-line code."""
        import tensorflow as tf

        net = tanh_step(*map(np.asarray, weights()))
        self.assert_stays(
            lambda x, n: scan(net, x, tf.zeros((BATCH, OUT)), bound=n), normal(3, BATCH, IN), np.array(2, np.int32)
        )

    def test_loop_in_a_loop(self) -> None:
        """A loop that contains another one stays."""
        import tensorflow as tf

        def step(x: Any, h: Any, k: Any) -> Any:
            return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.tanh(y + x)), (tf.constant(0), h))[1]

        self.assert_stays(lambda x: scan(step, x, tf.zeros((BATCH, OUT))), normal(3, BATCH, OUT))


class TripsTest(LoopTest):
    """What is known about a loop's steps."""

    def trips(self, condition: Any, start: Any = 0, step: int = 1, dtype: Any = None) -> int | None:
        """Returns how often a loop runs, as passes see it. `condition` takes a counter, and optionally a fed number."""
        import tensorflow as tf

        from tfaot.compile.passes.loops.loops import Loops
        from tfaot.graph.program import Program

        def build(n: Any) -> Any:
            first = start() if callable(start) else tf.constant(start, dtype or tf.int32)
            halved = tf.while_loop(
                lambda k, x: condition(k) if dtype else condition(k, n),
                lambda k, x: (k + step, x * 0.5),
                (first, tf.ones(3)),
            )[1]
            return tf.identity(halved, "result")

        graph = self.graph_after([], build, np.array(4, np.int32))
        program = Program.of(graph, config_of(["x0:0"], [np.array(4, np.int32)], ["result:0"]))
        (loop,) = Loops(program).loops.values()
        return loop.steps.trips

    def test_bounds(self) -> None:
        """Conditions on constants are counted, whatever they compare. Others aren't."""
        import tensorflow as tf

        self.assertEqual(self.trips(lambda k, n: k < 5), 5)
        self.assertEqual(self.trips(lambda k, n: k <= 5, start=1, step=2), 3)
        self.assertEqual(self.trips(lambda k, n: k > -3, start=4, step=-1), 7)
        self.assertEqual(self.trips(lambda k, n: tf.logical_and(k < tf.minimum(9, 4), k != 7)), 4)
        self.assertIsNone(self.trips(lambda k, n: k < n))
        self.assertIsNone(self.trips(lambda k, n: k < 1 << 20))

    def test_overflow(self) -> None:
        """Integers wrap around as in TensorFlow, in conditions and in counters."""
        import tensorflow as tf

        def steps(condition: Any, start: Any, step: Any, dtype: Any) -> int:
            with tf.Graph().as_default(), tf.compat.v1.Session() as session:
                one = tf.constant(step, dtype)
                loop = tf.while_loop(
                    lambda n, k: condition(k),
                    lambda n, k: (n + 1, k + one),
                    (tf.constant(0), tf.constant(start, dtype)),
                )
                return int(session.run(loop[0]))

        for dtype in (tf.int32, tf.int64):
            top = dtype.max
            for condition, start, step in (
                (lambda k, top=top: k * (top // 10 * 7) < top // 15 * 14, 0, 1),
                (lambda k, top=top: k > top - 3, top - 1, 1),
                (lambda k, top=top: k <= 0, -top - 1, top // 3),
                (lambda k, top=top: k - top < 7, 0, -1),
                (lambda k, top=top: tf.math.floormod(k * (top // 4 * 3), 9) < 7, 0, 1),
            ):
                want = steps(condition, start, step, dtype)
                self.assertEqual(self.trips(condition, start, step, dtype=dtype), want)

    def test_division_by_zero(self) -> None:
        """Steps aren't counted if a condition divides by zero, which fails in TensorFlow."""
        self.assertIsNone(self.trips(lambda k, n: 7 // (2 - k) > 0))

    def test_bound_that_fails(self) -> None:
        """If computing a bound fails, the bound is unknown, and the pass doesn't crash."""
        import tensorflow as tf

        self.assertIsNone(self.trips(lambda k, n: k < 5, start=lambda: tf.constant(7) // tf.constant(0)))


if __name__ == "__main__":
    unittest.main()
