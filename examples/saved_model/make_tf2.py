"""Saves a module with two signatures over one set of variables, one of which trains."""

import sys

import tensorflow as tf


class Line(tf.Module):
    """Fits y = a x + b."""

    def __init__(self):
        super().__init__()
        self.a = tf.Variable(1.0, name="a")
        self.b = tf.Variable(0.0, name="b")

    @tf.function(input_signature=[tf.TensorSpec((None,), name="x")])
    def predict(self, x):
        """Evaluates the line."""
        return {"y": self.a * x + self.b}

    @tf.function(input_signature=[tf.TensorSpec((None,), name="x"), tf.TensorSpec((None,), name="y")])
    def learn(self, x, y):
        """Takes a step of gradient descent."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.a * x + self.b - y))
        for variable, gradient in zip((self.a, self.b), tape.gradient(loss, (self.a, self.b)), strict=True):
            variable.assign_sub(0.1 * gradient)
        return {"loss": loss}


if __name__ == "__main__":
    line = Line()
    tf.saved_model.save(line, sys.argv[1], signatures={"learn": line.learn, "predict": line.predict})
