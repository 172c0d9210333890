"""Saves an LSTM like Keras: its loop is in a function that the signature calls."""

import sys

import keras

if __name__ == "__main__":
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Input((12, 24), name="x"), keras.layers.LSTM(16), keras.layers.Dense(3)]
    keras.Sequential(layers).export(sys.argv[1], verbose=False)
