"""Results whose size is known only at run time, along every axis and of every kind of dtype."""

import numpy as np
import tensorflow as tf

ROWS, COLUMNS, BOXES = 6, 4, 8


def model(x, keep, ids, boxes, scores):
    """Where, unique, boolean_mask, and non_max_suppression, and uses of their results."""
    rows = tf.boolean_mask(x, keep)
    cubes = tf.reshape(x, [ROWS, 2, 2])
    chosen = tf.image.non_max_suppression(boxes, scores, BOXES // 2, iou_threshold=0.3, score_threshold=0.2)
    unique, index = tf.unique(ids)
    return {
        "both": tf.boolean_mask(tf.boolean_mask(x, keep), tf.boolean_mask(x[:, 0] > 0, keep)),
        "columns": tf.transpose(rows),
        "complex": tf.boolean_mask(tf.complex(x, -x), keep),
        "cubes": tf.transpose(tf.boolean_mask(cubes, keep), [1, 2, 0]),
        "half": tf.cast(tf.boolean_mask(x, keep), tf.bfloat16),
        "index": index,
        "kept": tf.gather(boxes, chosen),
        "last": tf.boolean_mask(x, x[0] > 0, axis=1),
        "lone": tf.boolean_mask(x, x > 0),
        "mean": tf.reduce_sum(rows, 0),
        "nms": chosen,
        "rows": rows * 2 + 1,
        "unique": unique,
        "where": tf.where(x > 0),
    }


def input_fn():
    """Inputs."""
    return (
        tf.TensorSpec((ROWS, COLUMNS)),
        tf.TensorSpec((ROWS,), tf.bool),
        tf.TensorSpec((BOXES,), tf.int32),
        tf.TensorSpec((BOXES, 4)),
        tf.TensorSpec((BOXES,)),
    )


def golden_fn(step, rng):
    """Random inputs. Of every three, one keeps everything and one keeps nothing."""
    x = rng.standard_normal((ROWS, COLUMNS))
    keep = rng.integers(0, 2, ROWS) > 0
    ids = rng.integers(0, 4, BOXES)
    corner = rng.uniform(0, 1, (BOXES, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(0.1, 1, (BOXES, 2))], 1)
    scores = rng.uniform(0, 1, BOXES)
    if step % 3 == 1:
        x, keep, ids, scores = np.abs(x) + 1, np.ones(ROWS, bool), np.arange(BOXES), scores + 1
    if step % 3 == 2:
        x, keep, ids, scores = -np.abs(x) - 1, np.zeros(ROWS, bool), np.zeros(BOXES), scores - 1
    return x, keep, np.asarray(ids, np.int32), boxes, scores
