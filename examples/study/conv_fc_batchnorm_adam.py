"""The study's `conv_fc_batchnorm_adam`: a convolution and two dense layers with batch norm, Adam."""

import study
import tensorflow as tf

input_fn = study.images
golden_fn = study.noise_like(input_fn)


def model_fn(features, labels):
    """Returns the loss before the step, after all variables took the step."""
    with tf.compat.v1.variable_scope("conv_fc_batchnorm_adam"):
        logits = study.convolutional(features, norm=True)
        return study.train(study.cross_entropy(logits, labels), study.adam())
