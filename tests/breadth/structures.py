"""Models that are unusual not because of their ops, but because of how these are combined, and what things are called."""

from __future__ import annotations

import re

import numpy as np

from tests.breadth.draw import Draw
from tests.breadth.recipes import Recipe

STRUCTURES: dict[str, Recipe] = {}
"""Structures by their names on a page."""


def _structure(name: str, setup: str, expression: str, *, rank: int | None = None, variable: bool = False) -> None:
    """Adds a structure: `X` is a float operand, `N` an operand with a repeat count, `V` a variable like `X`."""

    def make(d: Draw) -> str:
        shape = d.shape(rank=rank, empty=False, low=1)
        text = expression.replace("X", d.of("float32", shape, "unit"))
        if "N" in text:
            text = text.replace("N", d.add(np.int32(d.int(0, 5))))
        if variable:
            d.variable(d.values("float32", shape, "unit"))
        d.setup += re.sub(r"\bV\b", "v{n}_0", setup)
        return text

    assert name not in STRUCTURES, name
    STRUCTURES[name] = Recipe(name, make, True, 1e-4, 0.0)


_structure(
    "functions, nested three deep",
    "@tf.function\ndef a{n}(x):\n    return tf.sin(x) + 1\n\n"
    "@tf.function\ndef b{n}(x):\n    return a{n}(x) * a{n}(x + 1)\n\n"
    "@tf.function\ndef f{n}(x):\n    return b{n}(x) - a{n}(x)\n",
    "f{n}(X)",
)
_structure(
    "a function called twice",
    "@tf.function\ndef f{n}(x):\n    return tf.tanh(x) + tf.reduce_max(x)\n",
    "f{n}(X) + f{n}(X * 2)",
)
_structure(
    "a function with a variable, called twice",
    "@tf.function\ndef f{n}(x):\n    return tf.tanh(x * V)\n",
    "f{n}(X) + f{n}(X * 2)",
    variable=True,
)
_structure(
    "a loop in a function, called twice",
    "@tf.function\ndef f{n}(x, k):\n    for _ in tf.range(k):\n        x = tf.sin(x) + 0.5\n    return x\n",
    "(lambda x, n: f{n}(x, n) + f{n}(x * 2, n + 1))(X, N)",
)
_structure(
    "a loop over a frozen variable",
    "@tf.function\ndef f{n}(x):\n    for _ in tf.range(3):\n        x = tf.tanh(x + V)\n    return x\n",
    "f{n}(X)",
    variable=True,
)
_structure(
    "a loop in a loop",
    "@tf.function\ndef f{n}(x, k):\n    for i in tf.range(k):\n        for j in tf.range(i):\n"
    "            x = x * 0.5 + tf.cast(j, tf.float32)\n    return x\n",
    "f{n}(X, N)",
)
_structure(
    "a branch in a loop",
    "@tf.function\ndef f{n}(x, k):\n    for i in tf.range(k):\n        if tf.equal(i % 2, 0):\n            x = x + 1\n  "
    "      else:\n"
    "            x = x * 0.5\n    return x\n",
    "f{n}(X, N)",
)
_structure(
    "a loop in a branch",
    "@tf.function\ndef f{n}(x, k):\n    if k > 2:\n        for i in tf.range(k):\n            x = tf.sin(x)\n   "
    " return x\n",
    "f{n}(X, N)",
)
_structure(
    "a loop with break",
    "@tf.function\ndef f{n}(x, k):\n    for i in tf.range(10):\n        x = tf.sin(x) + 0.1\n        if i > k:\n"
    "            break\n"
    "    return x\n",
    "f{n}(X, N)",
)
_structure(
    "a loop that values end",
    "@tf.function\ndef f{n}(x):\n    while tf.reduce_max(tf.abs(x)) > 0.01:\n        x = x * 0.5\n    return x\n",
    "f{n}(X)",
)
_structure("map_fn", "", "tf.map_fn(lambda y: tf.sin(y) * 2, X)")
_structure("vectorized_map", "", "tf.vectorized_map(lambda y: tf.sin(y) * 2, X)")
_structure("scan", "", "tf.scan(lambda a, y: a * 0.5 + y, X)")
_structure("switch_case", "", "(lambda x, n: tf.switch_case(n, [lambda: x, lambda: x * 2, lambda: tf.sin(x)]))(X, N)")
_structure(
    "cond with captured values", "", "(lambda x, n: tf.cond(n > 2, lambda: x * 2, lambda: tf.reduce_sum(x) + x))(X, N)"
)
_structure("gradient", "", "(lambda x: tf.gradients(tf.reduce_sum(tf.sin(x) * x), x))(X)")
_structure(
    "gradient of a loop",
    "@tf.function\ndef f{n}(x):\n    return tf.while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, tf.sin(y) + "
    "y), (0, x),\n"
    "                         maximum_iterations=4)[1]\n",
    "(lambda x: tf.gradients(f{n}(x), x))(X)",
)
_structure(
    "custom gradient",
    "@tf.custom_gradient\ndef f{n}(x):\n    return tf.sin(x), lambda dy: dy * 7\n",
    "(lambda x: tf.gradients(f{n}(x), x))(X)",
)
_structure(
    "TensorArray",
    "@tf.function\ndef f{n}(x):\n    a = tf.TensorArray(tf.float32, 4, element_shape=x.shape)\n    for i in "
    "tf.range(4):\n"
    "        a = a.write(i, x * tf.cast(i, tf.float32))\n    return a.stack()\n",
    "f{n}(X)",
)
_structure(
    "variables written in a branch",
    "@tf.function\ndef f{n}(x, k):\n    if k > 2:\n        V.assign_add(x)\n    return V + 0\n",
    "f{n}(X, N)",
    variable=True,
)
_structure(
    "an inner function named as C++ names things",
    "@tf.function\ndef operator{n}(x):\n    with tf.name_scope('class/template.2-x'):\n        return "
    "tf.identity(x, name='delete')\n",
    "operator{n}(X)",
)
_structure("results that share a value", "", "(lambda x: [x, x, tf.identity(x), x + 0])(X)")
_structure("a result that is an input, and one that is a constant", "", "(lambda x: [x, tf.constant([1.5, 2.5])])(X)")
_structure(
    "fake_quant, which keeps 0",
    "@tf.function\ndef f{n}(x):\n    return [tf.quantization.fake_quant_with_min_max_args(x, min=-1.3, max=2.1),\n"
    "            tf.quantization.fake_quant_with_min_max_vars(x, -1.7, 2.9)]\n",
    "f{n}(tf.sign(X) * 0)",
)
_structure(
    "the gradient of selu at 0",
    "@tf.function\ndef f{n}(x):\n    return tf.gradients(tf.nn.selu(x), x)\n",
    "(lambda x: [f{n}(x), f{n}(-x), tf.gradients(tf.nn.selu(x), x)])(tf.nn.relu(X))",
)
_structure(
    "gradients of complex functions",
    "@tf.function\ndef f{n}(x):\n    z = tf.complex(x, x + 1.5)\n"
    "    y = tf.sqrt(z) + tf.math.rsqrt(z) + tf.math.reciprocal(z)\n    return tf.gradients(tf.math.real(y), z)\n",
    "f{n}(X)",
)
_structure("nothing but a shape", "", "(lambda x: [tf.shape(x), tf.size(x), tf.rank(x)])(X)")
_structure("ragged tensors", "", "tf.RaggedTensor.from_row_lengths(X, [2, 0, 3]).to_tensor()")
STRUCTURES["ragged tensors"] = Recipe(
    "ragged tensors",
    lambda d: (
        f"tf.RaggedTensor.from_row_lengths({d.of('float32', [5], 'unit')}, [2, 0, 3], validate=False).to_tensor()"
    ),
    True,
    0.0,
    0.0,
)

NAMES = [
    "int",
    "class",
    "delete",
    "new",
    "operator",
    "template",
    "virtual",
    "std",
    "data",
    "Run",
    "Load",
    "Save",
    "error",
    "isa",
    "size_t",
    "float32",
    "_x",
    "__x",
    "x__y",
    "X",
    "x1",
    "auto",
    "NULL",
    "a/b",
    "a.b",
    "a-b",
    "a_b",
    "1x",
    "ä",
    "数",
    "const",
    "volatile",
    "errno",
    "assert",
    "main",
    "EOF",
    "signed",
    "this",
    "true",
    "union",
    "xor",
    "and",
]
"""Names of outputs in one model. Each could confuse a compiler or our own code."""
