"""Tests of resizes of images of any size: what reads pixels stays, and the rest compiles, and computes what TensorFlow does."""

import unittest
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tests.cluster.cutting import Made, both, made

v1 = tf.compat.v1
_SIZES = ((7, 9), (1, 1), (4, 6), (3, 40), (2, 2))
"""Larger, of one pixel, as large as the result, of another form, and smaller."""


class ResizesTest(unittest.TestCase):
    def _cut(self, resize: Callable[[tf.Tensor], tf.Tensor], dtype: tf.DType = tf.uint8) -> Made:
        with tf.Graph().as_default() as graph:
            pixels = v1.placeholder(dtype, [None, None, 3], "pixels")
            return made(graph, [pixels], [resize(pixels)], least=2)

    def _same(self, cut: Made) -> None:
        draw = np.random.default_rng(5)
        theirs, ours = both(cut)
        for size in _SIZES:
            pixels = draw.integers(0, 256, (*size, 3)).astype(tf.as_dtype(cut.inputs[0].dtype).as_numpy_dtype)
            # A place is a product that the two round differently: up to 40 times 2^-24, of pixels up to 255.
            np.testing.assert_allclose(theirs.step([pixels])[0], ours.step([pixels])[0], rtol=1e-5, atol=2e-3)

    def _image(self, pixels: tf.Tensor) -> tf.Tensor:
        return tf.cast(pixels, tf.float32)[tf.newaxis] / 255.0

    def test_taken_apart(self) -> None:
        """TensorFlow only gathers pixels; the conversion before the resize compiles with it, for images of any size."""
        raw = tf.raw_ops
        ways: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
            "from the middle of pixels": lambda pixels: tf.image.resize(self._image(pixels), [4, 6]) - 0.5,
            "from their corners": lambda pixels: raw.ResizeBilinear(images=self._image(pixels), size=[4, 6]) - 0.5,
            "of integers": lambda pixels: raw.ResizeBilinear(images=pixels[tf.newaxis], size=[4, 6]) * 2.0,
            "with an axis before": lambda pixels: tf.image.resize(tf.expand_dims(1.0 - tf.cast(pixels, tf.float32) / 9.0, 0), [4, 6]),
        }
        for name, way in ways.items():
            with self.subTest(name):
                cut = self._cut(way)
                left = {node.op for node in cut.cut.graph.node}
                self.assertFalse(left & {"Cast", "RealDiv", "ResizeBilinear", "Sub"}, left)
                self._same(cut)

    def test_stands_for(self) -> None:
        """The plan counts the resize and what comes before it once each."""
        cut = self._cut(lambda pixels: tf.image.resize(self._image(pixels), [4, 6]))
        operations = {node.name: node.op for node in cut.nodes.uncut.node}
        stood = {name for names in cut.nodes.origins().values() for name in names}
        self.assertEqual(
            sorted(operations[name] for name in stood), ["Cast", "RealDiv", "ResizeBilinear", "StridedSlice"]
        )

    def test_what_stays(self) -> None:
        """A resize stays if corners are aligned or its size isn't constant, and so does what something else reads, too."""
        cut = self._cut(lambda pixels: v1.image.resize_bilinear(self._image(pixels), [4, 6], align_corners=True))
        self.assertIn("ResizeBilinear", {node.op for node in cut.cut.graph.node})
        cut = self._cut(lambda pixels: tf.image.resize(self._image(pixels), tf.shape(pixels)[:2] // 2 + 1))
        self.assertIn("ResizeBilinear", {node.op for node in cut.cut.graph.node})

        def twice(pixels: tf.Tensor) -> tf.Tensor:
            image = self._image(pixels)
            return tf.image.resize(image, [4, 6]) + tf.reduce_mean(image)

        cut = self._cut(twice)
        self.assertIn("RealDiv", {node.op for node in cut.cut.graph.node})
        self.assertNotIn("ResizeBilinear", {node.op for node in cut.cut.graph.node})
        self._same(cut)


if __name__ == "__main__":
    unittest.main()
