"""A tf.function with a dict of inputs and several outputs."""

import collections

import tensorflow as tf

Scores = collections.namedtuple("Scores", ["best", "probability"])

weights = tf.Variable(tf.random.stateless_normal((7, 3), seed=(1, 2)), name="weights")


@tf.function(
    input_signature=[
        {
            "age": tf.TensorSpec((8, 1), tf.float32),
            "clicks": tf.TensorSpec((8, 4), tf.int32),
            "place": tf.TensorSpec((8, 2), tf.float64),
        }
    ]
)
def model(features):
    """Scores each row; inputs are named by the dict's keys, outputs by the tuple's fields."""
    columns = [tf.cast(features[key], tf.float32) for key in ("age", "clicks", "place")]
    probability = tf.nn.softmax(tf.matmul(tf.concat(columns, axis=1), weights))
    return Scores(tf.argmax(probability, axis=1), probability)
