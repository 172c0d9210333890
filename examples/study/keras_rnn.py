"""The study's `keras_rnn`: Keras' RNN over a SimpleRNNCell of 32, and a dense layer."""

import study
import tensorflow as tf

input_fn = study.sequences
golden_fn = study.noise_like(input_fn)


def model_fn(features, labels):
    """Returns the loss before the step, after all variables took the step."""
    with tf.compat.v1.variable_scope("keras_rnn"):
        outputs = tf.keras.layers.RNN(tf.keras.layers.SimpleRNNCell(32))(features)
        logits = study.dense(outputs, study.CLASSES, "logits")
        return study.train(study.cross_entropy(logits, labels), study.sgd(0.15))
