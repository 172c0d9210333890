"""Random ops: rewritten graphs give the numbers of `tf.random.Generator`, and XLA gives those of a session."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import tempfile
import unittest
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tfaot.core import environment

environment.prepare(legacy_keras=True)

import tensorflow as tf  # noqa: E402
from google.protobuf import text_format  # noqa: E402
from tensorflow.compiler.tf2xla import tf2xla_pb2  # noqa: E402
from tensorflow.core.framework import attr_value_pb2, graph_pb2, node_def_pb2  # noqa: E402
from tensorflow.python import _pywrap_tfcompile  # noqa: E402
from tensorflow.python.framework import function as legacy_functions  # noqa: E402
from tensorflow.python.framework import graph_to_function_def  # noqa: E402

from tfaot.export.rewrites.random import state as random  # noqa: E402
from tfaot.export.rewrites.random.numbers import STATELESS  # noqa: E402
from tfaot.graph.names import tensor_name  # noqa: E402
from tfaot.graph.prune import prune  # noqa: E402

v1 = tf.compat.v1
raw = tf.raw_ops

Array = npt.NDArray[Any]
Steps = list[list[Array]]
"""The outputs for each step."""

FLOATS = (tf.float32, tf.float64, tf.float16, tf.bfloat16)


@dataclasses.dataclass(frozen=True)
class Model:
    """A graph and its fetches."""

    graph: graph_pb2.GraphDef
    outputs: tuple[str, ...]
    """Names of tensors."""


@contextlib.contextmanager
def control_flow(version: int) -> Iterator[None]:
    """Loops and conditionals that are built inside use this version."""
    was = v1.control_flow_v2_enabled()
    (v1.enable_control_flow_v2 if version == 2 else v1.disable_control_flow_v2)()
    try:
        yield
    finally:
        (v1.enable_control_flow_v2 if was else v1.disable_control_flow_v2)()


def built(make: Callable[[], Any], *, version: int = 2) -> Model:
    """Returns the graph for a nest of tensors."""
    with tf.Graph().as_default() as graph, control_flow(version):
        outputs = [tf.identity(tensor, f"out{i}") for i, tensor in enumerate(tf.nest.flatten(make()))]
    return Model(
        prune(graph.as_graph_def(), [tensor.op.name for tensor in outputs]), tuple(tensor.name for tensor in outputs)
    )


def session(
    model: Model, variable: str, *, seed: int = 7, steps: int = 2, feeds: Mapping[str, Any] | None = None
) -> tuple[Steps, Array]:
    """Runs a rewritten graph in TensorFlow. Also returns the final state."""
    with tf.Graph().as_default() as graph, v1.Session() as running:
        tf.import_graph_def(model.graph, name="")
        handle = graph.get_tensor_by_name(f"{variable}:0")
        running.run(raw.AssignVariableOp(resource=handle, value=random.state_of(seed)))
        results = [running.run(list(model.outputs), feeds) for _ in range(steps)]
        return results, running.run(raw.ReadVariableOp(resource=handle, dtype=tf.int64))


def xla(
    model: Model, variable: str, *, seed: int = 7, steps: int = 2, feeds: Mapping[str, Any] | None = None
) -> tuple[Steps, Array]:
    """Runs a rewritten graph as one XLA computation, including v1 control flow. Also returns the final state."""
    feeds = feeds or {}
    with tf.Graph().as_default() as inner:
        handle = v1.placeholder(tf.resource, [], "handle")
        body = graph_pb2.GraphDef(versions=model.graph.versions, library=model.graph.library)
        body.node.extend(node for node in model.graph.node if node.name != variable)
        tf.import_graph_def(body, name="", input_map={f"{variable}:0": handle})
        arguments = [*(inner.get_tensor_by_name(name) for name in feeds), handle]
        results = [inner.get_tensor_by_name(name) for name in model.outputs]
        given = {tensor.op for tensor in arguments}
        operations = [operation for operation in inner.get_operations() if operation not in given]
        function = graph_to_function_def.graph_to_function_def(inner, operations, arguments, results)
    function.signature.name = "launched"
    library = graph_pb2.GraphDef(versions=model.graph.versions, library=model.graph.library)
    library.library.function.append(function)

    def types(tensors: Sequence[Any]) -> attr_value_pb2.AttrValue:
        values = attr_value_pb2.AttrValue.ListValue(type=[tensor.dtype.as_datatype_enum for tensor in tensors])
        return attr_value_pb2.AttrValue(list=values)

    with tf.Graph().as_default() as graph, v1.Session() as running:
        tf.import_graph_def(library, name="")
        handle = raw.VarHandleOp(dtype=tf.int64, shape=[3], shared_name=variable)
        fed = [v1.placeholder(tensor.dtype, tensor.shape) for tensor in arguments[:-1]]
        launch = graph.create_op(
            "XlaLaunch",
            [*fed, handle],
            [tensor.dtype for tensor in results],
            attrs={
                "Tconstants": types([]),
                "Targs": types(fed),
                "Nresources": attr_value_pb2.AttrValue(i=1),
                "Tresults": types(results),
                "function": attr_value_pb2.AttrValue(func=attr_value_pb2.NameAttrList(name="launched")),
            },
        )
        running.run(raw.AssignVariableOp(resource=handle, value=random.state_of(seed)))
        values = [running.run(list(launch.outputs), dict(zip(fed, feeds.values(), strict=True))) for _ in range(steps)]
        return values, running.run(raw.ReadVariableOp(resource=handle, dtype=tf.int64))


def generator(draw: Callable[[tf.random.Generator], Sequence[Any]], *, seed: int = 7) -> tuple[Steps, Array]:
    """Returns two steps of a Generator's numbers, and its final state."""
    with tf.init_scope():
        made = tf.random.Generator.from_key_counter(key=seed, counter=[0, 0], alg="philox")
        return [[np.asarray(value) for value in draw(made)] for _ in range(2)], made.state.numpy()


def compile_ahead(model: Model, variable: str, feeds: Mapping[str, Any]) -> None:
    """Compiles like the compile stage. tfcompile's error becomes an exception."""
    config = tf2xla_pb2.Config()
    for index, (name, value) in enumerate(feeds.items()):
        feed = config.feed.add(name=f"in{index}", type=tf.as_dtype(np.asarray(value).dtype).as_datatype_enum)
        feed.id.node_name, feed.id.output_index = tensor_name(name)
        feed.shape.CopyFrom(tf.TensorShape(np.shape(value)).as_proto())
    for index, name in enumerate(model.outputs):
        config.fetch.add(name=f"out{index}").id.node_name = tensor_name(name)[0]
    state = config.variable.add(node_name=variable, name="state", type=tf.int64.as_datatype_enum)
    state.shape.dim.add(size=3)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
        for name, message in (("graph", model.graph), ("config", config)):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(message.SerializeToString())
        outputs = ("function_object", "metadata_object", "header", "session_module", "constant_buffers_object")
        _pywrap_tfcompile.Compile(
            graph=os.path.join(folder, "graph"),
            config=os.path.join(folder, "config"),
            target_triple="x86_64-pc-linux",
            target_cpu="x86-64-v3",
            target_features="",
            entry_point="entry",
            cpp_class="Class",
            mlir_components="",
            gen_name_to_index=False,
            gen_program_shape=False,
            **{f"out_{output}": os.path.join(folder, output) for output in outputs},
        )


def inner_loop(rounds: int, start: Any, step: Callable[[Any], Any]) -> Any:
    """Returns a loop with `rounds` iterations."""
    return tf.while_loop(lambda i, _: i < rounds, lambda i, value: (i + 1, step(value)), [0, start])[1]


class RandomTest(unittest.TestCase):
    maxDiff = None

    def rewritten(self, model: Model, *, left: Sequence[random.Left] = ()) -> tuple[Model, str]:
        """Returns a rewritten model and its state variable. The original graph must not change."""
        before = model.graph.SerializeToString(deterministic=True)
        seeded = random.seeded(model.graph)
        self.assertEqual(model.graph.SerializeToString(deterministic=True), before)
        self.assertEqual(seeded.left, tuple(left))
        assert seeded.variable is not None
        return dataclasses.replace(model, graph=seeded.graph), seeded.variable

    def assert_steps(self, got: tuple[Steps, Array], wanted: tuple[Steps, Array], *, within: float = 0.0) -> None:
        """Compares all outputs of all steps, and the states."""
        for step, (outputs, expected) in enumerate(zip(got[0], wanted[0], strict=True)):
            for index, (value, other) in enumerate(zip(outputs, expected, strict=True)):
                self.assertEqual((value.dtype, value.shape), (other.dtype, other.shape))
                difference = np.abs(value.astype(np.float64) - other.astype(np.float64)).max(initial=0.0)
                self.assertLessEqual(difference, within, f"step {step}, output {index}")
        np.testing.assert_array_equal(got[1], wanted[1])

    def check(
        self,
        make: Callable[[], Any],
        draw: Callable[[tf.random.Generator], Sequence[Any]] | None = None,
        *,
        feeds: Mapping[str, Any] | None = None,
        version: int = 2,
        within: float = 0.0,
    ) -> tuple[Steps, Array]:
        """A rewritten graph follows its seed, gives a Generator's numbers, and compiles to code with the same numbers.

        Args:
          make: builds the outputs in a graph.
          draw: draws the same numbers from a Generator, if it can.
          feeds: values for placeholders.
          version: version of control flow.
          within: the tolerance for the Generator's numbers. XLA's must be bit-identical.
        """
        model, variable = self.rewritten(built(make, version=version))
        first = session(model, variable, feeds=feeds)
        self.assert_steps(session(model, variable, feeds=feeds), first)
        self.assertFalse(all(np.array_equal(a, b) for a, b in zip(*first[0], strict=True)), "a step repeats another")
        other, _ = session(model, variable, feeds=feeds, seed=8)
        self.assertFalse(any(np.array_equal(a, b) for a, b in zip(first[0], other, strict=True)))
        self.assert_steps(xla(model, variable, feeds=feeds), first)
        compile_ahead(model, variable, feeds or {})
        if draw is not None:
            self.assert_steps(generator(draw), first, within=within)
        return first

    def test_state(self) -> None:
        """Protects the stream: a seed gives the same initial state as a Generator with this key."""
        for seed in (0, 1, 2**63 - 1, 2**63, 2**64 - 1):
            key = np.array(seed, np.uint64).view(np.int64)
            made = tf.random.Generator.from_key_counter(key=key, counter=[0, 0], alg="philox")
            np.testing.assert_array_equal(random.state_of(seed), made.state.numpy())
            np.testing.assert_array_equal(tf.random.Generator.from_seed(key, alg="philox").state, made.state)
            self.assertEqual(random.state_of(seed).dtype, np.int64)
        for seed in (-1, 2**64):
            with self.assertRaises(OverflowError):
                random.state_of(seed)

    def test_neighbouring_seeds_share_nothing(self) -> None:
        """Protects numbered instances: `Generator.from_seed` gives them one stream, shifted by four numbers."""
        model, variable = self.rewritten(built(lambda: v1.random_uniform([1000], dtype=tf.float64)))
        (one,), (two,) = (session(model, variable, seed=seed, steps=1)[0] for seed in (1, 2))
        self.assertEqual(np.intersect1d(one[0], two[0]).size, 0)

    def test_uniform(self) -> None:
        """Protects dropout and the like: all dtypes give the Generator's own bits, in TensorFlow and XLA."""
        shapes: tuple[list[int], ...] = ([33, 5], [], [1], [0], [2, 0, 3])
        self.check(
            lambda: [tf.cast(v1.random_uniform(shape, -1, 3, d), tf.float64) for d in FLOATS for shape in shapes],
            lambda made: [tf.cast(made.uniform(shape, -1, 3, d), tf.float64) for d in FLOATS for shape in shapes],
        )

    def test_integers(self) -> None:
        """Protects integers in a range, of both dtypes, with shapes of either."""
        self.check(
            lambda: [
                v1.random_uniform([11], -3, 1000, tf.int32),
                v1.random_uniform([2, 3], -3, 2**40, tf.int64),
                v1.random_uniform(tf.constant([5, 7], tf.int64), 0, 2, tf.int32),
            ],
            lambda made: [
                made.uniform([11], -3, 1000, tf.int32),
                made.uniform([2, 3], -3, 2**40, tf.int64),
                made.uniform([5, 7], 0, 2, tf.int32),
            ],
        )

    def test_normal(self) -> None:
        """Protects noise: XLA gives TensorFlow's bits, and both give the Generator's numbers except for its float rounding."""
        narrow = (tf.float32, tf.float16, tf.bfloat16)
        shapes: tuple[list[int], ...] = ([33, 5], [], [1], [0], [2, 2])
        self.check(
            lambda: [tf.cast(v1.random_normal(shape, dtype=d), tf.float32) for d in narrow for shape in shapes],
            lambda made: [tf.cast(made.normal(shape, dtype=d), tf.float32) for d in narrow for shape in shapes],
            within=2.0**-6,  # a unit in the last place of bfloat16 below 4; the next test is stricter
        )

    def test_normal_is_sharp(self) -> None:
        """Protects against a formula that is only approximately TensorFlow's."""
        for dtype, within in ((tf.float32, 4e-6), (tf.float64, 4e-15)):
            model, variable = self.rewritten(built(lambda dtype=dtype: v1.random_normal([99, 99], dtype=dtype)))
            first = session(model, variable)
            self.assert_steps(generator(lambda made, d=dtype: [made.normal([99, 99], dtype=d)]), first, within=within)
            self.assert_steps(xla(model, variable), first, within=0.0 if dtype == tf.float32 else within)

    def test_truncated_normal(self) -> None:
        """Protects initializers: between -2 and 2, correctly distributed, and the same in XLA, unlike TensorFlow's."""
        narrow = (tf.float32, tf.float16, tf.bfloat16)
        steps, _ = self.check(lambda: [tf.cast(v1.truncated_normal([50, 100], dtype=d), tf.float32) for d in narrow])
        for value in itertools.chain(*steps):
            self.assertLessEqual(float(np.abs(value).max()), 2.0)
            self.assertAlmostEqual(float(value.mean()), 0.0, delta=0.06)  # five standard errors
            self.assertAlmostEqual(float(value.std()), 0.8796, delta=0.04)
            self.assertAlmostEqual(float((np.abs(value) < 1).mean()), 0.7152, delta=0.035)
        model, variable = self.rewritten(built(lambda: v1.truncated_normal([500], dtype=tf.float64)))
        self.assert_steps(xla(model, variable), session(model, variable), within=1e-14)

    def test_categorical(self) -> None:
        """Protects sampling: classes appear as often as their logits say, and those without weight never do."""
        logits = np.log(np.array([[1, 2, 3, 0], [0, 0, 0, 1]], np.float64) + 1e-300)
        steps, _ = self.check(
            lambda: [
                tf.random.categorical(tf.constant(np.maximum(logits, -1e30), dtype), 6000, dtype=result)
                for dtype, result in ((tf.float32, tf.int64), (tf.float64, tf.int32))
            ]
        )
        for value in itertools.chain(*steps):
            shares = np.bincount(value[0], minlength=4) / 6000
            np.testing.assert_allclose(shares, [1 / 6, 2 / 6, 3 / 6, 0], atol=0.033)
            self.assertEqual(set(value[1]), {3})

    def test_shuffle(self) -> None:
        """Protects shuffles: rows stay intact, and each order of three is equally frequent."""
        steps, _ = self.check(
            lambda: [tf.random.shuffle(tf.range(500)), tf.random.shuffle(tf.reshape(tf.range(44.0), [11, 2, 2]))]
        )
        for numbers, rows in steps:
            np.testing.assert_array_equal(np.sort(numbers), np.arange(500))
            np.testing.assert_array_equal(rows[np.argsort(rows[:, 0, 0])], np.arange(44.0).reshape(11, 2, 2))
        model, variable = self.rewritten(built(lambda: [tf.random.shuffle(tf.range(3)) for _ in range(600)]))
        (orders,), _ = session(model, variable, steps=1)
        counts = [sum(tuple(order) == wanted for order in orders) for wanted in itertools.permutations(range(3))]
        self.assertTrue(all(55 < count < 145 for count in counts), counts)  # 100 on average, deviation 9

    def test_dropout(self) -> None:
        """Protects the ops that models use: dropout in TensorFlow 1 and 2, and in Keras 2."""
        import tf_keras

        @tf.function(autograph=False)
        def call(x: Any) -> Any:
            return tf.nn.dropout(x, 0.5)

        ones = np.ones([20, 4], np.float32)
        self.check(
            lambda: [
                call(tf.ones([20, 4])),
                v1.nn.dropout(tf.ones([20, 4]), rate=0.5),
                tf_keras.layers.Dropout(0.5)(tf.ones([20, 4]), training=True),
                tf_keras.layers.GaussianNoise(0.5)(tf.ones([20, 4]), training=True),
            ],
            lambda made: [
                *(tf.where(made.uniform([20, 4]) >= 0.5, 2 * ones, 0.0) for _ in range(3)),
                ones + made.normal([20, 4], 0.0, 0.5),
            ],
            within=4e-6,
        )

    def test_calls(self) -> None:
        """Protects functions: each draws where it is called, at any depth, by attribute or by its name."""

        @legacy_functions.Defun(tf.float32)
        def named(x: Any) -> Any:
            return x + v1.random_uniform([3])

        @tf.function(autograph=False)
        def inner(x: Any) -> Any:
            return x + tf.random.uniform([3])

        @tf.function(autograph=False)
        def outer(x: Any) -> Any:
            return inner(x) + tf.random.uniform([3]), inner(2 * x)

        self.check(
            lambda: [named(tf.zeros([3])), outer(tf.zeros([3])), named(tf.ones([3])), tf.random.uniform([2])],
            lambda made: [
                made.uniform([3]),
                made.uniform([3]) + made.uniform([3]),
                made.uniform([3]),
                1 + made.uniform([3]),
                made.uniform([2]),
            ],
        )

    def test_functions_draw_even_if_nothing_needs_the_number(self) -> None:
        """Protects the order: a draw whose number is unused advances the state in TensorFlow as in XLA."""

        @tf.function(autograph=False)
        def idle() -> Any:
            tf.random.uniform([100])
            return tf.constant(1.0)

        self.check(
            lambda: [idle(), tf.random.uniform([2])],
            lambda made: [(made.uniform([100]), tf.constant(1.0))[1], made.uniform([2])],
        )

    def test_loops(self) -> None:
        """Protects loops: each iteration draws again, after the previous one, and what follows draws after all of them."""
        self.check(
            lambda: [inner_loop(3, tf.zeros([5]), lambda x: 2 * x + tf.random.uniform([5])), tf.random.uniform([2])],
            lambda made: [2 * (2 * made.uniform([5]) + made.uniform([5])) + made.uniform([5]), made.uniform([2])],
        )

    def test_rounds_wait_for_each_other(self) -> None:
        """Protects loops in TensorFlow, which starts an iteration before the last one ends: a late draw isn't overtaken."""

        def make() -> Any:
            matrix = v1.placeholder(tf.float32, [300, 300], "matrix")

            def round_(i: Any, early: Any, late: Any) -> Any:
                slow = matrix * tf.cast(i, tf.float32)
                for _ in range(9):
                    slow = slow @ matrix
                size = 3 + tf.cast(slow[0, 0], tf.int32)
                return i + 1, 2 * early + tf.random.uniform([3]), 2 * late + tf.random.uniform([size])[:3]

            return tf.while_loop(lambda i, *_: i < 5, round_, [0, tf.zeros([3]), tf.zeros([3])])[1:]

        def draw(made: Any) -> Any:
            early = late = tf.zeros([3])
            for _ in range(5):
                early, late = 2 * early + made.uniform([3]), 2 * late + made.uniform([3])
            return [early, late]

        model, variable = self.rewritten(built(make))
        feeds = {"matrix:0": np.zeros([300, 300], np.float32)}
        self.assert_steps(session(model, variable, feeds=feeds), generator(draw))

    def test_conditionals(self) -> None:
        """Protects If and Case: only the branch that runs draws, and all branches take the state."""

        def make() -> Any:
            which = v1.placeholder(tf.int32, [], "which")
            return [
                tf.cond(which > 0, lambda: tf.random.uniform([3]), lambda: tf.zeros([3])),
                tf.switch_case(
                    which,
                    [
                        lambda: tf.random.uniform([1, 4])[0],
                        lambda: tf.zeros([4]),
                        lambda: tf.random.uniform([4, 9])[:, 1],
                    ],
                ),
                tf.random.uniform([2]),
            ]

        taken: list[Callable[[Any], Any]] = [
            lambda made: [np.zeros(3, np.float32), made.uniform([1, 4])[0]],
            lambda made: [made.uniform([3]), np.zeros(4, np.float32)],
            lambda made: [made.uniform([3]), made.uniform([4, 9])[:, 1]],
        ]
        for which, draw in enumerate(taken):
            with self.subTest(which=which):
                self.check(
                    make, lambda made, draw=draw: [*draw(made), made.uniform([2])], feeds={"which:0": np.int32(which)}
                )

    def test_nests(self) -> None:
        """Protects nested combinations: functions in branches in loops in branches."""

        @tf.function(autograph=False)
        def drop(x: Any) -> Any:
            return tf.nn.dropout(x, 0.5)

        def round_(i: Any, x: Any) -> Any:
            even = tf.equal(i % 2, 0)
            return i + 1, tf.cond(even, lambda: drop(x) + tf.random.uniform([5]), lambda: 1 + drop(x))

        def make() -> Any:
            go = v1.placeholder(tf.bool, [], "go")
            loop = tf.cond(
                go, lambda: tf.while_loop(lambda i, x: i < 4, round_, [0, tf.ones([5])])[1], lambda: tf.zeros([5])
            )
            return [loop, drop(tf.ones([9]))]

        def draw(made: Any) -> Any:
            x = tf.ones([5])
            for i in range(4):
                x = tf.where(made.uniform([5]) >= 0.5, 2 * x, 0.0)
                x = 1 + x if i % 2 else x + made.uniform([5])
            return [x, tf.where(made.uniform([9]) >= 0.5, 2 * tf.ones([9]), 0.0)]

        self.check(make, draw, feeds={"go:0": np.bool_(True)})

    def test_conditionals_of_tensorflow_1(self) -> None:
        """Protects old graphs, with dropout inside a Switch: each branch, nested or not, draws its own numbers."""

        def make() -> Any:
            go, x = v1.placeholder(tf.bool, [], "go"), v1.placeholder(tf.float32, [4], "x")
            return [
                v1.cond(go, lambda: v1.nn.dropout(x, rate=0.5), lambda: x),
                v1.cond(
                    go,
                    lambda: v1.random_uniform([2]),
                    lambda: v1.cond(x[0] > 0, lambda: v1.random_normal([5])[:2], lambda: x[:2]),
                ),
                v1.random_uniform([4]),
            ]

        for go, sign in itertools.product((True, False), (1, -1)):
            with self.subTest(go=go, sign=sign):
                x = sign * np.arange(1, 5, dtype=np.float32)
                steps, _ = self.check(make, feeds={"go:0": np.bool_(go), "x:0": x}, version=1)
                for dropped, pair, _ in steps:
                    self.assertTrue(np.isin(dropped, [0, *(2 * x if go else x)]).all())
                    self.assertEqual(np.array_equal(pair, x[:2]), not go and sign < 0)

    def test_loops_of_tensorflow_1(self) -> None:
        """Protects against garbage: a draw in a v1 loop is left alone and reported, and those around it follow the seed."""
        model = built(
            lambda: [
                v1.random_uniform([2]),
                inner_loop(3, tf.zeros([5]), lambda x: x + v1.random_uniform([5])),
                inner_loop(3, tf.zeros([5]), lambda x: x + tf.random.stateless_uniform([5], [1, 2])),
            ],
            version=1,
        )
        left = random.Left("while/random_uniform/RandomUniform", "RandomUniform", "it is in a TensorFlow 1 while loop")
        model, variable = self.rewritten(model, left=[left])
        compile_ahead(model, variable, {})
        (ours, _, fixed), (_, _, again) = session(model, variable)[0]
        np.testing.assert_array_equal(ours, generator(lambda made: [made.uniform([2])])[0][0][0])
        np.testing.assert_array_equal(fixed, 3 * tf.random.stateless_uniform([5], [1, 2]))
        np.testing.assert_array_equal(fixed, again)

    def test_conditions_of_loops(self) -> None:
        """Protects compilation: XLA allows no effects in a condition, so a draw there is left alone, but not the body's."""

        def make() -> Any:
            _, x = tf.while_loop(
                lambda i, x: tf.logical_or(i < 3, tf.random.uniform([]) > 2),
                lambda i, x: (i + 1, x + tf.random.uniform([5])),
                [0, tf.zeros([5])],
            )
            return x

        model = built(make)
        (name,) = (f.signature.name for f in model.graph.library.function if "cond" in f.signature.name)
        left = random.Left(f"{name}/random_uniform/RandomUniform", "RandomUniform", "it is in a while loop's condition")
        model, variable = self.rewritten(model, left=[left])
        compile_ahead(model, variable, {})
        expected = generator(lambda made: [made.uniform([5]) + made.uniform([5]) + made.uniform([5])])
        self.assert_steps(session(model, variable), expected)

    def test_functions_of_other_ops(self) -> None:
        """Protects graphs with ops that pass on no argument: their function stays as it is, next to a seeded one."""

        @legacy_functions.Defun(tf.float32)
        def noisy(x: Any) -> Any:
            return x * v1.random_uniform([3])

        def make() -> Any:
            x = tf.ones([3])
            y = noisy(x)
            gradient = raw.SymbolicGradient(input=[x, x], Tout=[tf.float32], f=noisy)
            return [y, gradient]

        model = built(make)
        (function,) = model.graph.library.function
        name = function.signature.name
        (site,) = (node.name for node in function.node_def if node.op == "RandomUniform")
        left = random.Left(f"{name}/{site}", "RandomUniform", "SymbolicGradient calls its function")
        changed, variable = self.rewritten(model, left=[left])
        self.assertEqual([f.signature.name for f in changed.graph.library.function], [name, f"{name}_random"])
        self.assertEqual(changed.graph.library.function[0], function)
        steps, _ = session(changed, variable)
        np.testing.assert_array_equal(steps[0][0], generator(lambda made: [made.uniform([3])])[0][0][0])

    def test_what_has_no_common_form_is_left(self) -> None:
        """Protects against a silent fixed state: an op that XLA compiles and that isn't rewritten is reported."""
        model = built(
            lambda: raw.ParameterizedTruncatedNormal(
                shape=[4], means=0.0, stdevs=1.0, minvals=-1.0, maxvals=1.0, name="odd"
            )
        )
        seeded = random.seeded(model.graph)
        self.assertEqual((seeded.graph, seeded.variable), (model.graph, None))
        self.assertEqual(
            str(random.refusal("model.py", seeded.left, {"odd": "model.py:3"})),
            "model.py: 1 random op(s) can't use the model's seed\n"
            "  found: ParameterizedTruncatedNormal model.py:3 (TensorFlow and XLA have no common way to draw it)\n"
            "  to do: draw in the loop's body and not in its condition, build loops with "
            "tf.compat.v1.enable_control_flow_v2(), or draw with tf.random.stateless_uniform and similar functions, which take"
            " their seed as an input",
        )

    def test_stateless_ops(self) -> None:
        """Protects TensorFlow's numbers for every seed: XLA uses its low 32 bits only, and makes other floats from it."""

        def draws(seed: Any) -> Any:
            return [
                *(tf.cast(tf.random.stateless_uniform([33], seed, dtype=d), tf.float64) for d in FLOATS),
                tf.nn.experimental.stateless_dropout(tf.ones([33]), 0.5, seed),
                raw.StatelessRandomUniform(shape=[33], seed=seed),
                tf.random.stateless_uniform([33], seed, maxval=9, dtype=tf.int32),
                raw.StatelessRandomUniformInt(shape=[33], seed=seed, minval=-5, maxval=1000),
                raw.StatelessRandomUniformFullInt(shape=[33], seed=seed, dtype=tf.int64),
                *raw.StatelessRandomGetKeyCounter(seed=seed),
                *raw.StatelessRandomGetKeyCounterAlg(seed=seed),
                tf.random.fold_in(seed, 3),
                tf.random.split(seed),
                tf.random.stateless_normal([33], seed),
                raw.StatelessRandomNormal(shape=[33], seed=seed),
                tf.random.stateless_truncated_normal([33], seed),
                tf.random.stateless_categorical([[0.0, 1.0, 2.0]], 33, seed),
            ]

        firsts = []
        for dtype, seeds in (
            (tf.int32, [[1, 2], [5, -7], [-(2**31), 2**31 - 1]]),
            (tf.int64, [[7, 0], [2**40 + 7, 0], [-(2**63), -3]]),
        ):
            model = built(lambda d=dtype: [*draws(v1.placeholder(d, [2], "seed")), tf.random.uniform([1])])
            model, variable = self.rewritten(model)
            compile_ahead(model, variable, {"seed:0": np.zeros(2, dtype.as_numpy_dtype)})
            for seed in seeds:
                with self.subTest(seed=seed):
                    feeds = {"seed:0": np.array(seed, dtype.as_numpy_dtype)}
                    ours = session(model, variable, feeds=feeds)
                    self.assert_steps(xla(model, variable, feeds=feeds), ours)
                    theirs = [np.asarray(value) for value in draws(tf.constant(seed, dtype))]
                    for value, other in zip(ours[0][0][:-5], theirs[:-4], strict=True):
                        np.testing.assert_array_equal(value, other)
                    for value, other in zip(ours[0][0][-5:-3], theirs[-4:-2], strict=True):
                        np.testing.assert_allclose(value, other, rtol=0, atol=4e-6)
                    firsts.append([*ours[0][0][0]])
        self.assertEqual([firsts.count(first) for first in firsts], [1] * 6)

    def test_stateless_ops_in_functions(self) -> None:
        """Protects functions that need no state: they are fixed in place, and take no additional argument."""

        @tf.function(autograph=False)
        def fixed(x: Any) -> Any:
            key, counter = raw.StatelessRandomGetKeyCounter(seed=[-1, 2])
            return x * tf.random.stateless_uniform([3], [1, -2]) * tf.cast(key, tf.float32), counter

        model = built(lambda: fixed(tf.ones([3])))
        seeded = random.seeded(model.graph)
        self.assertIsNone(seeded.variable)
        (function,) = seeded.graph.library.function
        self.assertEqual(function.signature, model.graph.library.function[0].signature)
        self.assertEqual({node.op for node in function.node_def} & STATELESS, set())
        with tf.Graph().as_default(), v1.Session() as running:
            tf.import_graph_def(seeded.graph, name="")
            ours = running.run(list(model.outputs))
        for value, other in zip(ours, fixed(tf.ones([3])), strict=True):
            np.testing.assert_array_equal(value, other)

    def test_defaults_may_be_left_out(self) -> None:
        """Protects SavedModels that omit attributes with their op's default."""
        model = built(
            lambda: [
                tf.random.categorical([[0.0, 1.0, 2.0]], 20),
                raw.StatelessRandomNormal(shape=[5], seed=tf.constant([1, 2], tf.int64)),
                raw.StatelessMultinomial(logits=[[0.0, 1.0]], num_samples=9, seed=tf.constant([1, 2], tf.int64)),
            ]
        )
        whole, variable = self.rewritten(model)
        defaults = {
            "Multinomial": ["output_dtype"],
            "StatelessMultinomial": ["output_dtype", "Tseed"],
            "StatelessRandomNormal": ["dtype", "T", "Tseed"],
        }
        for node in model.graph.node:
            for key in defaults.get(node.op, ()):
                del node.attr[key]
        stripped, _ = self.rewritten(model)
        self.assertEqual(stripped.graph, whole.graph)
        compile_ahead(stripped, variable, {})

    def test_runs_are_not_chained(self) -> None:
        """Protects entry points: one that draws doesn't run another one's effects, or need its inputs."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [3], "x")
            tf.identity(v1.nn.dropout(x, rate=0.5), "train")
            tf.identity(v1.random_uniform([3]), "sample")
            tf.identity(v1.random_uniform([3]), "sample_too")
        runs = [["train"], ["sample", "sample_too"]]
        seeded = random.seeded(graph.as_graph_def(), runs)
        assert seeded.variable is not None
        kept = prune(seeded.graph, runs[1])
        self.assertNotIn("x", {node.name for node in kept.node})
        model = Model(kept, ("sample:0", "sample_too:0"))
        self.assert_steps(
            session(model, seeded.variable), generator(lambda made: [made.uniform([3]), made.uniform([3])])
        )
        with self.assertRaisesRegex(ValueError, "draws for two runs"):
            random.seeded(graph.as_graph_def(), [["train"], ["train", "sample"]])

    def test_name_of_the_variable(self) -> None:
        """Protects a model's own variable with the same name as the state: neither changes."""
        model = built(
            lambda: [
                v1.random_uniform([2]),
                raw.VarIsInitializedOp(
                    resource=raw.VarHandleOp(dtype=tf.float32, shape=[], shared_name=random.VARIABLE)
                ),
            ]
        )
        _, variable = self.rewritten(model)
        self.assertEqual(variable, "tfaot/random_state_1")

    def test_what_draws_nothing_keeps_its_bytes(self) -> None:
        """Protects caches and readers: graphs, functions, and nodes without random ops don't change."""

        @tf.function(autograph=False)
        def pure(x: Any) -> Any:
            return tf.cond(x[0] > 0, lambda: x, lambda: -x)

        @tf.function(autograph=False)
        def noisy(x: Any) -> Any:
            return x + tf.random.uniform([2])

        quiet = built(lambda: pure(tf.ones([2])))
        seeded = random.seeded(quiet.graph)
        self.assertEqual((seeded.graph, seeded.variable, seeded.left), (quiet.graph, None, ()))

        model = built(lambda: [pure(tf.ones([2])), noisy(tf.ones([2]))])
        unreached = model.graph.library.function.add()
        unreached.signature.name = "unreached"
        unreached.node_def.add(name="draw", op="RandomUniform", input=["shape"])
        before = {f.signature.name: f for f in model.graph.library.function}
        changed, _ = self.rewritten(model)
        after = {f.signature.name: f for f in changed.graph.library.function}
        self.assertEqual(list(after), list(before))
        self.assertEqual([name for name in after if after[name] != before[name] and "noisy" not in name], [])
        nodes = {node.name: node for node in changed.graph.node}
        calls = [n.name for n in model.graph.node if "f" in n.attr and "noisy" in n.attr["f"].func.name]
        self.assertEqual([n.name for n in model.graph.node if nodes[n.name] != n], calls)

    def test_result_is_not_rewritten_again(self) -> None:
        """Protects callers that rewrite twice: the second time changes nothing."""
        model, _ = self.rewritten(built(lambda: v1.random_normal([3])))
        again = random.seeded(model.graph)
        self.assertEqual((again.graph, again.variable), (model.graph, None))

    def test_siblings(self) -> None:
        """Protects branches that draw nothing: they take the state too, unless they are also called without it."""
        text = """
            node { name: "p" op: "Placeholder" attr { key: "dtype" value { type: DT_BOOL } } }
            node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
                   attr { key: "shape" value { shape { } } } }
            node { name: "if" op: "StatelessIf" input: "p" input: "x" input: "^again"
                   attr { key: "then_branch" value { func { name: "draws" } } }
                   attr { key: "else_branch" value { func { name: "same" } } }
                   attr { key: "Tcond" value { type: DT_BOOL } }
                   attr { key: "Tin" value { list { type: DT_FLOAT } } }
                   attr { key: "Tout" value { list { type: DT_FLOAT } } } }
            node { name: "again" op: "PartitionedCall" input: "x"
                   attr { key: "f" value { func { name: "same" } } }
                   attr { key: "Tin" value { list { type: DT_FLOAT } } }
                   attr { key: "Tout" value { list { type: DT_FLOAT } } } }
            library { function {
              signature { name: "draws" input_arg { name: "a" type: DT_FLOAT } output_arg { name: "b" type: DT_FLOAT } }
              node_def { name: "shape" op: "Const" attr { key: "dtype" value { type: DT_INT32 } }
                         attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { dim { size: 0 } } } } } }
              node_def { name: "u" op: "RandomUniform" input: "shape:output:0"
                         attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "T" value { type: DT_INT32 } } }
              node_def { name: "sum" op: "AddV2" input: "a" input: "u:output:0"
                         attr { key: "T" value { type: DT_FLOAT } } }
              ret { key: "b" value: "sum:z:0" } } }
            library { function {
              signature { name: "same" input_arg { name: "a" type: DT_FLOAT } output_arg { name: "b" type: DT_FLOAT } }
              ret { key: "b" value: "a" } } }"""
        graph = graph_pb2.GraphDef()
        for part in text.split("library {"):
            text_format.Merge(part if part.lstrip().startswith("node") else "library {" + part, graph)
        model, variable = self.rewritten(Model(graph, ("if:0", "again:0")))
        self.assertEqual([f.signature.name for f in model.graph.library.function], ["draws", "same", "same_random"])
        (call,) = (node for node in model.graph.node if node.name == "if")
        self.assertEqual(call.op, "If")
        self.assertEqual(list(call.input), ["p", "x", variable, "^again"])
        feeds = {"p:0": np.bool_(True), "x:0": np.float32(2)}
        expected = generator(lambda made: [2 + made.uniform([]), np.float32(2)])
        self.assert_steps(session(model, variable, feeds=feeds), expected)
        self.assert_steps(xla(model, variable, feeds=feeds), expected)
        (_, untouched) = session(model, variable, feeds={"p:0": np.bool_(False), "x:0": np.float32(2)})
        np.testing.assert_array_equal(untouched, random.state_of(7))

    def test_order_is_that_of_the_nodes(self) -> None:
        """Protects the stream from how a graph is written: draws run in the order of nodes, or later if they must."""
        graph = graph_pb2.GraphDef()

        def node(name: str, op: str, *inputs: str) -> node_def_pb2.NodeDef:
            made: node_def_pb2.NodeDef = graph.node.add(name=name, op=op, input=inputs)
            return made

        for name, *after in (("a", "^c"), ("b",), ("c",)):
            draw = node(name, "RandomUniform", "shape", *after)
            draw.attr["dtype"].type, draw.attr["T"].type = tf.float32.as_datatype_enum, tf.int32.as_datatype_enum
        shape = node("shape", "Const")
        shape.attr["dtype"].type = tf.int32.as_datatype_enum
        shape.attr["value"].tensor.CopyFrom(tf.make_tensor_proto([3]))
        model, variable = self.rewritten(Model(graph, ("c:0", "a:0", "b:0")))
        expected = generator(lambda made: [made.uniform([3]) for _ in range(3)])
        self.assert_steps(session(model, variable), expected)

    def test_large_graphs(self) -> None:
        """Protects graphs with hundreds of thousands of nodes: a long chain is neither recursive nor quadratic."""
        graph = graph_pb2.GraphDef()
        graph.node.add(name="n0", op="Placeholder")
        for index in range(1, 30_000):
            graph.node.add(name=f"n{index}", op="Identity", input=[f"n{index - 1}"])
        for index in range(3_000):
            draw = graph.node.add(name=f"d{index}", op="RandomUniform", input=["n29999"])
            draw.attr["dtype"].type, draw.attr["T"].type = tf.float32.as_datatype_enum, tf.int32.as_datatype_enum
        seeded = random.seeded(graph)
        chained = sum(any(name.startswith("^") for name in node.input) for node in seeded.graph.node)
        self.assertEqual(chained, 2_999)


if __name__ == "__main__":
    unittest.main()
