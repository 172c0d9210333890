"""Freezing: real graphs give the same numbers before and after, and compile without their variables."""

from __future__ import annotations

import dataclasses
import functools
import textwrap
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.export.rewrites.rewriting import Model, Outcome, built, compared
from tests.stages import cases, harness
from tests.stages.harness import StageTest
from tfaot.core import dtypes, isolate

Body = Callable[..., Any]


def frozen(*names: str) -> Callable[[Model], Model]:
    """Returns a rewrite that freezes these variables."""

    def rewrite(model: Model) -> Model:
        from tfaot.export.rewrites.freeze import freeze

        values = {name: model.initial[name] for name in names}
        return dataclasses.replace(model, graph=freeze(model.graph, values, model.sources))

    return rewrite


def model(body: Body, edit: Callable[[Any], None] = lambda graph: None) -> Model:
    """Returns a graph with inputs `x` and `n`, variables `a` and `b` with the input's shape, and `c` for row lookups."""

    def build() -> Any:
        import tensorflow as tf

        v1 = tf.compat.v1
        x, n = v1.placeholder(tf.float32, [2], "x"), v1.placeholder(tf.int32, [], "n")
        a = v1.get_variable("a", initializer=np.array([3, 5], np.float32))
        b = v1.get_variable("b", initializer=np.array([7, 11], np.float32))
        c = v1.get_variable("c", initializer=np.arange(8, dtype=np.float32).reshape(4, 2) + 1)
        y = tf.identity(body(tf, x, n, a, b, c), name="y")
        y.set_shape([2])
        return [x, n], [y]

    return built(build, edit)


class FreezeTest(StageTest):
    """Each test freezes all or some variables of its own graph."""

    def check(
        self,
        body: Body,
        names: str,
        fed: str = "",
        *,
        edit: Callable[[Any], None] = lambda graph: None,
        complaint: str = "",
    ) -> Outcome:
        """Freezes the named variables. The others, separated by blanks, must still be there."""
        feeds = (([1.5, -2.0], 2), ([0.25, 4.0], 1))
        outcome = compared(lambda: model(body, edit), frozen(*names.split()), feeds)
        self.assertEqual(outcome.complaint, complaint)
        self.assertEqual(outcome.fed, tuple(fed.split()))
        for before, after in zip(outcome.before, outcome.after, strict=True):
            for wanted, value in zip(before, after, strict=True):
                np.testing.assert_allclose(value, wanted, rtol=1e-6)
        self.assertGreater(np.ptp([np.sum(value) for value in (outcome.before[0][0], outcome.before[1][0])]), 0)
        return outcome

    def check_case(self, case: cases.Case) -> None:
        """Freezes each set of variables that a case of `variables.txt` names. The others that it uses are still there."""
        used = [flag.partition(" ")[0] for flag in case.extra.split(", ")]
        names: dict[str, Body] = {}
        exec(f"def body(tf, x, n, a, b, c):\n    v1 = tf.compat.v1\n{textwrap.indent(case.text, '    ')}", names)
        for line in case.wanted.splitlines():
            names_frozen = line.removeprefix("frozen: ")
            self.check(names["body"], names_frozen, " ".join(n for n in used if n not in names_frozen.split()))

    def test_read(self) -> None:
        """Protects plain use, and compiled code that contains the values: the input is its only argument."""
        outcome = self.check(lambda tf, x, n, a, b, c: x * a + b, "a b")
        self.assertEqual(outcome.signature, "(f32[2], s32[])->(f32[2])")

    def test_some(self) -> None:
        """Protects models in which some variables are fed, whether or not anything writes them."""

        def body(tf: Any, x: Any, n: Any, a: Any, b: Any, c: Any) -> Any:
            with tf.control_dependencies([b.assign_add(x)]):
                return x * a + c[0]

        outcome = self.check(body, "a", "b c")
        self.assertEqual(outcome.signature, "(f32[2], s32[], f32[2], f32[4,2])->(f32[2], f32[2])")

    def test_two_handles_of_one_variable(self) -> None:
        """Protects size: a second handle of a variable doesn't copy its value."""

        def body(tf: Any, x: Any, n: Any, a: Any, b: Any, c: Any) -> Any:
            handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="a", name="again")
            with tf.control_dependencies([x * 2]):
                late = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="a", name="late")
            read = tf.raw_ops.ReadVariableOp
            return x * a + read(resource=handle, dtype=tf.float32) - read(resource=late, dtype=tf.float32) * 3

        outcome = self.check(body, "a")
        ops = {node.name: node.op for node in _graph(outcome).node}
        self.assertEqual([ops[name] for name in ("a", "again", "late")], ["Const", "Identity", "Const"])

    def test_function_called_as_an_op(self) -> None:
        """Protects old graphs, where a function's name is the op, and its outputs have their own names."""

        def body(tf: Any, x: Any, n: Any, a: Any, b: Any, c: Any) -> Any:
            def both(first: Any, second: Any, y: Any) -> Any:
                return y * 2, tf.raw_ops.Identity(input=second), first

            handle = tf.TensorSpec([], tf.resource)
            inner = tf.function(both).get_concrete_function(handle, handle, tf.TensorSpec([2], tf.float32))

            def call(first: Any, second: Any, y: Any) -> Any:
                types = [tf.float32, tf.resource, tf.resource]
                z, one, two = tf.raw_ops.PartitionedCall(args=[first, second, y], Tout=types, f=inner)
                read = tf.raw_ops.ReadVariableOp
                return z * read(resource=one, dtype=tf.float32) - read(resource=two, dtype=tf.float32)

            outer = tf.function(call).get_concrete_function(handle, handle, tf.TensorSpec([2], tf.float32))
            return tf.raw_ops.PartitionedCall(args=[a.handle, b.handle, x], Tout=[tf.float32], f=outer)[0]

        self.check(body, "a b", edit=_call_as_ops)
        self.check(body, "b", "a", edit=_call_as_ops)

    def test_one_function_for_several_variables(self) -> None:
        """Protects layers that share a function: it is copied only where it gets different kinds of variables."""

        def body(tf: Any, x: Any, n: Any, a: Any, b: Any, c: Any) -> Any:
            handle, value = tf.TensorSpec([], tf.resource), tf.TensorSpec([2], tf.float32)

            def layer(first: Any, second: Any, y: Any) -> Any:
                read = tf.raw_ops.ReadVariableOp
                return y * read(resource=first, dtype=tf.float32) + read(resource=second, dtype=tf.float32)

            function = tf.function(layer).get_concrete_function(handle, handle, value)

            def apply(first: Any, second: Any, y: Any) -> Any:
                args = [first.handle, second.handle, y]
                return tf.raw_ops.PartitionedCall(args=args, Tout=[tf.float32], f=function)[0]

            return apply(a, b, x) * apply(b, a, x) - apply(a, a, x) / apply(b, b, x)

        self.assertEqual(len(_graph(self.check(body, "a b")).library.function), 1)
        functions = [f.signature.name for f in _graph(self.check(body, "a", "b")).library.function]
        self.assertEqual(functions, [functions[0] + suffix for suffix in ("", "_1", "_2", "_3")])

    def test_returned_handles(self) -> None:
        """Protects functions that return the variable to read from."""

        def body(tf: Any, x: Any, n: Any, a: Any, b: Any, c: Any) -> Any:
            handle = tf.TensorSpec([], tf.resource)
            swap = tf.function(lambda p, q: (q, p)).get_concrete_function(handle, handle)
            types = [tf.resource, tf.resource]
            p, q = tf.raw_ops.PartitionedCall(args=[a.handle, b.handle], Tout=types, f=swap)
            read = tf.raw_ops.ReadVariableOp
            return x * read(resource=p, dtype=tf.float32) - read(resource=q, dtype=tf.float32)

        self.check(body, "a b")
        # The compiler itself accepts no function that returns a handle.
        self.check(body, "b", "a", complaint="GetTupleElement() index (1) out of range for tuple shape (f32[2])")

    def test_every_dtype(self) -> None:
        """Protects values of every dtype, as scalars, as matrices, and empty, bit by bit."""
        from tfaot.export.rewrites.freeze import freeze

        for dtype in dtypes.ALL:
            with self.subTest(dtype.name):
                values = {
                    f"v{rank}": np.random.default_rng(0)
                    .integers(0, 2 if dtype.name == "bool" else 256, (*shape, dtype.bytes), dtype=np.uint8)
                    .reshape(-1)
                    .view(dtype.numpy())
                    .reshape(shape)
                    for rank, shape in enumerate([(), (3, 0), (2, 3)])
                }

                def work(values: Any = values, enum: int = dtype.enum) -> Any:
                    import tensorflow as tf

                    with tf.Graph().as_default() as graph:
                        for name, value in values.items():
                            handle = tf.raw_ops.VarHandleOp(dtype=enum, shape=value.shape, shared_name=name, name=name)
                            tf.raw_ops.ReadVariableOp(resource=handle, dtype=enum, name=f"{name}/read")
                    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
                        tf.import_graph_def(freeze(graph.as_graph_def(), values), name="")
                        return session.run([f"{name}/read:0" for name in values])

                for wanted, value in zip(values.values(), isolate.run_isolated(work, what="reading"), strict=True):
                    self.assertEqual((value.dtype, value.shape), (wanted.dtype, wanted.shape))
                    self.assertEqual(value.tobytes(), wanted.tobytes())

    @harness.wide
    def test_keras(self) -> None:
        """Protects whole models: embeddings, recurrent and bidirectional layers in Keras 3 and tf-keras."""

        def make(package: str) -> Model:
            import importlib

            import tensorflow as tf

            from tfaot.export.sources.functions import VariableNames, function_of
            from tfaot.graph.prune import prune
            from tfaot.graph.variables import variable_uses

            keras = importlib.import_module(package)
            keras.utils.set_random_seed(1)
            layers = keras.layers
            network = keras.Sequential(
                [
                    layers.Embedding(7, 5),
                    layers.Bidirectional(layers.LSTM(4, return_sequences=True)),
                    layers.GRU(3, return_sequences=True),
                    layers.SimpleRNN(3),
                    layers.BatchNormalization(),
                    layers.Dense(2),
                ]
            )
            specification = tf.TensorSpec([2, 6], tf.int32, name="ids")
            concrete = tf.function(lambda ids: network(ids, training=False)).get_concrete_function(specification)
            names = VariableNames(network)
            function = function_of(concrete, name="Run", names=names)
            nodes = [[edge.name.partition(":")[0] for edge in e] for e in (function.outputs, function.inputs)]
            pruned = prune(function.graph, *nodes)
            for body in pruned.library.function:
                body.attr.pop("api_implements", None)
            initial = names.values(use.shared_name for use in variable_uses(pruned))
            return Model(pruned, function.inputs, function.outputs, initial)

        def rewrite(model: Model) -> Model:
            return frozen(*model.initial)(model)

        for package in ("keras", "tf_keras"):
            with self.subTest(package):
                feeds = [[np.arange(12).reshape(2, 6) % 7], [np.arange(12).reshape(2, 6) * 3 % 7]]
                outcome = compared(functools.partial(make, package), rewrite, feeds)
                self.assertEqual((outcome.complaint, outcome.fed), ("", ()))
                self.assertEqual(outcome.signature, "(s32[2,6])->(f32[2,2])")
                for before, after in zip(outcome.before[:2], outcome.after[:2], strict=True):
                    np.testing.assert_allclose(after[0], before[0], rtol=1e-5)
                self.assertGreater(np.abs(outcome.before[0][0] - outcome.before[1][0]).max(), 1e-3)

    def test_nothing_to_do(self) -> None:
        """Protects time and memory: a graph without any of the variables is returned unchanged."""
        from tensorflow.core.framework import graph_pb2

        from tfaot.export.rewrites.freeze import freeze

        graph = graph_pb2.GraphDef()
        graph.node.add(name="v", op="VarHandleOp").attr["shared_name"].s = b"v"
        self.assertIs(freeze(graph, {}), graph)
        self.assertIs(freeze(graph, {"w": np.ones(2)}), graph)

    def test_large_graphs_take_linear_time(self) -> None:
        """Protects graphs with hundreds of thousands of nodes: a long chain is neither recursive nor quadratic."""
        from tensorflow.core.framework import graph_pb2

        from tfaot.export.rewrites.freeze import freeze

        graph = graph_pb2.GraphDef()
        node = graph.node.add(name="n0", op="VarHandleOp")
        node.attr["dtype"].type = 1
        node.attr["shared_name"].s = b"v"
        for index in range(1, 30_000):
            graph.node.add(name=f"n{index}", op="Identity", input=[f"n{index - 1}"]).attr["T"].type = 20
        result = freeze(graph, {"v": np.ones(2, np.float32)})
        self.assertEqual((result.node[0].op, result.node[29_999].attr["T"].type), ("Const", 1))

    def test_too_large(self) -> None:
        """Protects against protobuf's own error after minutes: a GraphDef has no room for the frozen values."""
        from tensorflow.core.framework import graph_pb2

        from tfaot.export.rewrites.freeze import freeze

        graph = graph_pb2.GraphDef()
        for name in "abcd":
            graph.node.add(name=name, op="VarHandleOp").attr["shared_name"].s = name.encode()
        large = np.broadcast_to(np.float32(1), (1 << 20, 128))
        values = {"a": large, "b": large[:1], "c": large, "d": np.broadcast_to(np.float32(1), (1 << 20, 257))}
        self.assert_error(
            self.error_of(freeze, graph, values),
            """
            freezing 4 variable(s) makes 2,151,678,464 bytes of constants, which exceeds a GraphDef's limit
              found: 2,147,483,647 bytes at most; the largest are d (1,077,936,128), a (536,870,912), c (536,870,912), and 1 more
              to do: freeze fewer: frozen = [] keeps all variables in a file beside the code, and a pattern freezes only some
            """,
        )

    def test_refused(self) -> None:
        """Protects against graphs that can't run: the error names ops that need a handle, where they are, and the variables."""

        def work() -> str:
            def body(tf: Any, x: Any, n: Any, a: Any, b: Any, c: Any) -> Any:
                handle = tf.TensorSpec([], tf.resource)

                def destroy(first: Any, y: Any) -> Any:
                    gone = tf.raw_ops.DestroyResourceOp(resource=first, name="destroy")
                    with tf.control_dependencies([gone]):
                        return tf.identity(y)

                function = tf.function(destroy).get_concrete_function(handle, tf.TensorSpec([2], tf.float32))
                calls = [
                    tf.raw_ops.StatefulPartitionedCall(args=[v.handle, x], Tout=[tf.float32], f=function)[0]
                    for v in (a, c)
                ]
                which = tf.raw_ops.If(
                    cond=n > 0,
                    input=[a.handle, b.handle],
                    Tout=[tf.resource],
                    then_branch=tf.function(lambda p, q: p).get_concrete_function(handle, handle),
                    else_branch=tf.function(lambda p, q: q).get_concrete_function(handle, handle),
                    name="which",
                )[0]
                return sum(calls) * tf.raw_ops.ReadVariableOp(resource=which, dtype=tf.float32)

            plain = model(body, _plain_names)

            return self.error_of(frozen("a", "c"), dataclasses.replace(plain, sources={"f/destroy": "model.py:3"}))

        self.assert_error(
            isolate.run_isolated(work, what="freezing"),
            """
            2 op(s) use a variable in a way that doesn't work with a constant

                DestroyResourceOp 'f/destroy' on a, c at model.py:3
                If 'which' on a

              found: a frozen variable can only be read, gathered from, and passed to functions, and an op that can get \
several variables works only if all of them are frozen
              to do: feed these variables: exclude them from frozen
            """,
        )


cases.declare(
    FreezeTest,
    Path(__file__).parents[1] / "variables.txt",
    FreezeTest.check_case,
    where=lambda case: case.wanted,
)


class ChosenTest(StageTest):
    """Which variables patterns choose."""

    NAMES = ("dense/kernel", "dense/bias", "head/kernel", "step")

    def chosen(self, patterns: list[str] | None, *, written: str = "step", default_frozen: bool = True) -> list[str]:
        from tfaot.export.rewrites.freeze import chosen

        names = chosen(self.NAMES, written.split(), patterns, default_frozen=default_frozen)
        return [name for name in self.NAMES if name in names]

    def test_default(self) -> None:
        """Protects models without the attribute: everything that nothing writes is frozen, or nothing at all."""
        self.assertEqual(self.chosen(None), ["dense/kernel", "dense/bias", "head/kernel"])
        self.assertEqual(self.chosen(None, default_frozen=False), [])

    def test_patterns(self) -> None:
        """Protects the choice: whole names, globs across `/`, and later patterns that exclude and include again."""
        self.assertEqual(self.chosen([]), [])
        self.assertEqual(self.chosen(["dense/bias"]), ["dense/bias"])
        self.assertEqual(self.chosen(["*kernel"]), ["dense/kernel", "head/kernel"])
        self.assertEqual(self.chosen(["*", "!step"]), ["dense/kernel", "dense/bias", "head/kernel"])
        self.assertEqual(self.chosen(["*", "!*/*", "head/*", "!step"]), ["head/kernel"])
        self.assertEqual(
            self.chosen(["[ds]*"], written="", default_frozen=False), ["dense/kernel", "dense/bias", "step"]
        )


def _graph(outcome: Outcome) -> Any:
    from tensorflow.core.framework import graph_pb2

    return graph_pb2.GraphDef.FromString(outcome.graph)


def _call_as_ops(graph: Any) -> None:
    """Turns calls into ops: their names are the functions', and so are their outputs' names."""
    library = {function.signature.name: function for function in graph.library.function}
    bodies = [graph.node, *(function.node_def for function in graph.library.function)]
    for nodes in bodies:
        results = {}
        for node in nodes:
            if node.op == "PartitionedCall":
                node.op = node.attr["f"].func.name
                node.attr.clear()
                results[node.name] = [result.name for result in library[node.op].signature.output_arg]
        if nodes is not bodies[0]:
            for node in nodes:
                for index, operand in enumerate(node.input):
                    name, _, output = operand.partition(":output:")
                    if name in results and output:
                        node.input[index] = f"{name}:{results[name][int(output)]}:0"


def _plain_names(graph: Any) -> None:
    """Renames the first function to `f`, because TensorFlow numbers functions."""
    name = graph.library.function[0].signature.name
    graph.library.function[0].signature.name = "f"
    for node in graph.node:
        if node.op == "StatefulPartitionedCall" and node.attr["f"].func.name == name:
            node.attr["f"].func.name = "f"


if __name__ == "__main__":
    unittest.main()
