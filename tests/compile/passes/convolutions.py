"""A training step of convolutions whose gradients TensorFlow or XLA lack (grouped, dilated, depthwise), and a loop, used twice.

The generated test compares with TensorFlow, which runs different replacements for these convolutions than the compiled code.
"""

import tensorflow as tf

v1 = tf.compat.v1


@tf.function
def scaled(x, scale):
    """Multiplies by a variable, three times."""
    for _ in tf.range(3):
        x = x * tf.gather(scale, [1, 0])
    return x


def input_fn():
    """Returns placeholders for 2 images of 8 x 8 with 4 channels, and their labels."""
    return v1.placeholder(tf.float32, [2, 8, 8, 4], "x"), v1.placeholder(tf.float32, [2, 2], "y")


def model_fn(x, labels):
    """Returns the loss before the step, after all variables took the step."""
    scale = v1.get_variable("scale", initializer=[0.9, 1.1])
    image = tf.nn.relu(tf.nn.conv2d(x, v1.get_variable("grouped", [3, 3, 2, 6]), 1, "SAME"))
    image = tf.nn.relu(tf.nn.conv2d(image, v1.get_variable("dilated", [3, 3, 6, 4]), 1, "SAME", dilations=2))
    image = tf.nn.depthwise_conv2d(image, v1.get_variable("depthwise", [3, 3, 4, 2]), [1, 2, 2, 1], "SAME")
    image = tf.nn.relu(tf.nn.conv2d(image, v1.get_variable("narrow", [2, 2, 1, 16]), 1, "VALID"))
    logits = tf.matmul(tf.reduce_mean(image, [1, 2]), v1.get_variable("dense", [16, 2]))
    loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels, logits))
    shown = scaled(logits, scale) + scaled(logits * 2.0, scale)
    trained = [variable for variable in v1.trainable_variables() if variable is not scale]
    with tf.control_dependencies([v1.train.GradientDescentOptimizer(0.1).minimize(loss, var_list=trained), shown]):
        return {"loss": tf.identity(loss), "shown": tf.identity(shown)}
