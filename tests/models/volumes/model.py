"""A step that trains a small net of 3-D convolutions, with strides, any padding, pooling, and one that goes back up."""

import tensorflow as tf

v1 = tf.compat.v1


def input_fn():
    """Returns two volumes and what they should become."""
    return v1.placeholder(tf.float32, [2, 7, 8, 9, 2], "x"), v1.placeholder(tf.float32, [2, 7, 8, 9, 1], "y")


def _kernel(name, *shape):
    return v1.get_variable(name, shape, tf.float32, v1.random_normal_initializer(0.0, 0.3, seed=1), use_resource=True)


def model_fn(x, y):
    """Returns the loss, and the volume that the net computes."""
    down = tf.nn.relu(tf.nn.conv3d(x, _kernel("down", 3, 3, 3, 2, 4), [1, 2, 2, 2, 1], "SAME"))
    wide = tf.nn.relu(tf.nn.conv3d(down, _kernel("wide", 2, 1, 3, 4, 6), [1, 1, 1, 1, 1], "VALID"))
    wide = tf.pad(wide, [(0, 0), (0, 1), (0, 0), (1, 1), (0, 0)])
    pooled = tf.nn.avg_pool3d(wide, 2, 1, "SAME") + tf.nn.max_pool3d(wide, 2, 1, "SAME")
    up = tf.nn.conv3d_transpose(pooled, _kernel("up", 3, 3, 3, 3, 6), [2, 7, 8, 9, 3], [1, 2, 2, 2, 1], "SAME")
    result = tf.nn.conv3d(tf.concat([up, x], -1), _kernel("last", 1, 1, 1, 5, 1), [1, 1, 1, 1, 1], "SAME")
    loss = tf.reduce_mean(tf.square(result - y))
    variables = v1.trainable_variables()
    updates = [
        variable.assign_sub(0.1 * gradient)
        for variable, gradient in zip(variables, tf.gradients(loss, variables), strict=True)
    ]
    with tf.control_dependencies(updates):
        return {"loss": tf.identity(loss), "result": tf.identity(result)}
