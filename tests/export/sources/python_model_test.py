"""Models as Python files: what the file can define, what its entry points take, and their names."""

from __future__ import annotations

import unittest
from collections.abc import Sequence
from typing import Any

from tests.export.sources.eager import EagerTest
from tests.stages.harness import Exported

HEAD = """\
import collections
import dataclasses

import numpy as np
import tensorflow as tf

Spec = tf.TensorSpec


"""

NESTS = (
    HEAD
    + """\
Pair = collections.namedtuple("Pair", "u t")


@dataclasses.dataclass
class Plain:
    u: object
    t: object


@dataclasses.dataclass
class Flat:
    u: object
    t: object

    def __tf_flatten__(self):
        return (), (self.t, self.u)

    @classmethod
    def __tf_unflatten__(cls, metadata, components):
        return cls(components[1], components[0])


def dicts(features):
    return features["b"]["x"] + features["a"], features["b"]["y"]


def tuples(y, x):
    return x[0] * 2, [x[1], y]


def named(pair):
    return pair.t, pair.u + 1


def plain(first, second):
    if first.t[0] > 100:  # goes through AutoGraph
        return first.u["in"], first.t
    return first.u["in"] + second, first.t


def flat(it):
    return it.u, it.t * 2


@tf.function(input_signature=[{"a": Spec([None]), "b": Spec([None, 3])}])
def signed(nest):
    return nest["a"] + 1, nest["b"]


def input_fn(entry_point):
    return {
        "dicts": {"b": {"y": Spec([2]), "x": np.zeros(3, np.float32)}, "a": Spec([1])},
        "tuples": (Spec([2]), (Spec([3]), Spec([1], tf.int32))),
        "named": Pair(Spec([2]), Spec([3])),
        "plain": (Plain({"in": Spec([2])}, Spec([3])), Spec([2])),
        "flat": Flat(Spec([2]), Spec([3])),
    }[entry_point]
"""
)


def call_nests(module: Any, entry_point: str, inputs: Sequence[Any]) -> Any:
    """Calls a function of `NESTS`."""
    arguments: dict[str, Any] = {
        "dicts": lambda a, x, y: [{"a": a, "b": {"x": x, "y": y}}],
        "tuples": lambda y, x0, x1: [y, (x0, x1)],
        "named": lambda u, t: [module.Pair(u, t)],
        "plain": lambda u, t, second: [module.Plain({"in": u}, t), second],
        "flat": lambda t, u: [module.Flat(u, t)],
        "signed": lambda a, b: [{"a": a, "b": b}],
    }
    return getattr(module, entry_point)(*arguments[entry_point](*inputs))


def same(*names: str) -> tuple[tuple[str, str], ...]:
    """Returns entry points that have the same name in C++ as in the file."""
    return tuple((name, name) for name in names)


def inputs_of(exported: Exported) -> dict[str, list[tuple[str, str, tuple[int, ...]]]]:
    """Returns what each entry point takes: C++ name, dtype, and shape."""
    return {
        entry.name: [(tensor.cpp_name, tensor.dtype, tensor.shape) for tensor in entry.inputs]
        for entry in exported.manifest.entry_points
    }


class WhatItTakesTest(EagerTest):
    """Inputs of Python functions."""

    def test_signature(self) -> None:
        """Protects a plain function: the target specifies what it takes, in the function's order, and defaults stay."""
        exported = self.agree(
            HEAD + "def model(b, a, scale=2.0):\n    return a * scale, tf.reduce_sum(b)\n",
            signature={"a": "float32[3]", "b": "int32[2, 2]"},
        )
        self.assertEqual(inputs_of(exported), {"Run": [("b", "int32", (2, 2)), ("a", "float32", (3,))]})

    def test_nests(self) -> None:
        """Protects nests of inputs: dicts, tuples, named tuples, dataclasses. Each leaf is named after its location."""
        exported = self.agree(
            NESTS,
            eager=call_nests,
            entry_points=same("dicts", "tuples", "named", "plain", "flat", "signed"),
            signature={"b": "float32[2, 3]"},
            dims={"a": (1,)},
        )
        self.assertEqual(
            inputs_of(exported),
            {
                "dicts": [("dicts_a", "float32", (1,)), ("dicts_b_x", "float32", (3,)), ("dicts_b_y", "float32", (2,))],
                "tuples": [
                    ("tuples_y", "float32", (2,)),
                    ("tuples_x_0", "float32", (3,)),
                    ("tuples_x_1", "int32", (1,)),
                ],
                "named": [("named_u", "float32", (2,)), ("named_t", "float32", (3,))],
                "plain": [
                    ("plain_first_u_in", "float32", (2,)),
                    ("plain_first_t", "float32", (3,)),
                    ("plain_second", "float32", (2,)),
                ],
                "flat": [("flat_t", "float32", (3,)), ("flat_u", "float32", (2,))],
                "signed": [("signed_a", "float32", (1,)), ("signed_b", "float32", (2, 3))],
            },
        )

    def test_parameters_of_all_kinds(self) -> None:
        """Protects functions with variadic or keyword-only parameters."""
        exported = self.agree(
            HEAD
            + "def any_number(*xs, k=3.0):\n    return xs[0] - xs[1] * k\n\n\n"
            + "def by_keyword(x, *, y):\n    return x - y\n\n\n"
            + "def any_keyword(**named):\n    return named['x'] - named['y']\n\n\n"
            + "def input_fn():\n    return Spec([2]), Spec([2])\n",
            eager=lambda module, name, inputs: {
                "any_number": lambda: module.any_number(*inputs),
                "by_keyword": lambda: module.by_keyword(inputs[0], y=inputs[1]),
                "any_keyword": lambda: module.any_keyword(x=inputs[0], y=inputs[1]),
            }[name](),
            entry_points=same("any_number", "by_keyword", "any_keyword"),
            signature={"y": "float32[3]", "x": "float32[3]"},
        )
        self.assertEqual(
            [[name for name, _, _ in inputs] for inputs in inputs_of(exported).values()],
            [
                ["any_number_xs_0", "any_number_xs_1"],
                ["by_keyword_x", "by_keyword_y"],
                ["any_keyword_x", "any_keyword_y"],
            ],
        )

    def test_signature_of_several(self) -> None:
        """Protects entry points that take different parameters from one signature."""
        exported = self.agree(
            HEAD
            + "class Model(tf.Module):\n"
            + "    w = tf.Variable(1.0, name='w')\n\n"
            + "    def forward(self, x):\n        return x * self.w\n\n"
            + "    def train(self, x, y):\n        self.w.assign_add(tf.reduce_sum(x - y))\n        return y\n\n\n"
            + "model = Model()\n",
            entry_points=(("Forward", "forward"), ("Train", "train")),
            golden_steps=2,
            signature={"x": "float32[3]", "y": "float32[3]"},
        )
        self.assertEqual([len(inputs) for inputs in inputs_of(exported).values()], [1, 2])

    def test_concrete_function(self) -> None:
        """Protects functions that were already traced, with open dimensions or unknown rank: dims fixes both."""
        exported = self.agree(
            HEAD
            + "@tf.function\n"
            + "def function(x, more):\n"
            + "    rows = tf.cast(tf.shape(x)[0], tf.float32)\n"
            + "    rank = tf.cast(tf.rank(more['v']), tf.float32)\n"
            + "    return tf.reshape(x, [-1]) * rows, tf.reduce_sum(x, 0), more['v'] + rank\n\n\n"
            + "model = function.get_concrete_function(Spec([None, 2], name='x'), {'v': Spec(None)})\n",
            dims={"x": (3, None), "more/v": (2, 1)},
            eager=lambda module, name, inputs: module.function(inputs[0], {"v": inputs[1]}),
        )
        self.assertEqual(inputs_of(exported), {"Run": [("x", "float32", (3, 2)), ("more_v", "float32", (2, 1))]})
        self.assertEqual([output.shape for output in exported.manifest.entry_points[0].outputs], [(6,), (2,), (2, 1)])

    def test_golden_fn(self) -> None:
        """Protects the user's own inputs: by name in any order, by position, and with the entry point's name on request."""
        exported = self.agree(
            HEAD
            + "def named(y, x):\n    return x - y\n\n\n"
            + "def placed(pair):\n    return pair['a'] - pair['b']\n\n\n"
            + "def input_fn(entry_point):\n    return (Spec([2]), Spec([2])) if entry_point == 'named' else "
            + "{'a': Spec([2]), 'b': Spec([2])}\n\n\n"
            + "def golden_fn(step, rng, entry_point, scale=10.0):\n"
            + "    if entry_point == 'named':\n        return {'x': np.full(2, scale), 'y': np.ones(2)}\n"
            + "    return ({'b': np.full(2, step), 'a': np.full(2, -1.0)},)\n",
            entry_points=same("named", "placed"),
            eager=lambda module, name, inputs: (
                module.named(*inputs) if name == "named" else module.placed(dict(zip("ab", inputs, strict=True)))
            ),
            golden_steps=2,
        )
        golden = exported.golden_inputs
        self.assertEqual([golden[f"step0/named_{x}"].tolist() for x in "xy"], [[10, 10], [1, 1]])
        self.assertEqual([golden[f"step3/placed_{x}"].tolist() for x in "ab"], [[-1, -1], [3, 3]])


class WhatItIsTest(EagerTest):
    """What the name `model` can be bound to, and how entry points are found."""

    def test_function_that_returns_it(self) -> None:
        """Protects models that a function, or a class without parameters, creates when the stage asks for one."""
        made = (
            "def model():\n    w = tf.Variable(3.0, name='w')\n    return tf.function(lambda x: x * w)\n",
            "class model(tf.Module):\n    def __init__(self):\n        self.w = tf.Variable(3.0, name='w')\n\n"
            "    def __call__(self, x):\n        return x * self.w\n",
        )
        for text in made:
            with self.subTest(text.split()[0]):
                exported = self.agree(HEAD + text, signature={"x": "float32[2]"})
                self.assertEqual([variable.name for variable in exported.manifest.frozen], ["w"])

    def test_entry_points(self) -> None:
        """Protects every way to name one: the object itself, its methods, dotted paths, and functions in the file."""
        exported = self.agree(
            HEAD
            + """\
class Part(tf.Module):
    def __init__(self):
        self.v = tf.Variable(3.0, name="v")

    @tf.function(input_signature=[])
    def bump(self):
        self.v.assign_add(1.0)


class Model(tf.Module):
    def __init__(self):
        self.w = tf.Variable(tf.ones([2]), name="w")
        self.part = Part()

    @tf.function(input_signature=[Spec([2])])
    def __call__(self, x):
        return x * self.w

    @tf.function
    def open(self, x, twice=False):
        return x * (2 if twice else 1) + self.w

    def write(self, x):
        self.w.assign_add(x)
        return {"w": self.w, "x": x}


model = Model()


def of_file(x):
    return model.part.v * x
""",
            golden_calls=("Self", "Write", "Bump", "Open", "OfFile"),
            entry_points=(
                ("Self", "call"),
                ("Open", "open"),
                ("Write", "write"),
                ("Bump", "part.bump"),
                ("OfFile", "of_file"),
            ),
            golden_steps=2,
            signature={"x": "float32[2]"},
        )
        manifest = exported.manifest
        self.assertEqual({v.name: v.written for v in manifest.variables}, {"w": True, "v": True})
        uses = {
            entry.name: [(manifest.variables[use.variable].name, use.written) for use in entry.variables]
            for entry in manifest.entry_points
        }
        self.assertEqual(
            uses,
            {
                "Self": [("w", False)],
                "Open": [("w", False)],
                "Write": [("w", True)],
                "Bump": [("v", True)],
                "OfFile": [("v", False)],
            },
        )

    def test_callables_of_other_kinds(self) -> None:
        """Protects models that are neither functions nor modules: a partial, an object of the user's class, no source."""
        for text in (
            "import functools\n\n\ndef f(k, x):\n    return x * k\n\n\nmodel = functools.partial(f, 3.0)\n",
            "class Model:\n    def __call__(self, x):\n        return x * 3\n\n\nmodel = Model()\n",
            "exec('def model(x): return x * 3')\n",
        ):
            with self.subTest(text):
                self.agree(HEAD + text, compiled=False, signature={"x": "float32[2]"})


if __name__ == "__main__":
    unittest.main()
