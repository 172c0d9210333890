"""An encoder-decoder transformer in Keras 3: source and target tokens in, logits of the next target tokens out."""

import keras
from keras import layers, ops

from tfaot.calibrate import calibrated

VOCABULARY, SOURCE, TARGET, WIDTH, HEADS, BLOCKS = 256, 32, 16, 128, 4, 2


def embedded(tokens, length, name):
    """Embeddings of tokens and of positions."""
    x = layers.Embedding(VOCABULARY, WIDTH, name=f"{name}_tokens")(tokens)
    return x + layers.Embedding(length, WIDTH, name=f"{name}_positions")(ops.arange(length))


def added(x, y, name):
    """A residual connection and its norm."""
    return layers.LayerNormalization(name=f"{name}_norm")(x + y)


def attention(x, y, name, causal=False):
    """Attention of one sequence to another."""
    layer = layers.MultiHeadAttention(HEADS, WIDTH // HEADS, name=name)
    return added(x, layer(x, y, use_causal_mask=causal), name)


def feed_forward(x, name):
    """Two dense layers."""
    hidden = layers.Dense(4 * WIDTH, activation="relu", name=f"{name}_hidden")(x)
    return added(x, layers.Dense(WIDTH, name=f"{name}_out")(hidden), name)


def model():
    """Builds encoder and decoder."""
    source = keras.Input((SOURCE,), dtype="int32", name="source")
    target = keras.Input((TARGET,), dtype="int32", name="target")
    x, y = embedded(source, SOURCE, "source"), embedded(target, TARGET, "target")
    for block in range(BLOCKS):
        x = attention(x, x, f"encoder_{block}")
        x = feed_forward(x, f"encoder_{block}_ff")
    for block in range(BLOCKS):
        y = attention(y, y, f"decoder_{block}", causal=True)
        y = attention(y, x, f"cross_{block}")
        y = feed_forward(y, f"decoder_{block}_ff")
    return calibrated(keras.Model([source, target], layers.Dense(VOCABULARY, name="logits")(y)))


def golden_fn(step, rng):
    """Tokens of the whole vocabulary."""
    return rng.integers(0, VOCABULARY, (1, SOURCE)), rng.integers(0, VOCABULARY, (1, TARGET))
