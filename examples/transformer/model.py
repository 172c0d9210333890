"""A small transformer encoder in Keras 3, with random weights: tokens in, a vector for each token out."""

import keras
from keras import layers

from tfaot.calibrate import calibrated

TOKENS, VOCABULARY, WIDTH, HEADS, DEPTH = 32, 1000, 64, 4, 2


def model():
    """Builds the encoder: embeddings of tokens and positions, then blocks of attention and two dense layers."""
    tokens = keras.Input((TOKENS,), dtype="int32", name="tokens")
    x = layers.Embedding(VOCABULARY, WIDTH, name="embedding")(tokens)
    x = x + layers.Embedding(TOKENS, WIDTH, name="positions")(keras.ops.arange(TOKENS))
    for block in range(DEPTH):
        attended = layers.MultiHeadAttention(HEADS, WIDTH // HEADS, name=f"attention_{block}")(x, x)
        x = layers.LayerNormalization(name=f"norm_{block}")(x + attended)
        hidden = layers.Dense(4 * WIDTH, activation="gelu", name=f"hidden_{block}")(x)
        x = layers.LayerNormalization(name=f"out_norm_{block}")(x + layers.Dense(WIDTH, name=f"out_{block}")(hidden))
    return calibrated(keras.Model(tokens, x, name="encoder"))


def golden_fn(step, rng):
    """Tokens of the whole vocabulary; left out, the test would feed zeros and ones."""
    return rng.integers(0, VOCABULARY, (1, TOKENS))
