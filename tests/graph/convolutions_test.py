"""Gradients of grouped, depthwise, and dilated convolutions: correct in TensorFlow and XLA, for all strides and paddings."""

from __future__ import annotations

import itertools
import unittest
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.compile.passes.graphs import Array, config_of, run
from tests.stages.harness import StageTest
from tfaot.core import isolate

Pair = tuple[int, int]

MODEL = """\
import tensorflow as tf

v1 = tf.compat.v1


def input_fn():
    return v1.placeholder(tf.float32, [2, 8, 8, 4], "x"), ()


def model_fn(x, _):
    grouped = v1.get_variable("grouped", [3, 3, 2, 6])
    depthwise = v1.get_variable("depthwise", [3, 3, 4, 2])
    y = tf.nn.conv2d(x, grouped, 1, "SAME")
    z = tf.nn.depthwise_conv2d(x, depthwise, [1, 1, 1, 1], "SAME")
    found = tf.gradients(tf.reduce_sum(y * y) + tf.reduce_sum(z * z), [grouped, depthwise])
    with tf.control_dependencies([tf.group(y)]):  # a node without results
        return [tf.identity(each) for each in found]
"""


def padded(size: int, kernel: int, stride: int, dilation: int, padding: str, explicit: Pair) -> Pair:
    """Returns how many values a convolution pads before and after those along an axis."""
    if padding == "EXPLICIT":
        return explicit
    if padding == "VALID":
        return 0, 0
    missing = max(0, (-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size)
    return missing // 2, missing - missing // 2


class Case:
    """A convolution with values, and its gradients by definition, in float64."""

    def __init__(
        self,
        kernel: Sequence[int],
        groups: int,
        strides: Pair,
        dilations: Pair,
        padding: str,
        *,
        depthwise: bool = False,
    ) -> None:
        """Draws an image, a kernel, and a gradient.

        Args:
          kernel: height, width, channels per group, and results of all groups.
          groups: the number of groups.
          strides: for rows and columns.
          dilations: for rows and columns.
          padding: the op's name for it. Explicit padding is asymmetric.
          depthwise: whether the op is the depthwise one, whose kernel is [height, width, groups, multiplier].
        """
        height, width, channels, results = kernel
        rng = np.random.default_rng(abs(hash((*kernel, groups, *strides, *dilations))) % 2**32)
        self.image = rng.standard_normal((2, 9, 8, channels * groups)).astype(np.float32)
        self.kernel = rng.standard_normal(kernel).astype(np.float32)
        self.depthwise = depthwise
        explicit = ((1, 2), (0, 1))
        self.attributes: dict[str, Any] = {
            "strides": [1, *strides, 1],
            "dilations": [1, *dilations, 1],
            "padding": padding,
            "explicit_paddings": [0, 0, 1, 2, 0, 1, 0, 0] if padding == "EXPLICIT" else [],
        }
        pads = [
            padded(size, kernel[axis], strides[axis], dilations[axis], padding, explicit[axis])
            for axis, size in enumerate(self.image.shape[1:3])
        ]
        image = np.pad(self.image.astype(np.float64), ((0, 0), *pads, (0, 0)))
        rows, columns = (
            (size - (kernel[axis] - 1) * dilations[axis] - 1) // strides[axis] + 1
            for axis, size in enumerate(image.shape[1:3])
        )
        self.gradient = rng.standard_normal((2, rows, columns, results)).astype(np.float32)
        dy = self.gradient.astype(np.float64).reshape(2, rows, columns, groups, -1)
        w = self.kernel.astype(np.float64).reshape(height, width, channels, groups, -1)
        by_kernel, by_image = np.zeros_like(w), np.zeros_like(image)
        for i, j in itertools.product(range(height), range(width)):
            at = (
                slice(None),
                slice(i * dilations[0], i * dilations[0] + (rows - 1) * strides[0] + 1, strides[0]),
                slice(j * dilations[1], j * dilations[1] + (columns - 1) * strides[1] + 1, strides[1]),
            )
            part = image[at].reshape(2, rows, columns, groups, channels)
            by_kernel[i, j] = np.einsum("nyxgc,nyxgo->cgo", part, dy)
            by_image[at] += np.einsum("nyxgo,cgo->nyxgc", dy, w[i, j]).reshape(2, rows, columns, -1)
        self.by_kernel = by_kernel.reshape(self.shape)
        (top, bottom), (left, right) = pads
        self.by_image = by_image[:, top : by_image.shape[1] - bottom, left : by_image.shape[2] - right]

    @property
    def shape(self) -> tuple[int, ...]:
        """The kernel's shape in the op."""
        height, width, _, results = self.kernel.shape
        groups = self.image.shape[3]
        return (height, width, groups, results // groups) if self.depthwise else self.kernel.shape

    def build(self) -> Any:
        """Returns the graph with both gradients, and its fetches."""
        import tensorflow as tf

        raw = tf.raw_ops
        with tf.Graph().as_default() as graph:
            image, kernel, gradient = (
                tf.compat.v1.placeholder(tf.float32, value.shape, f"x{index}") for index, value in enumerate(self.feeds)
            )
            op = raw.DepthwiseConv2dNativeBackpropFilter if self.depthwise else raw.Conv2DBackpropFilter
            sizes = tf.constant(self.shape)
            op(input=image, filter_sizes=sizes, out_backprop=gradient, name="by_kernel", **self.attributes)
            op = raw.DepthwiseConv2dNativeBackpropInput if self.depthwise else raw.Conv2DBackpropInput
            op(input_sizes=tf.shape(image), filter=kernel, out_backprop=gradient, name="by_image", **self.attributes)
        return graph.as_graph_def()

    @property
    def feeds(self) -> tuple[Array, ...]:
        """Returns values for the placeholders."""
        return self.image, self.kernel.reshape(self.shape), self.gradient


FETCHES = ["by_kernel:0", "by_image:0"]


class GradientsTest(unittest.TestCase):
    """Each form by itself."""

    def check(self, got: Sequence[Array], case: Case) -> None:
        """Compares with the definition."""
        for value, want in zip(got, (case.by_kernel, case.by_image), strict=True):
            self.assertEqual(value.shape, want.shape)
            np.testing.assert_allclose(value, want, rtol=0, atol=2e-6 * np.abs(want).max())

    def test_tensorflow(self) -> None:
        """TensorFlow's own kernels, which have neither groups nor dilation here, give the numbers from the definition."""

        def work() -> list[tuple[Case, list[Array], int]]:
            from tfaot.graph.convolutions import for_tensorflow

            results = []
            for groups, kernel in ((2, (3, 3, 2, 6)), (4, (2, 3, 1, 8)), (1, (3, 2, 3, 4))):
                for strides, dilations, padding in (
                    ((1, 1), (2, 2), "SAME"),
                    ((1, 2), (1, 3), "VALID"),
                    ((2, 2), (1, 1), "EXPLICIT"),
                ):
                    case = Case(kernel, groups, strides, dilations, padding)
                    before = case.build()
                    after = for_tensorflow(before)
                    results.append((case, run(after, FETCHES, case.feeds, False), int(after is not before)))
            return results

        for case, got, _ in isolate.run_isolated(work, what="running TensorFlow"):
            with self.subTest(kernel=case.kernel.shape, **case.attributes):
                self.check(got, case)

    def test_xla(self) -> None:
        """The replacements for gradients that XLA can't compute give the numbers from the definition."""

        def work() -> list[tuple[Case, list[Array], int]]:
            from tfaot.compile import table

            results = []
            forms: list[tuple[int, tuple[int, ...], bool]] = [
                (2, (3, 3, 2, 6), False),
                (4, (2, 3, 1, 8), False),
                (4, (3, 2, 1, 8), True),
            ]
            for groups, kernel, depthwise in forms:
                for strides, dilations, padding in (((2, 2), (1, 1), "EXPLICIT"), ((1, 1), (2, 1), "SAME")):
                    case = Case(kernel, groups, strides, dilations, padding, depthwise=depthwise)
                    config = config_of(["x0:0", "x1:0", "x2:0"], case.feeds, FETCHES)
                    applied = table.apply(case.build(), config, [])
                    results.append((case, run(applied.graph, FETCHES, case.feeds, True), applied.lowered))
            return results

        for case, got, lowered in isolate.run_isolated(work, what="running XLA"):
            with self.subTest(kernel=case.kernel.shape, depthwise=case.depthwise, **case.attributes):
                self.assertEqual(lowered, 1)
                self.check(got, case)

    def test_functions(self) -> None:
        """Gradients in functions that a graph calls."""

        def work() -> tuple[list[Array], list[Array]]:
            import tensorflow as tf

            from tfaot.graph.convolutions import for_tensorflow

            case = Case((3, 3, 2, 6), 2, (1, 1), (1, 2), "SAME")

            @tf.function
            def gradients(image: Any, kernel: Any, dy: Any) -> Any:
                with tf.GradientTape(persistent=True) as tape:
                    tape.watch([image, kernel])
                    y = tf.nn.conv2d(image, kernel, 1, "SAME", dilations=(1, 2))
                return tape.gradient(y, [kernel, image], dy)

            with tf.Graph().as_default() as graph:
                placed = [tf.compat.v1.placeholder(v.dtype, v.shape, f"x{i}") for i, v in enumerate(case.feeds)]
                for value, name in zip(gradients(*placed), FETCHES, strict=True):
                    tf.identity(value, name.removesuffix(":0"))
            after = for_tensorflow(graph.as_graph_def())
            return run(after, FETCHES, case.feeds, False), [case.by_kernel, case.by_image]

        for got, want in zip(*isolate.run_isolated(work, what="running TensorFlow"), strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * np.abs(want).max())


class CompileTest(StageTest):
    """The compile stage."""

    def test_gradients_by_kernels(self) -> None:
        """Gradients that failed with "3D convolution is not implemented" compile, with and without passes."""
        exported = self.export(MODEL)
        for patterns in ((), ("*",)):
            self.compile(exported, passes=patterns)


if __name__ == "__main__":
    unittest.main()
