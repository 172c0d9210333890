"""Weights in fewer bits: which ones are rounded, to which values, and what is refused."""

from __future__ import annotations

import unittest
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.stages.harness import Exported, StageTest
from tfaot.core.errors import TfaotError
from tfaot.core.manifest import UNROUNDED
from tfaot.export.rewrites.narrow import to_bfloat16, to_int8

Array = npt.NDArray[Any]

MODEL = """\
import numpy as np
import tensorflow as tf

draw = np.random.default_rng(3)
kernel = tf.Variable(draw.standard_normal((64, 80), np.float32), name="dense/kernel")
bias = tf.Variable(draw.standard_normal((80,), np.float32), name="dense/bias")
flipped = tf.Variable(draw.standard_normal((90, 64), np.float32), name="flipped")
table = tf.Variable(draw.standard_normal((100, 64), np.float32), name="table")
small = tf.Variable(draw.standard_normal((64, 63), np.float32), name="small")
thin = tf.Variable(draw.standard_normal((1024, 16), np.float32), name="thin")
heads = tf.Variable(draw.standard_normal((64, 4, 20), np.float32), name="heads")
merged = tf.Variable(draw.standard_normal((64, 4, 21), np.float32), name="merged")
joined = tf.Variable(draw.standard_normal((4, 16, 70), np.float32), name="joined")
cut = tf.Variable(draw.standard_normal((64, 66), np.float32), name="cut")
tied = tf.Variable(draw.standard_normal((64, 64), np.float32), name="tied")
image = tf.Variable(draw.standard_normal((3, 3, 8, 64), np.float32), name="image")


@tf.function(input_signature=[tf.TensorSpec((1, 64), name="x"), tf.TensorSpec((1,), tf.int32, name="i")])
def model(x, i):
    row = tf.gather(table, i)
    return {
        "dense": tf.matmul(x, kernel) + bias,
        "flipped": tf.matmul(x, flipped, transpose_b=True),
        "row": row,
        "small": tf.matmul(x, small),
        "thin": tf.matmul(tf.tile(x, [1, 16]), thin),
        "heads": tf.einsum("td,dhk->htk", x, heads),
        "merged": tf.matmul(x, tf.reshape(merged, [-1, 84])),
        "joined": tf.matmul(x, tf.reshape(joined, [64, 70])),
        "cut": tf.matmul(tf.tile(x, [1, 2]), tf.reshape(cut, [128, 33])),
        "tied": tf.matmul(tf.matmul(x, tied), tied, transpose_b=True),
        "image": tf.nn.conv2d(tf.reshape(x[:, :8], [1, 1, 1, 8]), image, 1, "SAME"),
    }
"""
"""Weights of all kinds: matrices of products in both directions, and others."""

TRAINED = """\
import tensorflow as tf

kernel = tf.Variable(tf.ones((64, 80)), name="dense/kernel")


@tf.function(input_signature=[tf.TensorSpec((1, 64), name="x")])
def model(x):
    y = tf.matmul(x, kernel)
    kernel.assign_sub(0.1 * kernel)
    return y
"""

READ = TRAINED.replace("    kernel.assign_sub(0.1 * kernel)\n", "")


def constants_of(exported: Exported) -> dict[str, Array]:
    """Returns the values of the graph's constants."""
    from tensorflow.core.framework import graph_pb2

    from tfaot.graph.attributes import literal
    from tfaot.graph.constants import constants

    graph = graph_pb2.GraphDef()
    with open(exported.path("graph"), "rb") as file:
        graph.ParseFromString(file.read())
    return {name: literal(node) for name, node in constants(graph)}


class RoundingTest(unittest.TestCase):
    """The values."""

    def test_bfloat16(self) -> None:
        """Protects rounding: to the nearest value, ties to even, on bits that an integer rule rounds too."""
        draw = np.random.default_rng(1)
        bits = draw.integers(0, 2**32, 200000, np.uint64).astype(np.uint32)
        ties = (draw.integers(0, 2**16, 2000, np.uint64) << 16 | 0x8000).astype(np.uint32)
        values = np.concatenate([bits, ties]).view(np.float32)
        values = values[np.isfinite(values)]
        wide = values.view(np.uint32).astype(np.uint64)
        wanted = ((wide + 0x7FFF + (wide >> 16 & 1)) >> 16 << 16).astype(np.uint32)
        np.testing.assert_array_equal(to_bfloat16(values).view(np.uint32), wanted)

    def test_int8(self) -> None:
        """Protects factors: one for each channel, and no value is off by more than half of it or 2^-16 of it."""
        draw = np.random.default_rng(2)
        matrix = (draw.standard_normal((50, 40)) * np.exp(draw.standard_normal(40) * 9)).astype(np.float32)
        for values, axis in ((matrix, 0), (matrix.T.copy(), 1)):
            rounded = to_int8(values, (axis,))
            assert rounded is not None
            self.assertEqual(rounded.dtype, np.float32)
            factor = np.abs(values).max(axis=axis, keepdims=True).astype(np.float64) / 127
            self.assertLessEqual(
                float((np.abs(rounded - values.astype(np.float64)) / factor).max()), 0.5 + 127 * 2.0**-16
            )
            levels = [len(np.unique(np.abs(column))) for column in np.moveaxis(rounded, 1 - axis, 0)]
            self.assertLessEqual(max(levels), 128)
            # Rounding what is rounded changes nothing, so the largest value is exactly 127 factors.
            np.testing.assert_array_equal(to_int8(rounded, (axis,)), rounded)

    def test_channels_without_values(self) -> None:
        """Protects against division by zero: a channel of zeros or of the smallest values stays finite."""
        values = np.zeros((8, 3), np.float32)
        values[:, 1] = 1e-44
        values[:, 2] = 3e38
        rounded = to_int8(values, (0,))
        assert rounded is not None
        np.testing.assert_array_equal(rounded[:, :2], 0)
        np.testing.assert_allclose(rounded[:, 2], values[:, 2], rtol=1e-4)
        self.assertIsNone(to_int8(np.full((2, 2), np.nan, np.float32), (0,)))


class NarrowTest(StageTest):
    """The stage."""

    def unrounded(self, exported: Exported) -> dict[str, Array]:
        """Returns the weights that were rounded, as they were, by their shape."""
        from tfaot.core import safetensors

        stored = safetensors.read(exported.path("golden_inputs"))
        names = {name.removeprefix(UNROUNDED) for name in stored if name.startswith(UNROUNDED)}
        self.assertEqual(names, set(exported.manifest.weights.names))
        return {name: stored[UNROUNDED + name] for name in names}

    def test_which(self) -> None:
        """Protects the rule: only large matrices that nothing but products reads, along one axis, are rounded."""
        shapes = {
            dtype: sorted(value.shape for value in self.unrounded(self.export(MODEL, weights_dtype=dtype)).values())
            for dtype in ("bfloat16", "int8")
        }
        wanted = [(4, 16, 70), (64, 4, 20), (64, 4, 21), (64, 80), (90, 64)]
        self.assertEqual(shapes, {"bfloat16": wanted, "int8": wanted})

    def test_axes(self) -> None:
        """Protects channels: products add up along the axes that share a factor, whatever their shape and direction."""
        exported = self.export(MODEL, weights_dtype="int8")
        values = constants_of(exported)
        for name, before in self.unrounded(exported).items():
            axes = {(4, 16, 70): (0, 1), (90, 64): (1,)}.get(before.shape, (0,))
            np.testing.assert_array_equal(values[name], to_int8(before, axes))

    def test_off_by_default(self) -> None:
        """Protects everybody else: without a dtype, no weight is rounded."""
        exported = self.export(MODEL)
        self.assertEqual(self.unrounded(exported), {})
        self.assertEqual(exported.manifest.weights.rounded_to, "")

    def test_values(self) -> None:
        """Protects numbers: the graph has rounded values, and the verify stage gets those from before."""
        exported = self.export(MODEL, weights_dtype="bfloat16")
        values = constants_of(exported)
        for name, before in self.unrounded(exported).items():
            np.testing.assert_array_equal(values[name], to_bfloat16(before))
            self.assertFalse(np.array_equal(values[name], before))

    def test_a_float32_file(self) -> None:
        """Protects new checkpoints: a file of float32 weights is converted, and one in another dtype is refused."""
        kernel = np.random.default_rng(9).standard_normal((64, 80)).astype(np.float32)
        exported = self.export(READ, weights_dtype="bfloat16", weights={"dense/kernel": kernel})
        (before,) = self.unrounded(exported).values()
        np.testing.assert_array_equal(before, kernel)
        narrow = kernel.astype(np.float16)
        with self.assertRaisesRegex(TfaotError, r"dense/kernel: float16\[64, 80\]; the model has float32\[64, 80\]"):
            self.export(READ, weights_dtype="bfloat16", weights={"dense/kernel": narrow})

    def test_errors(self) -> None:
        """Protects users: each mistake is one error that says what to do."""
        for model, options, complaint in (
            (
                READ,
                {"weights_dtype": "float8"},
                r'"dtype": "float8"}: weights can\'t be stored in this dtype.*bfloat16.*int8',
            ),
            (READ, {"weights_tolerance": "0.1"}, r"without a dtype.*remove the tolerance"),
            (
                READ,
                {"weights_dtype": "int8", "weights_tolerance": "2%"},
                r'"tolerance": "2%"}: the tolerance isn\'t a positive',
            ),
            (READ, {"weights_dtype": "int8", "weights_tolerance": "nan"}, r"the tolerance isn't a positive number"),
            (
                TRAINED,
                {"weights_dtype": "int8"},
                r"no weight qualifies.*dense/kernel \(the model writes it\).*remove the dtype",
            ),
            (READ, {"weights_dtype": "int8", "frozen": ()}, r'dense/kernel \(not frozen\).*frozen = \["\*"\]'),
            (READ.replace("80", "8"), {"weights_dtype": "int8"}, r"no float32 matrix of 4096 values or more"),
            (READ.replace("80", "4").replace("64", "1024"), {"weights_dtype": "int8"}, r"\(fewer than 17 columns\)"),
            (
                READ.replace("tf.ones((64, 80))", "tf.fill((64, 80), float('nan'))"),
                {"weights_dtype": "int8"},
                r"aren't finite",
            ),
            (
                READ.replace("(x, kernel)", "(x, kernel) + kernel[:1]"),
                {"weights_dtype": "int8"},
                r"\(read by StridedSlice\)",
            ),
        ):
            with self.subTest(complaint), self.assertRaisesRegex(TfaotError, "(?s)" + complaint):
                self.export(model, **options)


if __name__ == "__main__":
    unittest.main()
