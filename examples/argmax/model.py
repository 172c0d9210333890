"""Where a matrix is largest: along an axis that is an argument, which doesn't compile, and two forms that do."""

import tensorflow as tf

SCORES = tf.TensorSpec([8, 5], tf.float32, "scores")


class Largest(tf.Module):
    """The same result, with the axis as an argument and as a constant."""

    @tf.function(input_signature=[SCORES, tf.TensorSpec([], tf.int32, "axis")])
    def any_axis(self, scores, axis):
        """The axis decides the shape of the result, so the compiler must know it."""
        return {"place": tf.argmax(scores, axis)}

    @tf.function(input_signature=[SCORES])
    def columns(self, scores):
        """An entry point for an axis: the caller chooses the function."""
        return {"place": tf.argmax(scores, 0)}

    @tf.function(input_signature=[SCORES])
    def rows(self, scores):
        """The entry point for the other axis."""
        return {"place": tf.argmax(scores, 1)}

    @tf.function(input_signature=[SCORES, tf.TensorSpec([], tf.int32, "axis")])
    def either(self, scores, axis):
        """Both axes, and a choice between the results, which get one shape."""
        columns = tf.pad(tf.argmax(scores, 0), [[0, 3]], constant_values=-1)
        return {"place": tf.where(tf.equal(axis, 0), columns, tf.argmax(scores, 1))}


model = Largest()


def golden_fn(step, rng, entry_point):
    """Returns a matrix, and each axis in turn."""
    scores = rng.normal(size=SCORES.shape)
    return (scores, step % 2) if entry_point == "either" else (scores,)
