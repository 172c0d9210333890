"""What a function returns, writes, and captures, as a self-contained graph."""

from __future__ import annotations

import itertools
import unittest
from typing import Any

import numpy as np

from tests.export.sources.eager import EagerTest
from tests.stages.harness import Exported

HEAD = """\
import collections

import numpy as np
import tensorflow as tf

Spec = tf.TensorSpec


"""


def outputs_of(exported: Exported) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
    """Returns each entry point's outputs: C++ name and shape."""
    return {
        entry.name: [(tensor.cpp_name, tensor.shape) for tensor in entry.outputs]
        for entry in exported.manifest.entry_points
    }


def points(*names: str) -> tuple[tuple[str, str], ...]:
    """Returns entry points for functions in the file, numbered in C++ so that output names are short."""
    return tuple((f"f{index}", name) for index, name in enumerate(names))


class OutputsTest(EagerTest):
    """What functions return."""

    def test_nests(self) -> None:
        """Protects every nest that can be returned: names come from keys and fields, or positions if there are neither."""
        exported = self.agree(
            HEAD
            + """\
Pair = collections.namedtuple("Pair", "q p")


def lone(x):
    return x + 1


def row(x):
    return x + 1, [x - 1, {"deep": x}]


def record(x):
    return Pair({"in": x, "none": None}, x * 2)


def keys(x):
    return {"b": x, "a/1": x + 1}


def numbers(x):
    return {1: x, 0: 3, 2: [x > 0, None]}
""",
            entry_points=points("lone", "row", "record", "keys", "numbers"),
            eager=lambda module, name, inputs: (
                {1: inputs[0], 0: np.int32(3), 2: inputs[0] > 0}
                if name == "numbers"
                else getattr(module, name)(*inputs)
            ),
            signature={"x": "float32[2]"},
        )
        self.assertEqual(
            outputs_of(exported),
            {
                "f0": [("f0_output", (2,))],
                "f1": [("f1_output_0", (2,)), ("f1_output_1_0", (2,)), ("f1_output_1_1_deep", (2,))],
                "f2": [("f2_q_in", (2,)), ("f2_p", (2,))],
                "f3": [("f3_a_1", (2,)), ("f3_b", (2,))],
                "f4": [("f4_output_0", ()), ("f4_output_1", (2,)), ("f4_output_2_0", (2,))],
            },
        )

    def test_tensors_of_all_kinds(self) -> None:
        """Protects outputs that are inputs, variables, constants, or duplicates: each is a separate result."""
        exported = self.agree(
            HEAD
            + """\
w = tf.Variable([5.0, 6.0], name="w")


def twice(x):
    y = x * 2
    return {"first": y, "second": y, "third": tf.identity(y)}


def given(x):
    return x, x


def held(x):
    w.assign_add(x)
    return w, w.read_value()


def constant(x):
    return {"c": tf.constant([1, 2]), "empty": tf.zeros([0, 3]), "s": tf.constant(True)}
""",
            entry_points=points("twice", "given", "held", "constant"),
            golden_steps=2,
            signature={"x": "float32[2]"},
        )
        self.assertEqual([len(outputs) for outputs in outputs_of(exported).values()], [3, 2, 2, 3])
        names = [output.name for entry in exported.manifest.entry_points for output in entry.outputs]
        self.assertEqual(len(set(names)), len(names))


class WritesTest(EagerTest):
    """What functions do in addition to returning values."""

    def test_function_that_only_writes(self) -> None:
        """Protects functions that return nothing: the fetch says when they are done."""
        exported = self.agree(
            HEAD + "w = tf.Variable([5.0, 6.0], name='w')\n\n\ndef model(x):\n    w.assign(x * w)\n",
            golden_steps=2,
            signature={"x": "float32[2]"},
        )
        self.assertEqual(outputs_of(exported), {"Run": [("done", ())]})
        self.assertEqual(exported.written, {"w": True})

    def test_writes_beside_the_outputs(self) -> None:
        """Protects writes that no output depends on: direct, in either branch of a cond, in a loop, and in a call."""
        exported = self.agree(
            HEAD
            + """\
a, b, c, d, e, f = (tf.Variable(0.0, name=name) for name in "abcdef")


@tf.function
def called(x):
    e.assign_sub(x)
    return x


def by_hand(x):
    a.assign_add(x)
    tf.cond(x > 0, lambda: b.assign_add(1.0), lambda: b.assign_sub(2.0))
    tf.while_loop(lambda i: i < 3, lambda i: (c.assign_add(x), i + 1)[1:], [0])
    called(x)
    return x * 2


def by_autograph(x):
    d.assign_add(x)
    if x > 0:
        f.assign_add(1.0)
    i = 0
    while i < 3:
        f.assign_add(x)
        i += 1
    return x * 2
""",
            entry_points=points("by_hand", "by_autograph"),
            golden_steps=4,
            signature={"x": "float32"},
        )
        self.assertEqual(exported.written, dict.fromkeys("abcdef", True))
        signs = {bool(value > 0) for name, value in exported.golden_inputs.items() if name.endswith("f0_x")}
        self.assertEqual(signs, {True, False}, "one branch is never taken")

    def test_optimizer(self) -> None:
        """Protects training without a Keras model: an optimizer creates its slots while the function is traced."""
        exported = self.agree(
            HEAD
            + """\
w = tf.Variable([1.0, 2.0], name="w")
optimizer = tf.keras.optimizers.Adam()


@tf.function(input_signature=[Spec([2])])
def model(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((w * x - 1) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, [w]), [w]))
    return loss
""",
            golden_steps=3,
            near=1e-4,
        )
        self.assertEqual(
            exported.written,
            {
                "w": True,
                "adam/learning_rate": False,
                "adam/iteration": True,
                "adam/w_0_momentum": True,
                "adam/w_0_velocity": True,
            },
        )

    def test_calls_that_ask_for_xla(self) -> None:
        """Protects goldens: expected values come from TensorFlow's own kernels, even with jit_compile."""
        exported = self.agree(
            HEAD
            + """\
w = tf.Variable([1.0, 2.0], name="w")


@tf.function(jit_compile=True)
def called(x):
    w.assign_add(x)
    return tf.sin(x) * w


@tf.function(jit_compile=True)
def model(x):
    return called(x) + 1
""",
            golden_steps=2,
            signature={"x": "float32[2]"},
        )
        with open(exported.path("graph"), "rb") as file:
            self.assertNotIn(b"_XlaMustCompile", file.read())

    def test_assertions(self) -> None:
        """Protects models with assertions: the compiler drops them, and whatever waits for them still runs."""
        self.agree(
            HEAD
            + """\
def model(x):
    tf.debugging.assert_greater(x, -100.0, message="too small")
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(x > -100.0), [x, "text"])]):
        return tf.debugging.check_numerics(x * 2, "finite")
""",
            signature={"x": "float32[2]"},
        )


class VariablesTest(EagerTest):
    """Which variables functions use, and their names."""

    LAZY = (
        HEAD
        + """\
class Model(tf.Module):
    parts = None

    def get(self):
        if self.parts is None:
            self.parts = [tf.Variable(tf.random.normal([2]), name="w"), tf.Variable([1.0, 2.0], name="w")]
        return self.parts

    @tf.function(input_signature=[Spec([2])])
    def forward(self, x):
        first, second = self.get()
        return x * first + second

    @tf.function(input_signature=[Spec([2])])
    def train(self, x):
        self.get()[1].assign_add(x)
        return x


model = Model()
"""
    )

    def test_created_while_traced(self) -> None:
        """Protects variables that the first traced function creates: all functions share them, in either order."""
        for order in itertools.permutations((("Forward", "forward"), ("Train", "train"))):
            with self.subTest(order):
                exported = self.agree(self.LAZY, compiled=False, entry_points=order, golden_steps=2)
                self.assertEqual(exported.written, {"parts/0": False, "parts/1": True})

    def names(self, model: str, **attributes: Any) -> set[str]:
        """Returns the variables' names in a model that agrees with the user's code."""
        exported = self.agree(HEAD + model, compiled=False, signature={"x": "float32"}, **attributes)
        manifest = exported.manifest
        return {variable.name for variable in (*manifest.variables, *manifest.frozen)}

    def test_names_of_their_own(self) -> None:
        """Protects the simple case: variables with different names keep them."""
        self.assertEqual(
            self.names(
                "a = tf.Variable(2.0, name='kernel')\nb = tf.Variable(3.0)\n\n\ndef model(x):\n    return x * a + b\n"
            ),
            {"kernel", "Variable"},
        )

    def test_names_of_a_module(self) -> None:
        """Protects variables that share a name: their locations tell them apart, including in lists and dicts of any kind."""
        self.assertEqual(
            self.names(
                """\
class Layer(tf.Module):
    def __init__(self, first):
        self.w = tf.Variable(first, name="w")
        self.more = [tf.Variable(3.0, name="w")]
        self.more.insert(0, tf.Variable(4.0, name="w"))  # which a checkpoint refuses
        self.by_number = {1: tf.Variable(5.0, name="w"), 2: (tf.Variable(6.0, name="other"),)}


class Model(tf.Module):
    def __init__(self):
        self.one = Layer(1.0)
        self.two = Layer(2.0)
        self.shared = self.one.w

    def __call__(self, x):
        for layer in (self.one, self.two):
            x = x * layer.w + layer.more[0] * layer.more[1] - layer.by_number[1] * layer.by_number[2][0]
        return x + self.shared


model = Model()
"""
            ),
            {
                "shared",
                "two/w",
                "one/more/0",
                "one/more/1",
                "two/more/0",
                "two/more/1",
                "one/by_number/1",
                "two/by_number/1",
                "one/by_number/2/0",
                "two/by_number/2/0",
            },
        )

    def test_names_of_the_file(self) -> None:
        """Protects variables with the same name in globals, lists in the file, objects of its classes, or closures."""
        self.assertEqual(
            self.names(
                """\
a, b = tf.Variable(2.0), tf.Variable(3.0)
rest = [tf.Variable(4.0), tf.Variable(5.0)]


class Holder:
    def __init__(self):
        self.inside = tf.Variable(6.0)


holder = Holder()


def model():
    local, empty = tf.Variable(7.0), None

    def run(x):
        return x * a + b * rest[0] * rest[1] + holder.inside * local + (0.0 if empty is None else empty)

    return run
"""
            ),
            {"a", "b", "rest/0", "rest/1", "holder/inside", "local"},
        )

    def test_names_without_a_place(self) -> None:
        """Protects variables with the same name in a location without a name: they get numbers."""
        self.assertEqual(
            self.names(
                """\
import types

hidden = types.SimpleNamespace(first=tf.Variable(2.0), second=tf.Variable(3.0))


def model(x):
    return x * hidden.first + hidden.second
"""
            ),
            {"Variable", "Variable_1"},
        )

    def test_names_while_created(self) -> None:
        """Protects variables that a plain function creates on its first call."""
        self.assertEqual(
            self.names(
                """\
created = []


@tf.function
def model(x):
    if not created:
        created.append((tf.Variable(2.0), tf.Variable(3.0)))
    first, second = created[0]
    return x * first + second
"""
            ),
            {"created/0/0", "created/0/1"},
        )

    def test_handle_alone(self) -> None:
        """Protects ops that take a variable's handle when TensorFlow doesn't record whose it is."""
        exported = self.agree(
            HEAD
            + """\
v = tf.Variable([1.0, 2.0], name="v")
handle = v.handle


def model(x):
    tf.raw_ops.AssignAddVariableOp(resource=handle, value=x)
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
""",
            golden_steps=2,
            signature={"x": "float32[2]"},
        )
        self.assertEqual(exported.written, {"v": True})


class CapturesTest(EagerTest):
    """Captures other than variables."""

    def test_constants(self) -> None:
        """Protects captured tensors: large, empty, scalar, and of dtypes that NumPy lacks."""
        exported = self.agree(
            HEAD
            + """\
large = tf.constant(np.arange(4_000_000, dtype=np.float32))
half = tf.cast(tf.constant([1.5, 2.5]), tf.bfloat16)
empty = tf.zeros([0, 3])
flag = tf.constant(True)
number = tf.constant(3 + 4j)


def model(i):
    return tf.gather(large, i), tf.cast(half, tf.float32) * 2, empty, flag, tf.math.imag(number)
""",
            signature={"i": "int32[2]"},
        )
        self.assertEqual(exported.manifest.variables, ())
        self.assertLess(16_000_000, len((exported.folder / "graph").read_bytes()))

    def test_strings(self) -> None:
        """Strings can't be computed. Each op is named with its line."""
        for body, op, advice in (
            (
                "tf.strings.length(tf.strings.as_string(y))",
                "AsString",
                "handle strings where you prepare the inputs, and feed numbers",
            ),
            ("(tf.print(y), None)[1]", "StringFormat", "remove tf.print, or return the value as an output"),
        ):
            model = f"{HEAD}def model(y):\n    x = {body}\n    return y if x is None else x\n"
            self.assert_error(
                self.error_of(lambda model=model: self.compile(self.export(model, signature={"y": "float32"}))),
                f"""
                t::Model: XLA can't compile {op}

                    {op} '{op}' at model.py:10

                  found: it computes on strings
                  to do: {advice}; the check lists all that doesn't compile, and \
tf_aot_clusters compiles the rest (docs/guide/diagnostics.md)
                """,
            )


if __name__ == "__main__":
    unittest.main()
