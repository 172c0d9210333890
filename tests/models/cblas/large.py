"""Matrix products on both sides of the size at which a library computes them: transposed, batched, and with epilogues."""

import tensorflow as tf


class Large(tf.Module):
    """Two layers, trained by gradient descent, and a product of doubles."""

    def __init__(self):
        super().__init__()

        def weight(name, shape, seed):
            return tf.Variable(tf.random.stateless_normal(shape, seed=(seed, 0), stddev=0.05), name=name)

        self.hidden = weight("hidden", (270, 280), 1)
        self.bias = weight("bias", (280,), 2)
        self.out = weight("out", (280, 10), 3)

    @tf.function(input_signature=[tf.TensorSpec((260, 270), name="x")])
    def train(self, x):
        """Takes a step. The first layer's products, including gradients, are large; the second layer's aren't."""
        with tf.GradientTape() as tape:
            seen = tf.nn.relu(tf.matmul(x, self.hidden) + self.bias)
            # A batch of large products with a transposed right side.
            pairs = tf.matmul(tf.stack([seen, 2.0 * seen]), tf.stack([seen, seen]), transpose_b=True)
            loss = tf.reduce_mean(tf.matmul(seen, self.out) ** 2) + 1e-6 * tf.reduce_mean(pairs**2)
        weights = [self.hidden, self.bias, self.out]
        for value, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            value.assign_sub(0.1 * gradient)
        return {"loss": loss}

    @tf.function(input_signature=[tf.TensorSpec((256, 260), tf.float64, name="x")])
    def doubles(self, x):
        """Multiplies doubles by their own transpose."""
        return {"square": tf.matmul(x, x, transpose_b=True)}


model = Large()
