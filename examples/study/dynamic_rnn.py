"""The study's `dynamic_rnn`: a BasicRNNCell of 32, a dense layer on all steps, the last one's logits."""

import study
import tensorflow as tf

input_fn = study.sequences
golden_fn = study.noise_like(input_fn)


def model_fn(features, labels):
    """Returns the loss before the step, after all variables took the step."""
    with tf.compat.v1.variable_scope("dynamic_rnn"):
        cell = tf.compat.v1.nn.rnn_cell.BasicRNNCell(32)
        state = cell.zero_state(features.shape[0], tf.float32)
        outputs, _ = tf.compat.v1.nn.dynamic_rnn(cell, features, initial_state=state)
        logits = study.dense(outputs, study.CLASSES, "logits")[:, -1]
        return study.train(study.cross_entropy(logits, labels), study.sgd(0.15))
