"""The study's `rnn_seq_length`: an LSTM of 1000 over sequences of 12, 5, and 10 words of a vocabulary of 5000."""

import study
import tensorflow as tf

tf1 = tf.compat.v1

VOCABULARY = 5000


def input_fn():
    """Returns placeholders for 3 sequences of 12 values, and the words that should follow them."""
    return tf1.placeholder(tf.float32, [3, 12, 1], "x"), tf1.placeholder(tf.int32, [3, 12], "y")


def golden_fn(step, rng):
    """Returns noise and random words."""
    del step
    return rng.standard_normal((3, 12, 1)), rng.integers(0, VOCABULARY, (3, 12))


def model_fn(features, labels):
    """Returns the loss before the step, after all variables took the step."""
    with tf1.variable_scope("rnn_seq_length"):
        cell = tf1.nn.rnn_cell.LSTMCell(1000)
        outputs, _ = tf1.nn.dynamic_rnn(cell, features, sequence_length=[12, 5, 10], dtype=tf.float32)
        logits = study.dense(outputs, VOCABULARY, "logits")
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        return study.train(loss, study.sgd(0.7))
