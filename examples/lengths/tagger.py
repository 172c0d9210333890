"""A tagger of Keras: a bidirectional GRU, whose backward half starts at the end of the sentence, and convolutions."""

import keras
from keras import layers

WORDS, TAGS = 1000, 8

keras.utils.set_random_seed(0)
model = keras.Sequential(
    [
        keras.Input((None,), name="words", dtype="int32"),
        layers.Embedding(WORDS, 24),
        layers.Conv1D(32, 3, padding="same", activation="relu"),
        layers.Bidirectional(layers.GRU(16, return_sequences=True)),
        layers.Dense(TAGS, activation="softmax", name="tags"),
    ]
)
