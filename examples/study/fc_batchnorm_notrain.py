"""The study's `fc_batchnorm_notrain`: dense layers with batch norm whose moving statistics are only read."""

import study
import tensorflow as tf

input_fn = study.flat_images
golden_fn = study.noise_like(input_fn)


def model_fn(features, labels):
    """Returns the loss before the step, after all variables took the step."""
    with tf.compat.v1.variable_scope("fc_batchnorm_notrain"):
        logits = study.fully_connected(features, norm=False)
        return study.train(study.cross_entropy(logits, labels), study.sgd())
