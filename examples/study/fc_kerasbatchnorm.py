"""The study's `fc_kerasbatchnorm`: a dense layer, Keras' batch norm, whose updates run too, and a dense layer."""

import study
import tensorflow as tf

input_fn = study.flat_images
golden_fn = study.noise_like(input_fn)


def model_fn(features, labels):
    """Returns the loss before the step, after all variables took the step."""
    with tf.compat.v1.variable_scope("fc_kerasbatchnorm"):
        hidden = study.dense(features, 256, "hidden", tf.nn.relu)
        norm = tf.keras.layers.BatchNormalization()
        logits = study.dense(norm(hidden, training=True), study.CLASSES, "logits")
        return study.train(study.cross_entropy(logits, labels), study.sgd(), norm.updates)
