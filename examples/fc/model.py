"""The study's `fc`: four dense layers of 256 and one of 10, gradient descent, batches of 64."""

import tensorflow as tf

from examples.common import study

input_fn = study.flat_images
golden_fn = study.noise_like(input_fn)


def model_fn(features, labels):
    """Returns the loss before the step, after all variables took the step."""
    with tf.compat.v1.variable_scope("fc"):
        logits = study.fully_connected(features)
        return study.train(study.cross_entropy(logits, labels), study.sgd())
