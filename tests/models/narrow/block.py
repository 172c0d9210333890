"""What reads weights in models that are bound by memory."""

import numpy as np
import tensorflow as tf


class Block(tf.Module):
    """A recurrent layer, a residual connection, and products of several rows."""

    def __init__(self) -> None:
        super().__init__()
        draw = np.random.default_rng(2)

        def weight(name: str, *shape: int) -> tf.Variable:
            scale = np.float32(shape[0] ** -0.5)
            return tf.Variable(draw.standard_normal(shape, np.float32) * scale, name=name)

        self.input = weight("input", 48, 384)
        self.state = weight("state", 96, 384)
        self.bias = weight("bias", 384)
        self.tied = weight("tied", 96, 200)
        self.up = weight("up", 96, 333)
        self.down = weight("down", 333, 96)
        self.heads = weight("heads", 96, 4, 24)

    @tf.function(input_signature=[tf.TensorSpec([1, 12, 48], tf.float32, "x")])
    def __call__(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the last state, logits, and products of all steps."""
        h, c = tf.zeros([1, 96]), tf.zeros([1, 96])
        steps = tf.TensorArray(tf.float32, 12, element_shape=[1, 96])
        for t in tf.range(12):
            z = tf.matmul(x[:, t], self.input) + tf.matmul(h, self.state) + self.bias
            i, f, g, o = tf.split(z, 4, 1)
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
            h = tf.sigmoid(o) * tf.tanh(c)
            steps = steps.write(t, h)
        all_steps = steps.stack()[:, 0]
        mixed = h + tf.matmul(tf.nn.gelu(tf.matmul(h, self.up)), self.down)
        logits = tf.matmul(mixed, self.tied)
        return {
            "state": h,
            "logits": logits,
            "back": tf.matmul(logits, self.tied, transpose_b=True),
            "rows": tf.matmul(all_steps, self.up),
            "heads": tf.einsum("td,dhk->htk", all_steps, self.heads),
        }


model = Block()
