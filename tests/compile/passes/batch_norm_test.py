"""fold_batch_norm: every form of batch norm in models, and every case in which it must not change."""

from __future__ import annotations

import unittest
from typing import Any

import numpy as np

from tests.compile.passes.graphs import Array, Build, PassTest

NAME = "fold_batch_norm"
RNG = np.random.default_rng(5)


def normal(*shape: int, dtype: str = "float32") -> Array:
    """Returns values from a normal distribution."""
    return RNG.standard_normal(shape).astype(dtype)


def uniform(*shape: int, dtype: str = "float32") -> Array:
    """Returns values between 0.5 and 2, for factors and variances."""
    return RNG.uniform(0.5, 2, shape).astype(dtype)


def fused(x: Any, channels: int, data_format: str = "NHWC", **options: Any) -> Any:
    """Returns FusedBatchNormV3 with constant statistics."""
    import tensorflow as tf

    values = [uniform(channels), normal(channels), normal(channels), uniform(channels)]
    arguments: dict[str, Any] = {"epsilon": 1e-3, "is_training": False, "data_format": data_format} | options
    return tf.raw_ops.FusedBatchNormV3(
        x=x, scale=values[0], offset=values[1], mean=values[2], variance=values[3], **arguments
    )


def expanded(x: Any, channels: int, shape: tuple[int, ...] | None = None, dtype: str = "float32") -> Any:
    """Returns batch norm in Keras 3's form: reciprocal root, factors, and sums of constants behind Identity."""
    import tensorflow as tf

    values = [uniform(channels, dtype=dtype), normal(channels, dtype=dtype), normal(channels, dtype=dtype)]
    gamma, beta, mean = (tf.identity(tf.constant(value if shape is None else value.reshape(shape))) for value in values)
    variance = tf.constant(uniform(channels, dtype=dtype).reshape(shape or (channels,)))
    factor = tf.math.rsqrt(variance + tf.constant(1e-3, dtype)) * gamma
    return x * factor + (beta - mean * factor)


class FoldsTest(PassTest):
    """Forms that are folded."""

    def assert_folds(self, build: Build, *feeds: Array, places: int = 1, jit: bool = False) -> None:
        """The pass changes `places` places, and no number."""
        self.assertEqual(self.rewritten(NAME, build, *feeds, jit=jit), places)

    def test_convolution(self) -> None:
        """A convolution's kernel absorbs FusedBatchNorm and Keras 3's form, in both float types."""
        import tensorflow as tf

        x = normal(2, 9, 8, 3)
        kernel = normal(3, 3, 3, 5)
        for padding, strides in (("SAME", 2), ("VALID", 1)):
            self.assert_folds(lambda x, p=padding, s=strides: fused(tf.nn.conv2d(x, kernel, s, p), 5).y, x)
            self.assert_folds(lambda x, p=padding, s=strides: expanded(tf.nn.conv2d(x, kernel, s, p), 5), x)
        self.assert_folds(
            lambda x: expanded(tf.nn.conv2d(x, kernel.astype("float64"), 1, "SAME"), 5, dtype="float64"),
            x.astype("float64"),
        )

    def test_channels_first(self) -> None:
        """Channels that come before the image are scaled along their own axis."""
        import tensorflow as tf

        x, kernel = normal(2, 3, 6, 6), normal(3, 3, 3, 6)  # as many channels as rows and columns

        def conv(x: Any) -> Any:
            return tf.nn.conv2d(x, kernel, 1, "SAME", data_format="NCHW")

        self.assert_folds(lambda x: fused(conv(x), 6, "NCHW").y, x, jit=True)
        self.assert_folds(lambda x: expanded(conv(x), 6, (6, 1, 1)), x, jit=True)
        self.assert_folds(lambda x: 2.0 * tf.nn.bias_add(conv(x), normal(6), data_format="NCHW"), x, jit=True)
        self.assertEqual(self.rewritten(NAME, lambda x: expanded(conv(x), 6), x, jit=True), 0, "along the wrong axis")

    def test_depthwise_with_multiplier(self) -> None:
        """A depthwise kernel with several outputs per channel is scaled in the order of its outputs."""
        import tensorflow as tf

        x, kernel = normal(1, 7, 7, 4), normal(3, 3, 4, 3)
        self.assert_folds(lambda x: fused(tf.nn.depthwise_conv2d(x, kernel, [1, 1, 1, 1], "SAME"), 12).y, x)

    def test_grouped(self) -> None:
        """A grouped kernel has as many factors as the convolution has outputs."""
        import tensorflow as tf

        x, kernel = normal(1, 5, 5, 8), normal(3, 3, 2, 12)
        self.assert_folds(lambda x: expanded(tf.nn.conv2d(x, kernel, 1, "SAME"), 12), x, jit=True)

    def test_matrix_product(self) -> None:
        """A dense layer's kernel absorbs it, in either orientation."""
        import tensorflow as tf

        x = normal(6, 4)
        self.assert_folds(lambda x: expanded(tf.matmul(x, normal(4, 5)) + normal(5), 5), x)
        self.assert_folds(lambda x: expanded(tf.matmul(x, normal(5, 4), transpose_b=True), 5), x)
        self.assert_folds(lambda x: expanded(tf.matmul(x, normal(6, 3), transpose_a=True), 3), x)

    def test_what_lies_between(self) -> None:
        """Bias, Identity, a second batch norm, quotients, differences, and reshapes in between are no obstacle."""
        import tensorflow as tf

        x, kernel = normal(2, 6, 6, 3), normal(3, 3, 3, 5)

        def everything(x: Any) -> Any:
            y = tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, "SAME"), normal(5))
            y = tf.identity(fused(tf.stop_gradient(y), 5).y)
            y = tf.reshape(3.0 - y, [2, 36, 5]) / uniform(1, 1, 5)
            return tf.nn.relu(expanded(y - normal(5), 5))

        self.assert_folds(everything, x)
        self.assert_folds(lambda s: expanded(tf.nn.conv1d(s, normal(3, 4, 6), 1, "SAME"), 6), normal(2, 9, 4))

    def test_one_after_another(self) -> None:
        """Each convolution in a chain absorbs the batch norm after it. Sums of branches stay."""
        import tensorflow as tf

        def build(x: Any) -> Any:
            y = tf.nn.relu(fused(tf.nn.conv2d(x, normal(3, 3, 4, 4), 1, "SAME"), 4).y)
            return x + expanded(tf.nn.conv2d(y, normal(1, 1, 4, 4), 1, "SAME"), 4)

        self.assert_folds(build, normal(1, 5, 5, 4), places=2)


class StaysTest(PassTest):
    """Graphs that don't change."""

    def assert_stays(self, build: Build, *feeds: Array, jit: bool = False) -> None:
        """The pass changes nothing."""
        self.assertEqual(self.rewritten(NAME, build, *feeds, jit=jit), 0)

    def test_kernel_of_others(self) -> None:
        """A kernel that has another use, or that is an output, isn't copied: the program would contain weights twice."""
        import tensorflow as tf

        def shared(x: Any) -> Any:
            kernel = tf.constant(normal(3, 3, 3, 4))
            return fused(tf.nn.conv2d(x, kernel, 1, "SAME"), 4).y, tf.nn.conv2d(x, kernel, 2, "SAME")

        def fetched(x: Any) -> Any:
            kernel = tf.identity(tf.constant(normal(3, 3, 3, 4)))
            return fused(tf.nn.conv2d(x, kernel, 1, "SAME"), 4).y, kernel

        self.assert_stays(shared, normal(1, 5, 5, 3))
        self.assert_stays(fetched, normal(1, 5, 5, 3))

    def test_kernel_that_varies(self) -> None:
        """A kernel that is an input, or is computed from one, has no value yet."""
        import tensorflow as tf

        self.assert_stays(
            lambda x, k: fused(tf.nn.conv2d(x, k, 1, "SAME"), 4).y, normal(1, 5, 5, 3), normal(3, 3, 3, 4)
        )
        self.assert_stays(
            lambda x, k: fused(tf.nn.conv2d(x, k * 2.0, 1, "SAME"), 4).y, normal(1, 5, 5, 3), normal(3, 3, 3, 4)
        )

    def test_training(self) -> None:
        """Statistics of the batch, and results of batch norm other than the first, aren't constants."""
        import tensorflow as tf

        def conv(x: Any) -> Any:
            return tf.nn.conv2d(x, normal(3, 3, 3, 4), 1, "SAME")

        x = normal(2, 5, 5, 3)
        self.assert_stays(lambda x: fused(conv(x), 4, is_training=True).y, x)

        def others(x: Any) -> Any:
            result = fused(conv(x), 4)
            return result.y, result.batch_mean + 1.0

        self.assert_stays(others, x)

    def test_not_one_factor_a_channel(self) -> None:
        """Factors along other axes, a ReLU before them, squares, and a product whose shape grows don't qualify."""
        import tensorflow as tf

        def conv(x: Any) -> Any:
            return tf.nn.conv2d(x, normal(3, 3, 3, 4), 1, "SAME")

        x = normal(1, 5, 5, 3)
        self.assert_stays(lambda x: conv(x) * normal(5, 1, 4), x)
        self.assert_stays(lambda x: conv(x) * normal(5, 1), x)
        self.assert_stays(lambda x: conv(x) * normal(2, 1, 1, 4), x)
        self.assert_stays(lambda x: expanded(tf.nn.relu(conv(x)), 4), x)
        self.assert_stays(lambda x: normal(4) / (conv(x) * conv(x) + 1.0), x)
        self.assert_stays(lambda x: tf.matmul(x, normal(3, 4)) * normal(1, 1, 4), normal(6, 3))
        self.assert_stays(lambda x: tf.matmul(x, normal(3, 1)) * normal(4), normal(6, 3))
        self.assert_stays(lambda x: tf.reshape(conv(x), [5, 20]) * normal(20), x)
        self.assert_stays(lambda x: tf.transpose(conv(x), [0, 3, 1, 2]) * normal(5), x)

    def test_sums_alone(self) -> None:
        """Without a factor, there is nothing to fold: a sum stays."""
        import tensorflow as tf

        self.assert_stays(lambda x: tf.matmul(x, normal(3, 4)) + normal(4), normal(6, 3))

    def test_other_types(self) -> None:
        """Integers have no float kernel, and half floats would round a kernel that is folded again."""
        import tensorflow as tf

        self.assert_stays(
            lambda x: tf.matmul(x, np.arange(12, dtype="int32").reshape(3, 4)) * 3, np.ones([2, 3], "int32")
        )
        self.assert_stays(lambda x: tf.matmul(x, normal(3, 4, dtype="float16")) * 3.0, normal(2, 3, dtype="float16"))

    def test_not_finite(self) -> None:
        """A factor that is NaN, or makes the kernel overflow, would turn zeros into NaN."""
        import tensorflow as tf

        def conv(x: Any, kernel: Array) -> Any:
            return tf.nn.conv2d(x, kernel, 1, "SAME")

        kernel = normal(1, 1, 3, 4)
        infinite = np.array([1, np.inf, 2, 3], "float32")
        with np.errstate(invalid="ignore"):
            self.assert_stays(
                lambda x: tf.nn.relu(-tf.abs(conv(x, kernel) * infinite)), np.ones([1, 2, 2, 3], "float32")
            )
        self.assert_stays(lambda x: conv(x, kernel * 1e30) * 1e30, np.zeros([1, 2, 2, 3], "float32"))
        self.assert_stays(
            lambda x: conv(x, kernel) / np.array([1, 0, 2, 3], "float32"), np.ones([1, 2, 2, 3], "float32") * 0
        )

    def test_underflow(self) -> None:
        """If scaled kernel values are denormals, they would be flushed, which shows with large inputs."""
        import tensorflow as tf

        x, kernel = np.full([2, 3], 1e36, "float32"), np.full([3, 4], 1e-20, "float32")
        self.assert_stays(lambda x: tf.matmul(x, kernel) * 1e-20 + 0.5, x)
        # The first factor goes into the kernel, and the second stays.
        self.assertEqual(self.rewritten(NAME, lambda x: tf.matmul(x, kernel) * 1e10 * 1e-30 + 0.5, x), 1)

    def test_underflow_on_the_way(self) -> None:
        """Factors with a moderate product, whose steps flush or overflow what they scale, stay separate."""
        import tensorflow as tf

        kernel = uniform(3, 4)
        self.assert_stays(lambda x: tf.matmul(x, kernel) * 1e-30 * 1e-30 * 1e30 * 1e30, np.ones([2, 3], "float32"))
        self.assert_stays(lambda x: tf.matmul(x, kernel) * 1e-25 * 1e25, np.full([2, 3], 1e-20, "float32"))
        tiny = tf.raw_ops.Square
        self.assert_stays(
            lambda x: tf.matmul(x, kernel) / (tiny(x=tf.constant(1e-30)) + tf.constant(0.0)),
            np.zeros([2, 3], "float32"),
        )

    def test_small_beside_others(self) -> None:
        """Denormals in a kernel, as in trained weights, and values that vanish next to others don't prevent folding."""
        import tensorflow as tf

        kernel = uniform(3, 4)
        kernel[0, 1], kernel[1, 2], kernel[2] = 1e-40, 1e-37, 0
        self.assertEqual(self.rewritten(NAME, lambda x: tf.matmul(x, kernel) * 0.01 + 0.5, normal(2, 3)), 1)


if __name__ == "__main__":
    unittest.main()
