"""Which convolutions use Winograd's minimal filtering, how their kernels change, and what the switch does."""

from __future__ import annotations

import dataclasses
import json
import unittest
from pathlib import Path

import numpy as np

from tests.compile.program.changed import convolution
from tests.stages.harness import StageTest
from tfaot.compile.program.packing import winograd
from tfaot.compile.program.thunks.kinds import Slice

NET = """\
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
rng = np.random.default_rng(1)


def kernel(*shape):
    return rng.standard_normal(shape).astype("float32")


def input_fn():
    return v1.placeholder(tf.float32, [1, 16, 16, 64], "x"), ()


def model_fn(x, _):
    x = tf.nn.relu(tf.nn.conv2d(x, kernel(3, 3, 64, 64), 1, "SAME") + kernel(64))
    return {}
"""
"""A convolution to which it applies, and another op."""

LAYER = dataclasses.replace(
    convolution(out=Slice(0, 0), image=(28, 28), channels=128, taps=(3, 3), filters=128, pixels=(28, 28)),
    input=Slice(1, 0),
    kernel=Slice(2, 0),
    padding_before=(1, 1),
    padding_after=(1, 1),
)


class ShapesTest(unittest.TestCase):
    """The rule, and the packing."""

    def test_where(self) -> None:
        """ResNet's layers qualify. Other kernels, strides, dilations, groups, dtypes, and small sizes don't."""
        self.assertTrue(winograd.applies(LAYER))
        for change in (
            {"dtype": "Eigen::half"},
            {"kernel_size": (1, 3)},
            {"kernel_size": (5, 5)},
            {"stride": (2, 2)},
            {"stride": (1, 2)},
            {"input_dilation": (2, 2)},
            {"kernel_dilation": (2, 2)},
            {"groups": 2, "kernel_channels": 64},
            {"input_channels": 3, "kernel_channels": 3},
            {"filters": 8},
            {"output_size": (2, 2)},
        ):
            with self.subTest(change):
                self.assertFalse(winograd.applies(dataclasses.replace(LAYER, **change)))

    def test_values(self) -> None:
        """Each filter's points are G g G^T, where the kernels look for them. Missing filters of a panel are zero."""
        channels, filters = 5, 80 + 3
        rng = np.random.default_rng(1)
        kernel = rng.standard_normal((3, 3, channels, filters)).astype(np.float32)
        layer = dataclasses.replace(LAYER, kernel_channels=channels, filters=filters)
        packed = np.frombuffer(winograd.transformed(memoryview(kernel.tobytes()), layer), np.float32)
        g = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
        columns = 96
        self.assertEqual(packed.size, 16 * channels * columns)
        for filter_ in range(columns):
            begin = filter_ // 64 * 64
            block = packed[16 * channels * begin : 16 * channels * min(begin + 64, columns)].reshape(
                16, -1, channels, 16
            )
            for channel in range(channels):
                found = block[:, filter_ % 64 // 16, channel, filter_ % 16].reshape(4, 4)
                if filter_ < filters:
                    wanted = (g @ kernel[:, :, channel, filter_].astype(np.float64) @ g.T).astype(np.float32)
                    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)
                else:
                    self.assertFalse(found.any())


class CompileTest(StageTest):
    """The compile stage."""

    def test_switch(self) -> None:
        """The pass is on by default, says which kernels it packed, and leaves them to other passes if it is off."""
        exported = self.export(NET.format("x"))
        for patterns, kind, places in ((("*",), "winograd", 1), (("*", "!winograd"), "panels", None)):
            self.compile(exported, passes=patterns)
            written = json.loads(Path(exported.path("passes")).read_text())
            self.assertEqual(written["winograd"], places)
            (packed,) = written["packed"]
            self.assertEqual((packed["packing"], packed["shape"]), (kind, [3, 3, 64, 64]))
            source = Path(exported.path("source")).read_text()
            self.assertEqual("RunWinograd<float>" in source, kind == "winograd")
            self.assertEqual("WinogradScratchBytes(kImages[0])" in source, kind == "winograd")

    def test_size(self) -> None:
        """A kernel with 9 values becomes one with 16, and the original isn't kept."""
        exported = self.export(NET.format("x"))
        self.compile(exported)
        (packed,) = json.loads(Path(exported.path("passes")).read_text())["packed"]
        self.assertEqual((packed["before"], packed["after"]), (9 * 64 * 64 * 4, 16 * 64 * 64 * 4))
        size = Path(exported.path("constants")).stat().st_size
        self.assertTrue(packed["after"] < size < packed["after"] + packed["before"] // 2)

    def test_kernels_that_are_read_otherwise(self) -> None:
        """A kernel that is also an output, or shared with another kind of convolution, doesn't change."""
        for shared in (
            "tf.nn.conv2d(x, w, 1, 'SAME'), w",
            "tf.nn.conv2d(tf.nn.conv2d(x, w, 1, 'SAME'), w, 2, 'SAME')",
        ):
            with self.subTest(shared):
                exported = self.export(NET.format(f"(lambda w: ({shared}))(tf.constant(kernel(3, 3, 64, 64)))"))
                self.compile(exported)
                packed = json.loads(Path(exported.path("passes")).read_text())["packed"]
                self.assertEqual([each["packing"] for each in packed].count("winograd"), 1)

    def test_variables_that_are_not_frozen(self) -> None:
        """A kernel that can change isn't a constant, and is left alone."""
        model = NET.format("tf.nn.conv2d(x, v1.get_variable('w', initializer=kernel(3, 3, 64, 64)), 1, 'SAME')")
        exported = self.export(model, frozen=())
        self.compile(exported)
        self.assertEqual(json.loads(Path(exported.path("passes")).read_text())["winograd"], 1)


if __name__ == "__main__":
    unittest.main()
