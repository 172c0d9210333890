"""Tests of resizes of images of any size: clusters take samples of the images, and compute what TensorFlow does."""

import unittest
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tests.cluster.cutting import Made, made
from tests.stages.harness import ROOT
from tfaot.cluster.compare import Files, Loaded
from tfaot.cluster.host_model import Running, Whole

v1 = tf.compat.v1
raw = tf.raw_ops

_CHANNELS = np.array([1.0, 2.0, 3.0], np.float32)


def _float(pixels: tf.Tensor) -> tf.Tensor:
    return tf.cast(pixels, tf.float32)[tf.newaxis] / 255.0


def _cut(
    resize: Callable[[tf.Tensor], tf.Tensor], shape: tuple[int | None, ...] = (None, None, 3), **options: Any
) -> Made:
    with tf.Graph().as_default() as graph:
        pixels = v1.placeholder(tf.uint8, shape, "pixels")
        return made(graph, [pixels], [resize(pixels)], **options)


def _inside(cut: Made) -> set[str]:
    return {op for ops in cut.operations for op in ops}


class SamplesTest(unittest.TestCase):
    def test_numbers(self) -> None:
        """The compiled clusters give TensorFlow's numbers for images of any size: large, small, of one row, of one column."""
        folder = ROOT / "tests/cluster"
        names = (
            "libresizes.so",
            "resizes.saved_model",
            "resizes.plan.json",
            "resizes.inputs.safetensors",
            "resizes.uncut.pb",
        )
        loaded = Loaded(Files(*(str(folder / name) for name in names)))
        self.assertNotIn("sizes aren't known", loaded.plan["left"])
        theirs, ours = Running(loaded.uncut), Running(loaded.cut)
        rng = np.random.default_rng(11)
        for _ in range(60):
            sizes = [int(2 ** rng.uniform(0, 8)) for _ in range(4)]
            photo = rng.integers(0, 256, (*sizes[:2], 3), np.uint8)
            maps = rng.normal(size=(2, *sizes[2:], 5)).astype(np.float32)
            for edge, one, other in zip(
                loaded.uncut.outputs, theirs.step([photo, maps]), ours.step([photo, maps]), strict=True
            ):
                with self.subTest(edge.label, sizes=sizes):
                    # Means are sums that the two round differently. Places and weights are the same.
                    np.testing.assert_allclose(other, one, rtol=2e-6, atol=2e-6 * float(np.abs(one).max()))

    def test_values(self) -> None:
        """What a cluster's own test feeds is a sample as the op makes it: the cluster's function gives TensorFlow's numbers."""
        ways: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
            "half pixels": lambda pixels: tf.image.resize(_float(pixels), [6, 11]) - 0.5,
            "corners": lambda pixels: raw.ResizeBilinear(images=_float(pixels), size=[6, 11], align_corners=True) - 0.5,
            "neither": lambda pixels: raw.ResizeBilinear(images=pixels[tf.newaxis], size=[6, 11]) * 2.0,
            "nearest": lambda pixels: tf.image.resize(_float(pixels), [6, 11], method="nearest") - 0.5,
            "nearest corners": lambda pixels: raw.ResizeNearestNeighbor(
                images=pixels[tf.newaxis], size=[6, 11], align_corners=True
            ),
        }
        rng = np.random.default_rng(3)
        for name, way in ways.items():
            cut = _cut(way)
            (part,) = cut.cut.parts
            alone = Running(Whole(part.function.graph, part.function.inputs, part.function.outputs, {}))
            whole = Running(Whole(cut.nodes.uncut, cut.inputs, cut.outputs, {}))
            for size in ((4, 5), (1, 1), (6, 11), (30, 2), (3, 40)):
                with self.subTest(name, size=size):
                    pixels = rng.integers(0, 256, (*size, 3), np.uint8)
                    (image,) = whole.inside(part.inputs, [pixels])
                    (expected,) = whole.step([pixels])
                    (result,) = alone.step(part.taken([image]))
                    np.testing.assert_allclose(result, expected, rtol=2e-6, atol=2e-6 * float(np.abs(expected).max()))

    def test_what_is_inside(self) -> None:
        """Ops that compute each pixel by itself are in the cluster, and its node takes the image as it is, once for each resize."""
        cut = _cut(lambda pixels: tf.image.resize(_float(pixels) - _CHANNELS, [4, 6]) * 2.0)
        self.assertEqual(cut.operations, [["Cast", "Mul", "RealDiv", "ResizeBilinear", "StridedSlice", "Sub"]])
        (call,) = (node for node in cut.cut.graph.node if node.name == cut.cut.parts[0].node)
        self.assertEqual((list(call.input), list(call.attr["samples"].list.i)), (["pixels"], [5]))
        shapes = [edge.shape for edge in cut.cut.parts[0].function.inputs]
        self.assertEqual(shapes, [(8, 12, 3), (4,), (6,)])
        cut = _cut(lambda pixels: tf.image.resize(tf.expand_dims(pixels, 0), [4, 6], method="nearest") // 2)
        self.assertEqual(cut.operations, [["FloorDiv", "ResizeNearestNeighbor"]])  # TensorFlow runs ExpandDims for free
        self.assertEqual([edge.shape for edge in cut.cut.parts[0].function.inputs], [(1, 4, 6, 3)])

        def scaled(pixels: tf.Tensor) -> tf.Tensor:
            images = (tf.image.resize(_float(pixels), size) for size in ([4, 6], [2, 3]))
            return tf.reduce_sum(next(images)) + tf.reduce_sum(next(images))

        cut = _cut(scaled)
        (call,) = (node for node in cut.cut.graph.node if node.name == cut.cut.parts[0].node)
        self.assertEqual((list(call.input), list(call.attr["samples"].list.i)), (["pixels", "pixels"], [5, 5]))

    def test_what_stays(self) -> None:
        """A resize stays if its size or the channels aren't known, and so does what uses the whole image or is used by others."""
        stays: dict[str, tuple[Callable[[tf.Tensor], tf.Tensor], dict[str, Any]]] = {
            "a size from values": (lambda x: tf.image.resize(_float(x), tf.shape(x)[:2] // 2 + 1), {}),
            "channels": (lambda x: tf.image.resize(_float(x), [4, 6]), {"shape": (None, None, None)}),
            "a pipeline": (lambda x: tf.image.resize(_float(x), [4, 6]), {"pipeline": True}),
        }
        for name, (resize, options) in stays.items():
            with self.subTest(name):
                cut = _cut(resize, **options)
                self.assertFalse(_inside(cut) & {"Cast", "RealDiv", "ResizeBilinear"})
                self.assertEqual(cut.reason("ResizeBilinear"), "sizes aren't known")

        def whole(pixels: tf.Tensor) -> tf.Tensor:
            image = _float(pixels)
            return tf.image.resize(tf.exp(image / tf.reduce_max(image)), [4, 6])

        cut = _cut(whole)
        self.assertEqual(cut.operations, [["Exp", "RealDiv", "ResizeBilinear"]])

    def test_a_refused_node(self) -> None:
        """If one node of a sample can't be in a cluster, none is: without the resize, the image's size isn't known."""
        cut = _cut(lambda pixels: tf.exp(tf.image.resize(_float(pixels), [4, 6])))
        (resize,) = cut.nodes.samples
        left = cut.nodes.without({resize: "it is refused"})
        self.assertFalse(left.samples)
        ops = {node.op for node in left.graph.node if left.is_candidate(node.name)}
        self.assertEqual(ops, {"Exp"})
        self.assertEqual(left.reasons[resize], "it is refused")


if __name__ == "__main__":
    unittest.main()
