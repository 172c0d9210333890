"""The study's `conv_fc_batchnorm_notrain`: as conv_fc_batchnorm, with moving statistics that are only read."""

import study
import tensorflow as tf

input_fn = study.images
golden_fn = study.noise_like(input_fn)


def model_fn(features, labels):
    """Returns the loss before the step, after all variables took the step."""
    with tf.compat.v1.variable_scope("conv_fc_batchnorm_notrain"):
        logits = study.convolutional(features, norm=False)
        return study.train(study.cross_entropy(logits, labels), study.sgd())
