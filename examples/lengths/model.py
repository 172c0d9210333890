"""A sentence encoder: tokens with a mask, any number of them, in batches of any number of rows."""

import numpy as np
import tensorflow as tf

WORDS, WIDTH, HEADS, LAYERS = 1000, 64, 4, 2


class Encoder(tf.Module):
    """Layers of attention, each with a feed-forward network, and the mean of what the tokens become."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)

        def weight(name, *shape):
            return tf.Variable(rng.standard_normal(shape, np.float32) / shape[0] ** 0.5, name=name)

        self.words = weight("words", WORDS, WIDTH)
        self.layers = [
            {
                "heads": weight(f"heads{i}", WIDTH, 3 * WIDTH),
                "mixed": weight(f"mixed{i}", WIDTH, WIDTH),
                "up": weight(f"up{i}", WIDTH, 4 * WIDTH),
                "down": weight(f"down{i}", 4 * WIDTH, WIDTH),
            }
            for i in range(LAYERS)
        ]

    @staticmethod
    def norm(x):
        """Gives each token's values mean 0 and variance 1."""
        mean, variance = tf.nn.moments(x, -1, keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-6)

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, None), tf.int32, "tokens"),
            tf.TensorSpec((None, None), tf.float32, "mask"),
        ]
    )
    def __call__(self, tokens, mask):
        """Returns what the tokens become, and their mean."""
        rows, length = tf.shape(tokens)[0], tf.shape(tokens)[1]

        def split(x):
            return tf.transpose(tf.reshape(x, [rows, length, HEADS, WIDTH // HEADS]), [0, 2, 1, 3])

        x = tf.gather(self.words, tokens)
        for layer in self.layers:
            query, key, value = map(split, tf.split(self.norm(x) @ layer["heads"], 3, 2))
            scores = tf.matmul(query, key, transpose_b=True) / (WIDTH // HEADS) ** 0.5
            weights = tf.nn.softmax(scores + (mask[:, None, None, :] - 1) * 1e9)
            x += tf.reshape(tf.transpose(weights @ value, [0, 2, 1, 3]), [rows, length, WIDTH]) @ layer["mixed"]
            x += tf.nn.relu(self.norm(x) @ layer["up"]) @ layer["down"]
        mean = tf.reduce_sum(x * mask[..., None], 1) / tf.reduce_sum(mask, 1)[:, None]
        return {"sentence": mean, "states": x}


def model():
    """Returns the encoder, whose call is the entry point."""
    return Encoder()


def golden_fn(step, rng):
    """Inputs to verify: sentences of several lengths in a batch, of which the first is as long as the batch."""
    length = [1, 16, 64, 5, 17, 63][step % 6]
    lengths = [length, *rng.integers(1, length + 1, step % 8)]
    mask = np.arange(length) < np.array(lengths)[:, None]
    return rng.integers(0, WORDS, mask.shape), mask
