"""Saves a model as TensorFlow 1 did: a graph, a session's variables, and a signature."""

import sys

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def main(folder):
    """Writes the SavedModel."""
    v1.disable_eager_execution()
    v1.disable_resource_variables()  # as they were: `VariableV2`
    rng = np.random.default_rng(7)
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 16], "images/x")
        kernel = v1.get_variable("dense/kernel", initializer=rng.standard_normal((16, 4)).astype(np.float32))
        bias = v1.get_variable("dense/bias", initializer=np.arange(4, dtype=np.float32))
        scores = tf.nn.softmax(tf.matmul(x, kernel) + bias, name="scores")
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(folder)
        signature = v1.saved_model.predict_signature_def(inputs={"images": x}, outputs={"scores": scores})
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
        builder.save()


if __name__ == "__main__":
    main(sys.argv[1])
