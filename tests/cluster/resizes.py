"""Resizes of images of any size, in all ways that TensorFlow has, some of which follow other ops on pixels."""

import numpy as np
import tensorflow as tf

RAW = tf.raw_ops


@tf.function(
    input_signature=[
        tf.TensorSpec([None, None, 3], tf.uint8, name="photo"),
        tf.TensorSpec([2, None, None, 5], name="maps"),
    ]
)
def model(photo, maps):
    """Returns the resized images."""
    image = tf.cast(photo, tf.float32)[tf.newaxis] / 255.0
    scaled = tf.expand_dims(tf.cast(photo, tf.float32) - [110.0, 120.0, 130.0], 0)
    return {
        "photo": tf.image.resize(image, [24, 40]) - 0.5,
        "integers": RAW.ResizeBilinear(images=photo[tf.newaxis], size=[9, 31]) * 2.0,
        "centered": RAW.ResizeBilinear(images=scaled, size=[5, 16], align_corners=True) * 0.1,
        "maps": RAW.ResizeBilinear(images=maps, size=[1, 30], align_corners=True) + 1.0,
        "halves": RAW.ResizeBilinear(images=tf.tanh(maps), size=[12, 7], half_pixel_centers=True) * 3.0,
        "nearest": RAW.ResizeNearestNeighbor(images=maps, size=[13, 30]) * 2.0,
        "nearest_halves": RAW.ResizeNearestNeighbor(images=maps, size=[17, 6], half_pixel_centers=True) * 2.0,
        "nearest_corners": RAW.ResizeNearestNeighbor(images=photo[tf.newaxis], size=[21, 10], align_corners=True) // 2,
    }


SIZES = ((7, 9), (1, 1), (24, 40), (3, 80), (50, 1), (2, 2), (1, 33), (61, 47))


def golden_fn(step, rng):
    """Returns images of a new size in each step."""
    (height, width), (down, across) = SIZES[step % len(SIZES)], SIZES[(step + 3) % len(SIZES)]
    photo = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    return photo, rng.normal(size=(2, down, across, 5)).astype(np.float32)
