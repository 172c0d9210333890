"""A classifier of words: TensorFlow looks them up in vocabularies, and compiled code embeds and classifies them.

As a program, it saves the model as a SavedModel.
"""

import os
import sys
import tempfile

import numpy as np
import tensorflow as tf

WORDS = ["cat", "dog", "cow", "hen", "fish"]
TEXTS, LENGTH, SIZE = 4, 6, 16


class Vocabulary(tf.Module):
    """Two tables in front of a net, and one behind it."""

    def __init__(self):
        super().__init__()
        draw = np.random.default_rng(7).normal
        path = os.path.join(tempfile.mkdtemp(), "words.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.write("".join(f"{word}\n" for word in WORDS))
        lines = tf.lookup.TextFileInitializer(
            path, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
        )
        self.words = tf.lookup.StaticVocabularyTable(lines, 3)
        weights = tf.lookup.KeyValueTensorInitializer(WORDS, tf.range(1, 6, dtype=tf.int64))
        self.weights = tf.lookup.StaticHashTable(weights, 9)
        self.names = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(tf.range(3), ["pet", "farm", "sea"]), "?"
        )
        self.table = tf.Variable(draw(0, 1, (len(WORDS) + 3, SIZE)).astype(np.float32))
        self.hidden = tf.Variable(draw(0, 0.3, (SIZE, SIZE)).astype(np.float32))
        self.classes = tf.Variable(draw(0, 0.3, (SIZE, 3)).astype(np.float32))

    @tf.function(input_signature=[tf.TensorSpec([TEXTS, LENGTH], tf.string, name="words")])
    def __call__(self, words):
        """Returns the class of each text, and its probability."""
        weights = tf.cast(self.weights.lookup(words), tf.float32)
        x = tf.gather(self.table, self.words.lookup(words)) * weights[..., tf.newaxis]
        x = tf.nn.relu(tf.reduce_mean(x, 1) @ self.hidden)
        probabilities = tf.nn.softmax(x @ self.classes)
        best = tf.argmax(probabilities, -1, output_type=tf.int32)
        return {"class": self.names.lookup(best), "probability": tf.reduce_max(probabilities, -1)}


model = Vocabulary


def golden_fn(step, rng):
    """Returns words, of which the tables have most."""
    return {"words": rng.choice([*WORDS, "unknown", ""], (TEXTS, LENGTH)).astype(object)}


if __name__ == "__main__":
    tf.saved_model.save(Vocabulary(), sys.argv[1])
