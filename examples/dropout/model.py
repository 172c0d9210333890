"""A denoising step with dropout and noise: random ops that follow the instance's seed."""

import tensorflow as tf

kernel = tf.Variable(tf.random.stateless_normal((8, 8), seed=(1, 2)) * 0.3, name="kernel")


@tf.function(input_signature=[tf.TensorSpec((4, 8))])
def model(x):
    """Takes one step on noisy inputs, with half of the hidden values dropped."""
    with tf.GradientTape() as tape:
        noisy = x + tf.random.normal(tf.shape(x), stddev=0.1)
        hidden = tf.nn.dropout(tf.matmul(noisy, kernel), rate=0.5)
        loss = tf.reduce_mean(tf.square(hidden - x))
    kernel.assign_sub(0.1 * tape.gradient(loss, kernel))
    return {"hidden": hidden, "loss": loss}
