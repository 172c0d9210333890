"""The head of a detector (YOLO): boxes from a grid's values, the best of them, and those that a better one covers."""

import numpy as np
import tensorflow as tf

GRID, ANCHORS, CLASSES, BEST = 7, 3, 5, 20
SIZES = np.array([[10, 13], [16, 30], [33, 23]], np.float32)


@tf.function(input_signature=[tf.TensorSpec((1, GRID, GRID, ANCHORS * (5 + CLASSES)), name="x")])
def model(x):
    """Returns boxes, scores, classes, and which boxes are kept."""
    x = tf.reshape(x, (GRID, GRID, ANCHORS, 5 + CLASSES))
    place = tf.cast(tf.stack(tf.meshgrid(tf.range(GRID), tf.range(GRID)), -1), tf.float32)[:, :, None]
    center = (tf.sigmoid(x[..., :2]) * 2 - 0.5 + place) * 32.0
    size = (tf.sigmoid(x[..., 2:4]) * 2) ** 2 * SIZES
    boxes = tf.reshape(tf.concat([center - size / 2, center + size / 2], -1), (-1, 4))
    scores = tf.reshape(tf.sigmoid(x[..., 4:5]) * tf.sigmoid(x[..., 5:]), (-1, CLASSES))
    best, order = tf.math.top_k(tf.reduce_max(scores, 1), BEST)
    boxes, classes = tf.gather(boxes, order), tf.argmax(tf.gather(scores, order), 1)
    # Boxes of different classes don't cover each other.
    apart = boxes + tf.cast(classes, tf.float32)[:, None] * 1000.0
    low = tf.maximum(apart[:, None, :2], apart[None, :, :2])
    high = tf.minimum(apart[:, None, 2:], apart[None, :, 2:])
    shared = tf.reduce_prod(tf.maximum(high - low, 0.0), -1)
    area = tf.reduce_prod(apart[:, 2:] - apart[:, :2], 1)
    covered = tf.linalg.band_part(shared / (area[:, None] + area[None] - shared), 0, -1) - tf.eye(BEST)
    kept = tf.reduce_max(covered, 0) < 0.45
    return {
        "boxes": boxes,
        "scores": best,
        "classes": classes,
        "kept": kept,
        "count": tf.reduce_sum(tf.cast(kept, tf.int32)),
    }
