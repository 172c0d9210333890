"""Dtypes that the compiler refuses at the edge. Converted there, real graphs give the same bits, and compile."""

from __future__ import annotations

import dataclasses
import functools
import unittest
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.export.rewrites.rewriting import Model, Outcome, built, compared
from tests.stages.harness import StageTest
from tfaot.core import dtypes, isolate

STORED = tuple(dtype for dtype in dtypes.ALL if dtype.stored != dtype.name)
"""The dtypes that are converted."""

HLO = {"bfloat16": "u16[{}]", "float16": "u16[{}]", "complex64": "f32[{}2]", "complex128": "f64[{}2]"}
"""How XLA shows them at the edge, with sizes to fill in."""


def stored(model: Model) -> Model:
    """Applies the rewrite like the export stage."""
    from tfaot.export.rewrites import edges

    graph, inputs, outputs = edges.stored(model.graph, model.inputs, model.outputs)
    graph = edges.stored_variables(graph, model.sources, "model.py")
    return dataclasses.replace(model, graph=graph, inputs=inputs, outputs=outputs)


def drawn(dtype: dtypes.DType, *shape: int) -> Any:
    """Returns numbers whose sums depend on rounding."""
    rng = np.random.default_rng(7)
    value = rng.standard_normal(shape)
    if dtype.name.startswith("complex"):
        value = value + 1j * rng.standard_normal(shape)
    return value.astype(dtype.numpy())


def hlo(dtype: dtypes.DType, *shape: int) -> str:
    """Returns a shape in HLO's notation."""
    sizes = ",".join(map(str, shape))
    return HLO[dtype.name].format(sizes + "," * (dtype.parts > 1 and bool(shape)))


class RewriteTest(StageTest):
    """Compares before and after."""

    def check(self, make: Callable[[], Model], *values: Any, runs: int = 1, exact: bool = True) -> Outcome:
        """Runs and compiles a model before and after. Every result must have the same bits, or nearly."""
        outcome = compared(make, stored, [values], runs=runs)
        self.assertEqual(outcome.complaint, "")
        for before, after in zip(outcome.before, outcome.after, strict=True):
            for wanted, value in zip(before, after, strict=True):
                self.assertEqual((value.dtype, value.shape), (wanted.dtype, wanted.shape))
                if exact:
                    self.assertEqual(value.tobytes(), wanted.tobytes())
                else:  # TensorFlow may or may not fuse products and sums of complex numbers
                    np.testing.assert_allclose(value, wanted, rtol=8 * float(np.finfo(wanted.dtype).eps))
        return outcome


class EdgesTest(RewriteTest):
    """Inputs and outputs."""

    def test_inputs_and_outputs(self) -> None:
        """Protects every dtype and rank: a session and the compiler see the stored dtype, and get the same bits."""
        for dtype in STORED:
            with self.subTest(dtype.name):

                def build(enum: int = dtype.enum) -> Any:
                    import tensorflow as tf

                    shapes: list[list[int]] = [[], [3], [2, 3], [2, 0, 3]]
                    inputs = [tf.compat.v1.placeholder(enum, shape, f"x{len(shape)}") for shape in shapes]
                    outputs = [tf.identity(value * value + inputs[0], f"y{n}") for n, value in enumerate(inputs)]
                    return inputs, outputs

                shapes = ((), (3,), (2, 3), (2, 0, 3))
                outcome = self.check(functools.partial(built, build), *(drawn(dtype, *shape) for shape in shapes))
                wanted = ", ".join(hlo(dtype, *shape) for shape in shapes)
                self.assertEqual(outcome.signature.replace(" ", ""), f"({wanted})->({wanted})".replace(" ", ""))

    def test_special_values(self) -> None:
        """Protects infinities, signed zeros, subnormals, and every NaN: conversion doesn't change bits."""
        for dtype in STORED:
            with self.subTest(dtype.name):

                def build(enum: int = dtype.enum) -> Any:
                    import tensorflow as tf

                    x = tf.compat.v1.placeholder(enum, [1 << 16], "x")
                    return [x], [tf.reverse(x, [0])]

                bits = np.arange(1 << 16, dtype=np.uint16)
                value = np.repeat(bits, dtype.bytes // 2).view(dtype.numpy())
                self.check(functools.partial(built, build), value)

    def test_bit_cast_costs_nothing(self) -> None:
        """Protects speed: values that only pass through are copied, and computed values take one kernel, as without casts."""

        def passing() -> Any:
            import tensorflow as tf

            x = tf.compat.v1.placeholder(tf.bfloat16, [4, 8], "x")
            return [x], [tf.identity(x)]

        def computing() -> Any:
            import tensorflow as tf

            x = tf.compat.v1.placeholder(tf.float16, [4, 8], "x")
            return [x], [tf.nn.relu(x) * 2 + tf.transpose(tf.reshape(x, [8, 4]))]

        text = self.check(functools.partial(built, passing), drawn(dtypes.BY_NAME["bfloat16"], 4, 8)).optimized
        entry = text[text.index("ENTRY") :]
        self.assertIn(" copy(", entry)
        self.assertNotRegex(entry, r"convert|fusion")
        text = self.check(functools.partial(built, computing), drawn(dtypes.BY_NAME["float16"], 4, 8)).optimized
        self.assertEqual(text[text.index("ENTRY") :].count(" fusion("), 1)
        self.assertNotIn("convert(", text[text.index("ENTRY") :])

    def test_names(self) -> None:
        """Protects users of the model: whatever they named keeps its name, dtype, and shape, and new nodes don't clash."""

        def work() -> Any:
            def build() -> Any:
                import tensorflow as tf

                v1 = tf.compat.v1
                x, n = v1.placeholder(tf.bfloat16, [2], "x"), v1.placeholder(tf.float32, [2], "n")
                both = tf.split(tf.concat([x, x], 0) + tf.cast(v1.placeholder(tf.bfloat16, [], "x/stored"), x.dtype), 2)
                s = v1.get_default_graph().get_tensor_by_name("x/stored:0")
                return [x, s, n], [*both, n * 2]

            model = built(build)
            nodes = {node.name: node.op for node in model.graph.node}
            changed = stored(model)
            ops = {node.name: node.op for node in changed.graph.node}
            return (
                [(edge.name, edge.label, edge.dtype, edge.shape) for edge in (*changed.inputs, *changed.outputs)],
                {name: ops[name] for name in ops if ops[name] != nodes.get(name)},
                [edge.label for edge in model.outputs],
            )

        edges, new, labels = isolate.run_isolated(work, what="rewriting")
        self.assertEqual(
            edges,
            [
                ("x/stored_1:0", "x", 14, (2,)),
                ("x/stored/stored:0", "x/stored", 14, ()),
                ("n:0", "n", 1, (2,)),
                ("split/stored:0", labels[0], 14, (2,)),
                ("split/stored_1:0", labels[1], 14, (2,)),
                (f"{labels[2]}:0", labels[2], 1, (2,)),
            ],
        )
        self.assertEqual(
            new,
            {
                "x": "Bitcast",
                "x/stored": "Bitcast",
                "x/stored_1": "Placeholder",
                "x/stored/stored": "Placeholder",
                "split/stored": "Bitcast",
                "split/stored_1": "Bitcast",
            },
        )

    def test_batch(self) -> None:
        """Protects families of batch sizes: an open dimension stays open."""
        from tensorflow.core.framework import graph_pb2

        from tfaot.export.rewrites import edges
        from tfaot.export.traced import Edge

        graph = graph_pb2.GraphDef()
        node = graph.node.add(name="x", op="Placeholder")
        node.attr["dtype"].type = dtypes.BY_NAME["complex64"].enum
        node.attr["shape"].shape.unknown_rank = True
        result, _, _ = edges.stored(graph, [Edge("x:0", "x", dtypes.BY_NAME["complex64"].enum, (None, 3))], [])
        feed = next(node for node in result.node if node.name == "x/stored")
        self.assertEqual([dim.size for dim in feed.attr["shape"].shape.dim], [-1, 3, 2])

    def test_table(self) -> None:
        """Protects the table when TensorFlow changes: the compiler refuses exactly the dtypes that are converted."""

        def work() -> list[str]:
            import tensorflow as tf
            from tensorflow.compiler.tf2xla import tf2xla_pb2

            from tfaot.export import verdict

            refused = []
            for dtype in dtypes.ALL:
                with tf.Graph().as_default() as graph:
                    tf.identity(tf.compat.v1.placeholder(dtype.enum, [2], "x"), name="y")
                config = tf2xla_pb2.Config()
                for entry, name in ((config.feed.add(), "x"), (config.fetch.add(), "y")):
                    entry.id.node_name = entry.name = name
                    entry.type = dtype.enum
                    entry.shape.dim.add(size=2)
                answer = verdict.results(graph.as_graph_def(), config)
                if isinstance(answer, str):
                    self.assertIn("no equivalent in C++", answer)
                    refused.append(dtype.name)
            return refused

        self.assertEqual(isolate.run_isolated(work, what="compiling"), [dtype.name for dtype in STORED])

    def test_true_sizes(self) -> None:
        """Protects results for which the compiler knows a bound: another fetch returns the size, as the user sees it."""

        def work() -> Any:
            import tensorflow as tf
            from tensorflow.compiler.tf2xla import tf2xla_pb2

            from tfaot.export import verdict
            from tfaot.export.rewrites import edges
            from tfaot.export.traced import Edge

            v1 = tf.compat.v1
            v1.disable_eager_execution()
            with tf.Graph().as_default() as graph:
                x = v1.placeholder(tf.float32, [8], "x")
                v1.placeholder(tf.float32, [], "where/size")
                tf.where(x > 0, name="where")
                for dtype in (tf.bfloat16, tf.complex64):
                    pairs = tf.cast(tf.stack([x, x, x], 1), dtype)
                    tf.identity(tf.boolean_mask(pairs, x > 0), name=dtype.name)
            enums = {"where": 9, "bfloat16": 14, "complex64": 8}
            outputs = [Edge(f"{name}:0", name, enum, None) for name, enum in enums.items()]
            changed, _, edges_ = edges.stored(graph.as_graph_def(), [], outputs)
            used = {node.name for node in changed.node}
            sizes = []
            for edge in edges_:
                changed, size = edges.with_size(changed, edge, used)
                sizes.append(size)
            with tf.Graph().as_default(), v1.Session() as session:
                tf.import_graph_def(changed, name="")
                values = session.run(sizes, {"x:0": [1, 0, 1, 0, 0, 1, 1, 1]})
                unconverted, _ = edges.with_size(graph.as_graph_def(), outputs[2], set(used))
            config = tf2xla_pb2.Config()
            for entry, tensor in [(config.feed.add(type=1), "x:0")] + [
                (config.fetch.add(), tensor) for tensor in (*(edge.name for edge in edges_), *sizes)
            ]:
                entry.id.node_name = tensor.partition(":")[0]
                entry.name = tensor.partition(":")[0].replace("/", "_")
                entry.shape.SetInParent()
            config.feed[0].shape.dim.add(size=8)
            return (
                sizes,
                [list(value) for value in values],
                verdict.results(changed, config),
                unconverted.node[-1].input[0],
            )

        sizes, values, results, unconverted = isolate.run_isolated(work, what="compiling")
        self.assertEqual(sizes, ["where/size_1:0", "bfloat16/stored/size:0", "complex64/stored/size:0"])
        self.assertEqual(values, [[5, 1], [5, 3], [5, 3]])
        self.assertEqual([result.shape for result in results], [(8, 1), (8, 3), (8, 3, 2), (2,), (2,), (2,)])
        self.assertEqual([result.bounded for result in results], [True, True, True, False, False, False])
        self.assertEqual(unconverted, "complex64:0")

    def test_nothing_to_do(self) -> None:
        """Protects memory: a graph whose dtypes can all cross is returned unchanged."""
        from tensorflow.core.framework import graph_pb2

        from tfaot.export.rewrites import edges
        from tfaot.export.traced import Edge

        graph = graph_pb2.GraphDef()
        graph.node.add(name="v", op="VarHandleOp").attr["dtype"].type = 1
        edge = Edge("x:0", "x", 1, ())
        self.assertIs(edges.stored(graph, [edge], [edge])[0], graph)
        self.assertEqual(edges.stored(graph, [edge], [])[1:], ((edge,), ()))
        self.assertIs(edges.stored_variables(graph, {}, "model.py"), graph)


class VariablesTest(RewriteTest):
    """Variables that are stored as bits, or as pairs, by what is done to them."""

    def check_variables(self, body: Callable[..., Any], *, written: str = "ab", changed: str | None = None) -> None:
        """Runs a model with inputs `x` and `n`, and variables `a`, `b`, and `c`, twice.

        Args:
          body: returns the output, with shape [2].
          written: the variables that the compiled code returns.
          changed: those that have other values afterwards. None if they are the same as `written`.
        """
        for dtype in (dtypes.BY_NAME["bfloat16"], dtypes.BY_NAME["complex128"]):
            with self.subTest(dtype.name):

                def build(dtype: dtypes.DType = dtype) -> Any:
                    import tensorflow as tf

                    v1 = tf.compat.v1
                    x, n = v1.placeholder(dtype.enum, [2], "x"), v1.placeholder(tf.int32, [], "n")
                    values = drawn(dtype, 12)
                    a = v1.get_variable("a", initializer=values[:2])
                    b = v1.get_variable("b", initializer=values[2:4])
                    c = v1.get_variable("c", initializer=values[4:].reshape(4, 2))
                    y = tf.identity(body(tf, x, n, a, b, c), name="y")
                    y.set_shape([2])
                    return [x, n], [y]

                outcome = self.check(
                    functools.partial(built, build), drawn(dtype, 2), 2, runs=2, exact=dtype.parts == 1
                )
                shapes = {"a": (2,), "b": (2,), "c": (4, 2)}
                parameters = [hlo(dtype, 2), "s32[]", *(hlo(dtype, *shapes[name]) for name in outcome.fed)]
                results = [hlo(dtype, 2), *(hlo(dtype, *shapes[name]) for name in outcome.fed if name in written)]
                self.assertEqual(outcome.signature, f"({', '.join(parameters)})->({', '.join(results)})")
                for name, value in zip(outcome.fed, outcome.after[-1], strict=True):
                    start, stop = {"a": (0, 2), "b": (2, 4), "c": (4, 12)}[name]
                    kept = value.tobytes() == drawn(dtype, 12)[start:stop].tobytes()
                    self.assertEqual(kept, name not in (written if changed is None else changed), name)

    def test_read_and_written(self) -> None:
        """Protects plain uses of a variable, in an order that control inputs define."""

        def body(tf: Any, x: Any, n: Any, a: Any, b: Any, c: Any) -> Any:
            with tf.control_dependencies([a.assign(x * b)]):
                added = b.assign_add(a.read_value())
            with tf.control_dependencies([added]):
                taken = a.assign_sub(x)
            with tf.control_dependencies([taken]):
                return a.read_value() + b.read_value() + c[0]

        self.check_variables(body)

    def test_added_to_after_the_value_is_there(self) -> None:
        """Protects against reading too early: the added value can come from a function that writes the variable."""

        def body(tf: Any, x: Any, n: Any, a: Any, b: Any, c: Any) -> Any:
            @tf.function
            def write(y: Any) -> Any:
                a.assign(y)
                return y * 2

            with tf.control_dependencies([tf.raw_ops.AssignAddVariableOp(resource=a.handle, value=write(x))]):
                return a.read_value() * b

        self.check_variables(body, written="a")

    def test_gathered(self) -> None:
        """Protects embeddings, in the graph and in functions."""

        def body(tf: Any, x: Any, n: Any, a: Any, b: Any, c: Any) -> Any:
            @tf.function
            def look_up(index: Any) -> Any:
                rows = tf.raw_ops.ResourceGather(
                    resource=c.handle, indices=[[0], [1], [0], [index - 1]], dtype=c.dtype, batch_dims=1
                )
                cells = tf.raw_ops.ResourceGatherNd(resource=c.handle, indices=[[index, 1], [0, 0]], dtype=c.dtype)
                return tf.gather(c, index) + cells + rows[:2, 0]

            return x * tf.gather(c, n) + look_up(n)

        self.check_variables(body, written="")

    def test_asked_about(self) -> None:
        """Protects shapes: pairs have a dimension that the user must not see."""

        def body(tf: Any, x: Any, n: Any, a: Any, b: Any, c: Any) -> Any:
            @tf.function
            def ask(y: Any) -> Any:
                shape = tf.raw_ops.VariableShape(input=c.handle, out_type=tf.int64)
                return y * a * tf.cast(shape, y.dtype)

            there = tf.raw_ops.VarIsInitializedOp(resource=a.handle)
            return tf.where(there, ask(x), x) + tf.cast(tf.raw_ops.VariableShape(input=c.handle), x.dtype)

        self.check_variables(body, written="")

    def test_control_flow(self) -> None:
        """Protects loops and branches of both control flow versions, and the functions that they call."""

        def body(tf: Any, x: Any, n: Any, a: Any, b: Any, c: Any) -> Any:
            scale = tf.function(lambda y: y * a)

            def step(i: Any, y: Any) -> Any:
                with tf.control_dependencies([b.assign_add(y)]):
                    return i + 1, tf.cond(i > 0, lambda: scale(y), lambda: y + tf.gather(c, i))

            return tf.while_loop(lambda i, y: i < n, step, [0, x + b])[1]

        def body_v1(tf: Any, x: Any, n: Any, a: Any, b: Any, c: Any) -> Any:
            tf.compat.v1.disable_control_flow_v2()
            return body(tf, x, n, a, b, c)

        self.check_variables(body, written="b")
        self.check_variables(body_v1, written="b")

    def test_given_its_own_value(self) -> None:
        """Protects assignments that the compiler could drop as no-ops: with the conversions, they are still written."""

        def body(tf: Any, x: Any, n: Any, a: Any, b: Any, c: Any) -> Any:
            with tf.control_dependencies([a.assign(a.read_value())]):
                return x * a

        self.check_variables(body, written="a", changed="")

    def test_refused(self) -> None:
        """Protects against the compiler's own wording: the error names the ops, their lines, and the variables involved."""

        def work() -> str:
            def build() -> Any:
                import tensorflow as tf

                v1 = tf.compat.v1
                x = v1.placeholder(tf.bfloat16, [2], "x")
                a = v1.get_variable("a", initializer=np.ones(2, dtypes.BY_NAME["bfloat16"].numpy()))
                c = v1.get_variable("c", initializer=np.ones((2, 2), np.complex64))
                d = v1.get_variable("d", initializer=np.ones(2, np.float32))
                trained = [
                    tf.raw_ops.ResourceApplyGradientDescent(
                        var=v.handle, alpha=tf.cast(0.1, v.dtype), delta=y, name=name
                    )
                    for v, y, name in ((a, x, "train"), (d, tf.cast(x, tf.float32), "others"))
                ]
                update = v1.scatter_update(c, [0], [tf.cast(tf.cast(x, tf.float32), tf.complex64)], name="scatter")
                with tf.control_dependencies([*trained, update]):
                    return [x], [x * a]

            return self.error_of(
                stored, dataclasses.replace(built(build), sources={"train": "model.py:7", "others": "model.py:8"})
            )

        self.assert_error(
            isolate.run_isolated(work, what="rewriting"),
            """
            model.py: 2 op(s) use float16, bfloat16, or complex variables in ways that a C++ library doesn't support

                ResourceApplyGradientDescent 'train' on a at model.py:7
                ResourceScatterUpdate 'scatter' on c

              found: it stores the bits of such variables, which it can read, assign, add to, subtract from, and gather from
              to do: keep these variables in float32 or float64 and cast them where you read them, or freeze those that \
nothing writes
            """,
        )


if __name__ == "__main__":
    unittest.main()
