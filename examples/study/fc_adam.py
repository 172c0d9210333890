"""The study's `fc_adam`: four dense layers of 256 and one of 10, Adam."""

import study
import tensorflow as tf

input_fn = study.flat_images
golden_fn = study.noise_like(input_fn)


def model_fn(features, labels):
    """Returns the loss before the step, after all variables took the step."""
    with tf.compat.v1.variable_scope("fc_adam"):
        logits = study.fully_connected(features)
        return study.train(study.cross_entropy(logits, labels), study.adam())
